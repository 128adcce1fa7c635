package chiroute_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/keying"
)

// wrong reports whether a limiter found another route than the one that served.
//
// A request that no registered handler served is Unmatched, or counts on a route
// that the router has: callers cannot name accounts. If chi does not list the
// route that served, the request counts on the mount that leads there.
func (b *built) wrong(did run) bool {
	return slices.ContainsFunc(did.found, func(found string) bool {
		switch {
		case found == did.served:
			return false
		case did.served == "":
			return found != keying.Unmatched && !b.mounts[found] && !b.lists(found)
		default:
			return !b.mounts[found] || b.lists(did.served)
		}
	})
}

func (b *built) lists(route string) bool { return slices.Contains(b.routes.Routes(), route) }

// The route charged is the pattern that serves: random requests to random routers,
// with limiters in all placements at once.
func TestRouter_FindsThePatternThatServes(t *testing.T) {
	const routers, requests = 1000, 100
	g := generator{rand.New(rand.NewPCG(1, 2))}
	served := 0
	for range routers {
		plan, b := g.router()
		for range requests {
			method, target := g.method(), g.target()
			did := b.serve(method, target)
			if did.served != "" {
				served++
			}
			if b.wrong(did) {
				plan = shrink(plan, func(b *built) bool { return b.wrong(b.serve(method, target)) })
				b, _ = build(plan)
				did = b.serve(method, target)
				t.Errorf("%s %q: found %q, served %q, by %v", method, target, did.found, did.served, plan)
				break
			}
		}
	}
	assert.Greater(t, served, routers*requests/10, "too few requests reach a handler")
}

// Routers on which a limiter once found another route than the one that served,
// with as few routes as show it.
var once = []struct {
	name           string
	plan           []step
	method, target string
	want           string
}{
	{"a handler for one method beside a router",
		[]step{{call: "Route", pattern: "/hooks", below: []step{{call: "GET", pattern: "/list"}}},
			{call: "POST", pattern: "/hooks/*"}},
		"POST", "/hooks/github", "POST /hooks/*"},
	{"a handler for OPTIONS beside a router",
		[]step{{call: "Route", pattern: "/api", below: []step{{call: "GET", pattern: "/list"}}},
			{call: "OPTIONS", pattern: "/api/*"}},
		"OPTIONS", "/api/list", "OPTIONS /api/*"},
	{"a handler beside a router, its parameter of another name",
		[]step{{call: "Route", pattern: "/{a}", below: []step{{call: "GET", pattern: "/list"}}},
			{call: "OPTIONS", pattern: "/{b}/*"}},
		"OPTIONS", "/v1/list", "OPTIONS /{b}/*"},
	{"a handler beside a router without routes",
		[]step{{call: "Route", pattern: "/"}, {call: "GET", pattern: "/*"}},
		"GET", "/a/b", "GET /*"},
	{"a handler for all methods in place of a router",
		[]step{{call: "Route", pattern: "/a", below: []step{{call: "GET", pattern: "/b"}}},
			{call: "Handle", pattern: "/a/*"}},
		"GET", "/a/c", "/a/*"},
	{"the path of a router whose routes a handler hides, which chi does not list",
		[]step{{call: "Route", pattern: "/{a}", below: []step{{call: "GET", pattern: "/"}}},
			{call: "Handle", pattern: "/{b}/*"}},
		"GET", "/x", "/{a}/*"},
	{"HEAD of a handler for all methods, beside GET",
		[]step{{call: "Handle", pattern: "/x"}, {call: "GET", pattern: "/x"}}, "HEAD", "/x", "/x"},
	{"GET beside a handler for all methods that the same function made",
		[]step{{call: "Handle", pattern: "/x"}, {call: "GET", pattern: "/x"}}, "GET", "/x", "GET /x"},
	{"HEAD of a mounted handler, beside GET",
		[]step{{call: "Mount", pattern: "/"}, {call: "GET", pattern: "/*"}}, "HEAD", "/a", "/*"},
	{"the path of a mounted handler itself, beside GET of what is below",
		[]step{{call: "Mount", pattern: "/a"}, {call: "GET", pattern: "/a/*"}}, "GET", "/a", "/a/*"},
	{"the path of a router that is mounted with a slash, before chi enters it",
		[]step{{call: "Route", pattern: "/a", below: []step{{call: "Route", pattern: "/b/", with: true,
			below: []step{{call: "GET", pattern: "/"}, {call: "GET", pattern: "/b/"}}}}}},
		"GET", "/a/b/", "GET /a/b"},
	{"a limiter for the inner router",
		[]step{{call: "Route", pattern: "/v1", below: []step{{call: "GET", pattern: "/list"}}}},
		"GET", "/v1/list", "GET /v1/list"},
}

func TestRouter_FindsThePatternWhereItOnceDidNot(t *testing.T) {
	for _, tt := range once {
		t.Run(tt.name, func(t *testing.T) {
			b, refused := build(tt.plan)
			require.Nil(t, refused)
			did := b.serve(tt.method, tt.target)
			assert.NotEmpty(t, did.served)
			for _, found := range did.found {
				assert.Equal(t, tt.want, found)
			}
		})
	}
}
