package chiroute

import (
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"
)

// level is the routes of one router by the patterns that they are registered
// with. The levels of mounted routers hang below their entries, so that the
// patterns in a chi.Context lead to the route without joining them. It is as
// large as the router's own tree, whatever callers send, and immutable.
type level struct {
	router  chi.Routes
	entries map[string]*entry
}

// entry is one pattern of a router.
type entry struct {
	routes map[string]string // route by method
	below  *level            // the router mounted here; nil at a handler
	bare   bool              // the path of a mount itself, without a rest
}

// newLevel reads the routes of a router that is mounted below prefix.
func newLevel(router chi.Routes, prefix []string) *level {
	l := &level{router: router, entries: map[string]*entry{}}
	for _, route := range router.Routes() {
		patterns := append(slices.Clone(prefix), route.Pattern)
		e := l.at(route.Pattern)
		e.add(route, patterns)
		if route.SubRoutes != nil {
			e.below = newLevel(route.SubRoutes, patterns)
		}
	}
	for pattern, e := range maps.Clone(l.entries) {
		if mount, ok := strings.CutSuffix(pattern, "/*"); ok && mount != "" {
			l.at(mount).lead(e)
			l.at(mount + "/").lead(e)
		}
	}
	return l
}

// lead makes e, the path of a mount itself, lead to where the mount leads: chi
// keeps "/api" and "/api/" beside "/api/*" and does not list them.
func (e *entry) lead(mount *entry) {
	e.below, e.bare = mount.below, true
	if mount.below != nil {
		return
	}
	for method, route := range mount.routes {
		if e.routes[method] == "" {
			e.routes[method] = route
		}
	}
}

func (l *level) at(pattern string) *entry {
	e := l.entries[pattern]
	if e == nil {
		e = &entry{routes: map[string]string{}}
		l.entries[pattern] = e
	}
	return e
}

// add notes the route of each method that has a handler of its own.
func (e *entry) add(route chi.Route, patterns []string) {
	full := (&chi.Context{RoutePatterns: patterns}).RoutePattern()
	all := route.Handlers["*"]
	for method, handler := range route.Handlers {
		switch {
		case method == "*":
		case same(handler, all):
			e.routes[method] = full
		default:
			e.routes[method] = method + " " + full
		}
	}
	if e.routes[http.MethodHead] == "" {
		return
	}
	e.routes[http.MethodHead] = http.MethodGet + " " + full
	if get := e.routes[http.MethodGet]; get != "" {
		e.routes[http.MethodHead] = get
	}
}

// same reports whether a handler is the one registered for all methods. Where
// that cannot be told, it is: methods then share an account.
func same(handler, all http.Handler) bool {
	a, b := reflect.ValueOf(handler), reflect.ValueOf(all)
	switch {
	case all == nil || a.Type() != b.Type():
		return false
	case a.Kind() == reflect.Func:
		return a.Pointer() == b.Pointer()
	case a.Comparable() && b.Comparable():
		return handler == all
	default:
		return true
	}
}

// walk follows the patterns that a request was routed by so far. It returns the
// level at which routing goes on, or nil where it has ended, and the last entry:
// nil at the root, and for a pattern that is not in the tree.
func (l *level) walk(patterns []string, method string) (*level, *entry) {
	var e *entry
	for _, pattern := range patterns {
		if l == nil {
			break // a router inside a plain http.Handler: the mount is the route
		}
		if e = l.entries[pattern]; e == nil {
			return nil, nil
		}
		l = e.below
		if e.routes[method] != "" {
			l = nil
		}
	}
	return l, e
}

// route returns the route of a method at an entry; ok is false at no entry.
func (e *entry) route(method string) (pattern string, ok bool) {
	if e == nil {
		return "", false
	}
	pattern = e.routes[method]
	return pattern, pattern != ""
}

// Routes returns all routes that Route can find now, sorted, each once: for
// metrics that start at 0, and to compare with the Routes of budgets. It reads
// the router anew at every call.
func (r *Router) Routes() []string {
	seen := map[string]bool{}
	r.read().each(func(route string) { seen[route] = true })
	routes := make([]string, 0, len(seen))
	for route := range seen {
		routes = append(routes, route)
	}
	slices.Sort(routes)
	return routes
}

func (l *level) each(visit func(route string)) {
	for _, e := range l.entries {
		for _, route := range e.routes {
			visit(route)
		}
		if e.below != nil {
			e.below.each(visit)
		}
	}
}
