package chiroute_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"

	"github.com/ration-go/ration/keying/chiroute"
)

// step is one registration on a router, with those of a sub-router below it.
type step struct {
	// call is a method such as "GET", or "Handle", "Mount", "Route", "Group", "NotFound",
	// or "Use" or "UseWrapped" with the name of a middleware as pattern.
	call    string
	pattern string
	with    bool   // registered through With
	below   []step // of Route and Group
}

func (s step) String() string {
	text := fmt.Sprintf("%s(%q", s.call, s.pattern)
	if s.with {
		text = "With." + text
	}
	if s.below != nil {
		text += fmt.Sprintf(", %v", s.below)
	}
	return text + ")"
}

// run is what one request did: the routes that the limiters found, from the
// outermost to the innermost, and the route of the handler that ran.
type run struct {
	found  []string
	served string // "" if no registered handler ran
}

// built is a router with a limiter in every placement.
type built struct {
	handler http.Handler
	routes  *chiroute.Router
	mounts  map[string]bool // the routes of all mounts
	run     run
}

// tree is the router on which steps register: a Group has the tree of its parent.
type tree struct {
	chi.Router
	prefix  string
	mounted map[string]bool // by shape
}

func (t tree) on(r chi.Router) tree { return tree{r, t.prefix, t.mounted} }

func newTree(r chi.Router, prefix string) tree { return tree{r, prefix, map[string]bool{}} }

// mount notes a mount. It refuses a second one on one path, as chi does, which
// overlooks some.
func (b *built) mount(t tree, pattern string) string {
	path := strings.TrimSuffix(pattern, "/")
	shape := parameter.ReplaceAllString(path, "{}$1")
	if t.mounted[shape] {
		panic("mounted twice")
	}
	t.mounted[shape] = true
	b.mounts[t.prefix+path+"/*"] = true
	return t.prefix + path
}

var parameter = regexp.MustCompile(`{\w+(:[^}]*)?}`)

// build returns the router of a plan, or the path of indexes to the step that chi refused.
func build(plan []step) (b *built, refused []int) {
	router := chi.NewRouter()
	b = &built{routes: chiroute.New(router), mounts: map[string]bool{}}
	b.handler = probe(b.routes, &b.run.found)(router)
	router.Use(probe(b.routes, &b.run.found))
	return b, b.register(newTree(router, ""), plan)
}

// register returns the path to the step that chi refused; nil if there is none.
func (b *built) register(r tree, plan []step) (refused []int) {
	var at int
	var below []int
	defer func() {
		if recover() != nil {
			refused = append([]int{at}, below...)
		}
	}()
	for i, s := range plan {
		at, below = i, nil
		if below = b.apply(r, s); below != nil {
			return append([]int{at}, below...)
		}
	}
	return nil
}

func (b *built) apply(r tree, s step) (refused []int) {
	if s.with {
		r = r.on(r.With(probe(b.routes, &b.run.found)))
	}
	inner := func(below tree) {
		// The second limiter was made for the inner router, before that is mounted.
		below.Use(probe(b.routes, &b.run.found), probe(chiroute.New(below.Router), &b.run.found))
		refused = b.register(below, s.below)
	}
	handler := b.serves(s.call)
	switch s.call {
	case "Handle":
		r.Handle(s.pattern, handler)
	case "Mount":
		b.mount(r, s.pattern)
		r.Mount(s.pattern, handler)
	case "Route":
		prefix := b.mount(r, s.pattern)
		r.Route(s.pattern, func(sub chi.Router) { inner(newTree(sub, prefix)) })
	case "Group":
		r.Group(func(group chi.Router) { inner(r.on(group)) })
	case "Use":
		r.Use(b.middleware(s.pattern))
	case "UseWrapped":
		r.Use(wrapped(b.middleware(s.pattern)))
	case "NotFound":
		r.NotFound(func(http.ResponseWriter, *http.Request) {})
	default:
		r.Method(s.call, s.pattern, handler)
	}
	return refused
}

// middleware returns one that rewrites, or another limiter.
func (b *built) middleware(name string) wrap {
	switch name {
	case "StripSlashes":
		return chimiddleware.StripSlashes
	case "CleanPath":
		return chimiddleware.CleanPath
	case "GetHead":
		return chimiddleware.GetHead
	default:
		return probe(b.routes, &b.run.found)
	}
}

// wrapped returns a middleware that does the same as another and is not equal to it.
func wrapped(middleware wrap) wrap {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(middleware(next).ServeHTTP)
	}
}

// serves returns a handler that notes its route: the pattern that chi states, and
// the method with which it was registered. All are made here, and differ in nothing but
// what they refer to.
func (b *built) serves(call string) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) {
		// chi states "/a//*" for "/a/" if "/*" is registered below "/a".
		b.run.served = strings.ReplaceAll(chi.RouteContext(r.Context()).RoutePattern(), "//", "/")
		switch call {
		case "Handle":
		case "Mount":
			b.run.served = strings.TrimSuffix(strings.TrimSuffix(b.run.served, "/*"), "/") + "/*"
		case http.MethodHead:
			b.run.served = "GET " + b.run.served
		default:
			b.run.served = call + " " + b.run.served
		}
	}
}

// serve runs a request.
func (b *built) serve(method, target string) run {
	b.run = run{}
	b.handler.ServeHTTP(discard{}, request(method, target))
	return b.run
}

type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) WriteHeader(int)             {}

// request is what a server would make of the request line, and of some that none
// would let pass.
func request(method, target string) *http.Request {
	u, err := url.ParseRequestURI(target)
	if err != nil {
		u = &url.URL{Path: target}
	}
	return &http.Request{Method: method, URL: u, RequestURI: target, Host: "a.example",
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}}
}

// generator makes routers and requests.
type generator struct {
	*rand.Rand
	use string // "Use" or "UseWrapped": how rewrites are mounted; none if empty
}

func pick[T any](g generator, from ...T) T { return from[g.IntN(len(from))] }

var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE",
	"CONNECT", "QUERY"}

func (g generator) plan(depth int) []step {
	plan := make([]step, 1+g.IntN(5))
	for i := range plan {
		plan[i] = g.step(depth)
	}
	return plan
}

// rewrites mounts some of the middlewares that rewrite, each once, in any order. A
// limiter may follow them.
func (g generator) rewrites() (plan []step) {
	if g.use == "" || g.IntN(3) == 0 {
		return nil
	}
	names := []string{"StripSlashes", "CleanPath", "GetHead", "limiter"}
	for _, i := range g.Perm(len(names))[:1+g.IntN(len(names))] {
		plan = append(plan, step{call: g.use, pattern: names[i]})
	}
	return plan
}

func (g generator) step(depth int) step {
	s := step{call: pick(g, methods...), with: g.IntN(4) == 0}
	switch n := g.IntN(20); {
	case n < 5:
		s.call = "GET"
	case n < 8:
		s.call = "Handle"
	case n < 10:
		s.call = "Mount"
	case n < 14 && depth < 3:
		s.call = "Route"
	case n == 14 && depth < 3:
		s.call = "Group"
	case n == 15:
		s.call = "NotFound"
	}
	switch s.call {
	case "Route":
		s.below = append(g.rewrites(), g.plan(depth+1)...)
	case "Group":
		s.below = g.plan(depth + 1)
		if g.use == "UseWrapped" { // a Group hides them like a function around them
			s.below = append(g.rewrites(), s.below...)
		}
		return s
	case "NotFound":
		return s
	}
	s.pattern = g.pattern(s.call == "Route" || s.call == "Mount")
	return s
}

func (g generator) pattern(mount bool) string {
	var p strings.Builder
	for range g.IntN(3) {
		p.WriteString(pick(g, "/a", "/a", "/b", "/{p}", "/{q}", "/{p:[0-9]+}", "/{p:[a-z0-9]+}",
			"/a{p}", "/{p}.x"))
	}
	switch {
	case p.Len() == 0:
		p.WriteString("/")
	case g.IntN(4) == 0:
		p.WriteString("/")
	}
	if !mount && g.IntN(3) == 0 {
		return strings.TrimSuffix(p.String(), "/") + "/*"
	}
	return p.String()
}

func (g generator) method() string {
	if g.IntN(20) == 0 {
		return pick(g, "get", "PURGE", "", "PRI")
	}
	return pick(g, methods...)
}

func (g generator) target() string {
	if g.IntN(50) == 0 {
		return pick(g, "", "*", "a", "http://a.example", "http://a.example/a", "a.example:443")
	}
	var p strings.Builder
	for range 1 + g.IntN(4) {
		p.WriteString(pick(g, "/a", "/a", "/a", "/b", "/b", "/1", "/ab", "/1.x", "/", "/.", "/..",
			"/a%2Fb", "/%61", "/*", "/{p}", "/%2F", "/a%"))
	}
	if g.IntN(4) == 0 {
		p.WriteString("/")
	}
	return p.String()
}

// router returns a plan of which chi refuses nothing.
func (g generator) router() ([]step, *built) {
	plan := append(g.rewrites(), g.plan(0)...)
	for {
		b, refused := build(plan)
		if refused == nil {
			return plan, b
		}
		plan = without(plan, refused)
	}
}

// without returns the plan without the step at a path of indexes.
func without(plan []step, at []int) []step {
	plan = slices.Clone(plan)
	if len(at) == 1 {
		return slices.Delete(plan, at[0], at[0]+1)
	}
	plan[at[0]].below = without(plan[at[0]].below, at[1:])
	return plan
}

// steps returns the paths to all steps of a plan.
func steps(plan []step) (paths [][]int) {
	for i, s := range plan {
		paths = append(paths, []int{i})
		for _, below := range steps(s.below) {
			paths = append(paths, append([]int{i}, below...))
		}
	}
	return paths
}

// shrink returns the plan without the steps that a mismatch does not need.
func shrink(plan []step, fails func(*built) bool) []step {
	for again := true; again; {
		again = false
		for _, at := range steps(plan) {
			smaller := without(plan, at)
			if b, refused := build(smaller); refused == nil && fails(b) {
				plan, again = smaller, true
				break
			}
		}
	}
	return plan
}
