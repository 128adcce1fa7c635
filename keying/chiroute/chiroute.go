// Package chiroute finds the route of a request in a chi router, before its
// handler runs and in every placement of the limiter: Use at the root, With,
// Group, inside Route or Mount, or wrapped around the router.
//
//	router := chi.NewRouter()
//	routes := chiroute.New(router)
//	limit, err := middleware.New(l, who, routes.Route, middleware.Config{})
//	...
//	router.Use(limit.Handler)
//	router.Get("/orders/{id}", order) // route "GET /orders/{id}"
//
// Pass the outermost router to New. If a router is mounted as a chi.Router, its
// routes are known. If it is mounted inside a plain http.Handler, all its requests
// have one route, that of the mount.
//
// Middleware that rewrites paths or methods belongs outside the limiter, so that
// the limiter and the router see the same request. CleanPath and StripSlashes
// may be inside unless the router has a route such as "/*", which also matches
// the path before it is cleaned.
//
// A limiter in a Group or inside With sees only the requests that chi has matched
// there, and not those for other paths that get 404 or 405.
package chiroute

import (
	"net/http"
	"path"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-chi/chi/v5"

	"github.com/ration-go/ration/keying"
)

// Router finds routes in a chi router. It is safe for concurrent use; the zero
// Router is not usable, see [New].
type Router struct {
	given  chi.Routes
	tree   func() *level           // of given; read at the first request
	others sync.Map                // *chi.Mux to func() *level: other outermost routers
	outer  atomic.Pointer[chi.Mux] // the last of those; nil if given is outermost

	contexts sync.Pool // of *chi.Context, for looking ahead
}

// New returns a Router for router, which should be the outermost one: the one that
// the server calls. If router is mounted in another, Route still finds the whole
// pattern, but [Router.Routes] lists only the routes of router until the first
// request shows which router is outermost. Routes may be registered after New, until
// the first request. New panics if router is nil, as chi does.
func New(router chi.Routes) *Router {
	if router == nil {
		panic("chiroute: New of a nil router")
	}
	r := &Router{given: router}
	r.tree = sync.OnceValue(func() *level { return newLevel(router, nil) })
	r.contexts.New = func() any { return chi.NewRouteContext() }
	return r
}

// Route returns the pattern that chi routes the request to. It is a keying.Route:
//
//	"GET /orders/{id}"  registered for GET; HEAD shares it if it is served as GET
//	"/orders/{id}"      registered for all methods (Handle)
//	"/static/*"         everything below a mounted handler that is no chi router
//
// If the router has no such route (404), or not for this method (405), ok is
// false, with three exceptions that inner middleware may serve: HEAD counts as
// GET (chi's GetHead), and "/x/" and "//x" count as "/x" (StripSlashes, CleanPath).
// Without that middleware such a request gets a 404 or 405 and still uses tokens
// of the route: it is never free and never gets another account.
//
// Behind With or Group, when chi has matched the whole pattern, Route does not
// allocate; otherwise it costs one look-up in the router.
func (r *Router) Route(req *http.Request) (pattern string, ok bool) {
	if pattern, ok, probed := keying.Probed(req, r.Routes); probed {
		return pattern, ok
	}
	live := chi.RouteContext(req.Context())
	if live == nil {
		return r.ahead(r.tree(), req.Method, routePath("", req))
	}
	method := live.RouteMethod
	if method == "" {
		method = req.Method
	}
	at := r.outermost(live).walk(live.RoutePatterns, method)
	switch {
	case at.level == nil:
		return at.route, true
	case at.bare:
		return r.ahead(at.level, method, "/")
	case len(live.RoutePatterns) == 0:
		return r.ahead(at.level, method, routePath(live.RoutePath, req))
	default:
		return r.ahead(at.level, method, remainder(live, req))
	}
}

// outermost returns the routes of the outermost router, which chi entered first.
func (r *Router) outermost(live *chi.Context) *level {
	router, ok := live.Routes.(*chi.Mux)
	if !ok || chi.Routes(router) == r.given {
		return r.tree()
	}
	tree, known := r.others.Load(router)
	if !known {
		tree, _ = r.others.LoadOrStore(router,
			sync.OnceValue(func() *level { return newLevel(router, nil) }))
		r.outer.Store(router)
	}
	return tree.(func() *level)()
}

// routePath returns the path by which the outermost router routes.
func routePath(set string, req *http.Request) string {
	switch {
	case set != "":
		return set // by middleware
	case req.URL.RawPath != "":
		return req.URL.RawPath
	case req.URL.Path != "":
		return req.URL.Path
	default:
		return "/"
	}
}

// remainder returns the path that is left for the router that chi has matched
// last. Before chi enters that router, this is the value of the wildcard; then
// it is RoutePath, and chi has emptied the value. If the value was empty from the
// start, RoutePath may still be the outer router's, which then ends in "/".
func remainder(live *chi.Context, req *http.Request) string {
	n := len(live.URLParams.Keys) - 1
	if n >= 0 && n < len(live.URLParams.Values) && live.URLParams.Values[n] != "" {
		return "/" + live.URLParams.Values[n]
	}
	outer := req.PathValue("*") == "" && strings.HasSuffix(live.RoutePath, "/")
	if outer || live.RoutePath == "" {
		return "/"
	}
	return live.RoutePath
}

// ahead looks up the route that the router at l will take. If the path has none, it
// is cleaned as inner middleware may do, so that its spelling is no way to another
// account.
func (r *Router) ahead(l *level, method, p string) (string, bool) {
	pattern, ok := r.find(l, method, p)
	if !ok {
		if clean := path.Clean(p); clean != p {
			pattern, ok = r.find(l, method, clean)
		}
	}
	return pattern, ok
}

// find looks up HEAD as chi's GetHead does: as GET if HEAD has no route.
func (r *Router) find(l *level, method, p string) (string, bool) {
	pattern, ok := r.findMethod(l, method, p)
	if !ok && method == http.MethodHead {
		return r.findMethod(l, http.MethodGet, p)
	}
	return pattern, ok
}

// findMethod asks chi, level by level. The result of Find is not used: it enters a
// mounted router even if a handler is registered at the mount for the method. The
// patterns that Find has noted say what is matched at each level.
func (r *Router) findMethod(l *level, method, p string) (string, bool) {
	// A look-up writes to the context, so that of the request is not used.
	ctx := r.contexts.Get().(*chi.Context)
	defer r.contexts.Put(ctx)
	for {
		ctx.Reset()
		l.router.Find(ctx, method, p)
		at := l.walk(ctx.RoutePatterns, method)
		switch {
		case at.level == nil:
			return at.route, true
		case !at.bare:
			return "", false // the router at that level has no match
		}
		l, p = at.level, "/" // Find stops at the path of a mount itself
	}
}
