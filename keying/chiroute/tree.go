package chiroute

import (
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"
)

// level holds the routes of one router, by the patterns with which they are
// registered. An entry refers to the level of the router that is mounted there, so the
// patterns in a chi.Context lead to the route without being joined. Its size does not
// depend on what callers send. It is immutable.
type level struct {
	router  chi.Routes
	prefix  []string // the patterns that lead here
	entries map[string]*entry
	mounts  map[string]position // by "/api" and "/api/", for "/api/*"

	rewrites []rewrite // by the router's own middleware, in its order
	height   int       // the number of routers on the longest way down, itself included
}

// entry is one pattern of a router.
type entry struct {
	routes map[string]string // by method, for methods with a handler of their own
	below  *level            // the router mounted here; nil if there is none
}

// position is how far the patterns of a request lead.
type position struct {
	level *level // the router that decides next; nil at a handler
	bare  bool   // the rest of the path is "/"
	route string // of the handler
	other string // the route if level has none, when it is not known whether chi entered it
}

// newLevel reads the routes of a router that is mounted below prefix.
func newLevel(router chi.Routes, prefix []string) *level {
	l := &level{router: router, prefix: prefix, entries: map[string]*entry{},
		mounts: map[string]position{}, rewrites: rewritesOf(router.Middlewares()), height: 1}
	for _, route := range router.Routes() {
		e := l.entries[route.Pattern]
		if e == nil {
			e = &entry{routes: map[string]string{}}
			l.entries[route.Pattern] = e
		}
		e.add(route, l.full(route.Pattern))
		// Only the pattern of the mount has a handler for all methods.
		if route.SubRoutes != nil && route.Handlers["*"] != nil {
			e.below = newLevel(route.SubRoutes, append(slices.Clone(prefix), route.Pattern))
			l.height = max(l.height, 1+e.below.height)
		}
	}
	for pattern, e := range l.entries {
		if mount, ok := strings.CutSuffix(pattern, "/*"); ok {
			at := position{level: e.below, bare: true, route: l.full(pattern)}
			l.mounts[mount], l.mounts[mount+"/"] = at, at
		}
	}
	return l
}

// full returns the whole pattern of a route at this level, in chi's form.
func (l *level) full(pattern string) string {
	patterns := append(slices.Clone(l.prefix), pattern)
	return (&chi.Context{RoutePatterns: patterns}).RoutePattern()
}

// add records the route of each method that has a handler of its own.
func (e *entry) add(route chi.Route, full string) {
	all := route.Handlers["*"]
	for method, handler := range route.Handlers {
		switch {
		case method == "*":
		case all != nil && same(handler, all):
			e.routes[method] = full
		case method == http.MethodHead:
			e.routes[method] = http.MethodGet + " " + full
		default:
			e.routes[method] = method + " " + full
		}
	}
}

// has reports whether the method has a handler of its own at a pattern.
func (l *level) has(pattern, method string) bool {
	e := l.entries[pattern]
	return e != nil && e.routes[method] != ""
}

// same reports whether two handlers are of one registration: whether the
// interfaces hold the same words, which is what == of two reflect.Values
// compares. Functions made by one function differ, and so do copies of a value.
func same(a, b http.Handler) bool { return reflect.ValueOf(a) == reflect.ValueOf(b) }

// walkLive follows the patterns by which chi has routed a request so far. What a
// router inside a plain http.Handler adds to them is ignored.
func (l *level) walkLive(live *chi.Context, req *http.Request, method string) position {
	at := position{level: l}
	// The routers above the GetHead that made HEAD a GET have matched HEAD.
	changed := method == http.MethodGet && req.Method == http.MethodHead
	seen := false // a GetHead of a router so far
	star := -1
	for i, pattern := range live.RoutePatterns {
		star = nextStar(live, star, pattern)
		seen = seen || slices.Contains(at.level.rewrites, getHead)
		if changed {
			head := at.level.follow(pattern, http.MethodHead)
			last := i == len(live.RoutePatterns)-1
			entered := !last || !seen || req.PathValue("*") != ""
			switch {
			case head.level == nil:
				if !seen && at.level.has(pattern, http.MethodHead) {
					return head
				}
			case head.bare:
				// No mount has the path "/" itself.
				if pattern != "/" && (entered && !seen || live.RoutePath == "/") {
					if last && live.RoutePath != "/" && at.level.has(pattern, method) {
						head.other = at.level.follow(pattern, method).route
					}
					at = head
					continue
				}
			case entered && value(live, star) == "": // chi empties it when it enters a mount
				if last && req.PathValue("*") == "" && at.level.has(pattern, method) {
					head.other = at.level.follow(pattern, method).route
				}
				at = head
				continue
			}
		}
		if at = at.level.follow(pattern, method); at.level == nil {
			break
		}
	}
	return at
}

// nextStar returns the index of the parameter that holds what the wildcard at the
// end of pattern has matched, if last is that of the pattern before.
func nextStar(ctx *chi.Context, last int, pattern string) int {
	if !strings.HasSuffix(pattern, "*") {
		return last
	}
	for last++; last < len(ctx.URLParams.Keys) && ctx.URLParams.Keys[last] != "*"; {
		last++
	}
	return last
}

// value returns the value of the parameter at an index.
func value(ctx *chi.Context, index int) string {
	if index < 0 || index >= len(ctx.URLParams.Values) {
		return ""
	}
	return ctx.URLParams.Values[index]
}

// follow returns where chi goes on after this router has matched a pattern.
func (l *level) follow(pattern, method string) position {
	if e := l.entries[pattern]; e != nil {
		if route := e.routes[method]; route != "" {
			return position{route: route}
		}
		if e.below != nil {
			return position{level: e.below}
		}
	}
	// A pattern that chi does not list is the path of a mount itself. If the mount is
	// not listed either, since all its methods were registered again, its pattern is
	// the one route of all that it serves.
	if at, ok := l.mounts[pattern]; ok {
		return at
	}
	return position{route: l.full(strings.TrimSuffix(pattern, "/") + "/*")}
}

// Routes returns all routes that Route can find now, sorted, each once: for
// metrics that start at 0, and to compare with the Routes of budgets. It reads
// the router anew at every call.
func (r *Router) Routes() []string {
	router := r.given
	if outer := r.outer.Load(); outer != nil {
		router = outer
	}
	var routes []string
	newLevel(router, nil).each(func(route string) { routes = append(routes, route) })
	slices.Sort(routes)
	return slices.Compact(routes)
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
