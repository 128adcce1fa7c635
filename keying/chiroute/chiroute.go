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
// the limiter and the router see the same request. Three of chi's own may also be
// inside: StripSlashes, CleanPath and GetHead. Pass them as they are to the Use of a
// router, each at most once. Router finds them there and follows what they do.
//
// Router cannot see the three in a Group, behind With, or wrapped in a function. It
// then charges the route of the path as it is. If there is none, it tries the path
// without its last slash, and then the clean path. For HEAD, it tries all of them
// again as GET. The first route found is charged, so a request that one of the three
// makes valid is not free. But the route charged may differ from the one that serves
// if both have a match: "//login" matches "/{org}/login", and its clean form
// "/login". Any other rewrite inside the limiter, such as URLFormat, can serve a
// request that is charged on another route or on none.
//
// A limiter in a Group or inside With sees only the requests that chi has matched
// there, and not those for other paths that get 404 or 405.
package chiroute

import (
	"net/http"
	"path"
	"reflect"
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

// New returns the routes of router. Pass the outermost router: the one that the
// server calls. If router is mounted in another, Route finds the whole pattern all
// the same, but [Router.Routes] lists the routes of router alone until the first
// request shows which router is outermost. Routes may be registered after New,
// until the first request. New panics if router is nil or a nil pointer.
func New(router chi.Routes) *Router {
	if router == nil {
		panic("chiroute: New: router is nil")
	}
	if v := reflect.ValueOf(router); v.Kind() == reflect.Pointer && v.IsNil() {
		panic("chiroute: New: router is a nil " + v.Type().String())
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
// false. There are three exceptions, since middleware further in may serve them:
// HEAD counts as GET (GetHead), "/x/" as "/x" (StripSlashes), and "//x" as "/x"
// (CleanPath). Without that middleware, such a request gets a 404 or 405 and still
// uses tokens of the route.
//
// Behind With or Group, when chi has matched the whole pattern, Route does not
// allocate; otherwise it costs one look-up in the router.
func (r *Router) Route(req *http.Request) (pattern string, ok bool) {
	if pattern, ok, probed := keying.Probed(req, r.Routes); probed {
		return pattern, ok
	}
	live := chi.RouteContext(req.Context())
	if live == nil {
		return r.ahead(search{req: req, outer: r.given, level: r.tree(), method: req.Method,
			path: urlPath(req)})
	}
	s := search{req: req, outer: live.Routes, method: live.RouteMethod, set: true}
	if s.method == "" {
		s.method = req.Method
	}
	if s.outer == nil { // the context was not made by a router
		s.outer = r.given
	}
	at := r.outermost(live).walkLive(live, req, s.method)
	s.level = at.level
	switch {
	case at.level == nil:
		return at.route, true
	case at.bare:
		s.path = "/"
	case len(live.RoutePatterns) > 0:
		s.path = remainder(live, req)
		s.noteRan(isStripped(strings.TrimPrefix(s.path, "/"), req.PathValue("*")), false)
	case live.RoutePath != "": // set by middleware
		s.path = live.RoutePath
		s.noteRan(isStripped(s.path, req.URL.Path) || isStripped(s.path, req.URL.RawPath),
			s.method == req.Method)
	default:
		s.path, s.set = urlPath(req), false
	}
	if pattern, ok = r.ahead(s); !ok && at.other != "" {
		return at.other, true
	}
	return pattern, ok
}

// isStripped reports whether path is original without its last slash.
func isStripped(path, original string) bool {
	return len(original) == len(path)+1 && strings.HasPrefix(original, path) &&
		original[len(path)] == '/'
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

// urlPath returns the path by which the outermost router routes, unless middleware
// sets another. It may be empty, which chi routes as "/".
func urlPath(req *http.Request) string {
	if req.URL.RawPath != "" {
		return req.URL.RawPath
	}
	return req.URL.Path
}

// remainder returns the path that is left for the router that chi has matched
// last. Before chi enters that router, this is the value of the wildcard; then
// it is RoutePath, and chi has emptied the value. If the value was empty from the
// start, RoutePath may still be the outer router's.
func remainder(live *chi.Context, req *http.Request) string {
	n := len(live.URLParams.Keys) - 1
	if n >= 0 && n < len(live.URLParams.Values) && live.URLParams.Values[n] != "" {
		return "/" + live.URLParams.Values[n]
	}
	if !strings.HasPrefix(live.RoutePath, "/") ||
		req.PathValue("*") == "" && isOuter(live.RoutePath, req) {
		return "/"
	}
	return live.RoutePath
}

// isOuter reports whether p is the path of a router that has matched all of it, up
// to a slash at its end. StripSlashes or CleanPath may have removed that slash.
func isOuter(p string, req *http.Request) bool {
	for _, whole := range [...]string{req.URL.Path, req.URL.RawPath} {
		if short, ok := strip(whole); ok && (strings.HasSuffix(short, p) || path.Clean(short) == p) {
			return true
		}
	}
	return strings.HasSuffix(p, "/")
}
