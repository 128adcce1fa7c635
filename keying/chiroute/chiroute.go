// Package chiroute finds the route of a request in a chi router, before its
// handler runs and wherever the limiter is mounted: Use at the root, With,
// Group, inside Route or Mount, or wrapped around the router.
//
//	router := chi.NewRouter()
//	routes := chiroute.New(router)
//	limit, err := middleware.New(l, who, routes.Route, middleware.Config{})
//	...
//	router.Use(limit.Handler)
//	router.Get("/orders/{id}", order) // route "GET /orders/{id}"
//
// New gets the outermost router: a router that is mounted as a chi.Router shows
// its routes, one inside a plain http.Handler is one route, that of its mount.
// Middleware that rewrites paths or methods belongs outside the limiter, so that
// both look at the same request. So do CleanPath and StripSlashes beside a route
// such as "/*", which has the unclean path, too; without one trailing slashes and
// unclean paths need no care: the route without them counts.
//
// Used by a Group or With, a limiter sees only what chi has matched there: neither
// 404 nor 405 of other paths.
package chiroute

import (
	"net/http"
	"path"
	"slices"
	"sync"

	"github.com/go-chi/chi/v5"

	"github.com/ration-go/ration/keying"
)

// Router finds routes in a chi router. It is safe for concurrent use; the zero
// Router is not usable, see [New].
type Router struct {
	read     func() *level // reads the router anew
	tree     func() *level // what was read at the first request
	contexts sync.Pool     // of *chi.Context, for looking ahead
}

// New returns the routes of router, the outermost one: that which the server
// calls, or a limiter around it. Its routes may be registered later, until the
// first request. Like chi, it panics where there is no router at all.
func New(router chi.Routes) *Router {
	if router == nil {
		panic("chiroute: New of a nil router")
	}
	r := &Router{read: func() *level { return newLevel(router, nil) }}
	r.tree = sync.OnceValue(r.read)
	r.contexts.New = func() any { return chi.NewRouteContext() }
	return r
}

// Route returns the pattern that the request will be, or was, routed to. It is
// a keying.Route:
//
//	"GET /orders/{id}"  registered for GET; HEAD shares it, where chi's GetHead serves it
//	"/orders/{id}"      registered for all methods (Handle)
//	"/static/*"         all of what is mounted, where that is no chi router
//
// ok is false where the router has no such route (404) or not for this method
// (405). Behind With or Group, where chi knows the whole pattern, it costs no
// allocation; else the router's own look-up.
func (r *Router) Route(req *http.Request) (pattern string, ok bool) {
	if asked, ok := keying.Asked(req); ok {
		return asked, slices.Contains(r.Routes(), asked)
	}
	live := chi.RouteContext(req.Context())
	if live == nil {
		return r.ahead(r.tree(), req.Method, requestPath(req.URL.RawPath, req.URL.Path))
	}
	method := live.RouteMethod
	if method == "" {
		method = req.Method
	}
	here, last := r.tree().walk(live.RoutePatterns, method)
	switch {
	case here == nil:
		return last.route(method)
	case last == nil && live.RoutePath == "":
		return r.ahead(here, method, requestPath(req.URL.RawPath, req.URL.Path))
	default:
		return r.ahead(here, method, remainder(live, last))
	}
}

// requestPath returns the path that chi routes by, outside of sub-routers.
func requestPath(raw, decoded string) string {
	switch {
	case raw != "":
		return raw
	case decoded != "":
		return decoded
	default:
		return "/"
	}
}

// remainder returns the path that is left for the sub-router at last; nil is the
// root, whose path another middleware has set.
func remainder(live *chi.Context, last *entry) string {
	if last != nil && last.bare {
		return "/"
	}
	// Until the sub-router is entered, the rest is the value of the wildcard that
	// it is mounted on; then it is RoutePath, and the value is empty.
	if n := len(live.URLParams.Values) - 1; last != nil && n >= 0 && live.URLParams.Values[n] != "" {
		return "/" + live.URLParams.Values[n]
	}
	return requestPath(live.RoutePath, "")
}

// ahead looks the route up that the router at l will take. A path that has no
// route is tried as middleware further in may clean it, so that its spelling is
// no way to another account.
func (r *Router) ahead(l *level, method, p string) (string, bool) {
	pattern, ok := r.find(l, method, p)
	if !ok {
		if clean := path.Clean(p); clean != p {
			pattern, ok = r.find(l, method, clean)
		}
	}
	return pattern, ok
}

// find looks up HEAD as chi's GetHead does: GET where HEAD has no route.
func (r *Router) find(l *level, method, p string) (string, bool) {
	pattern, ok := r.findMethod(l, method, p)
	if !ok && method == http.MethodHead {
		return r.findMethod(l, http.MethodGet, p)
	}
	return pattern, ok
}

func (r *Router) findMethod(l *level, method, p string) (string, bool) {
	// The request's own context is never lent: a look-up writes to it.
	ctx := r.contexts.Get().(*chi.Context)
	defer r.contexts.Put(ctx)
	for {
		ctx.Reset()
		if l.router.Find(ctx, method, p) == "" {
			return "", false
		}
		sub, last := l.walk(ctx.RoutePatterns, method)
		if sub == nil {
			return last.route(method)
		}
		// chi stops at the bare path of a mounted router, which goes on at "/".
		if l, p = sub, "/"; last == nil || !last.bare {
			return "", false
		}
	}
}
