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
	compare(t, generator{Rand: rand.New(rand.NewPCG(1, 2))}, 1000, (*built).wrong)
}

// The same with StripSlashes, CleanPath and GetHead inside the limiters.
func TestRouter_FindsThePatternThatServesAfterRewrites(t *testing.T) {
	compare(t, generator{rand.New(rand.NewPCG(3, 4)), "Use"}, 2000, (*built).wrong)
}

// If the rewrites cannot be seen, the route that serves cannot be known. A request
// that was served is still charged, on a route that the router has.
func TestRouter_ChargesWhateverUnseenRewritesServe(t *testing.T) {
	free := func(_ *built, did run) bool {
		return did.served != "" && slices.Contains(did.found, keying.Unmatched)
	}
	compare(t, generator{rand.New(rand.NewPCG(5, 6)), "UseWrapped"}, 1000, free)
}

// compare sends random requests to random routers.
func compare(t *testing.T, g generator, routers int, wrong func(*built, run) bool) {
	const requests = 100
	served := 0
	for range routers {
		plan, b := g.router()
		for range requests {
			method, target := g.method(), g.target()
			did := b.serve(method, target)
			if did.served != "" {
				served++
			}
			if wrong(b, did) {
				plan = shrink(plan, func(b *built) bool { return wrong(b, b.serve(method, target)) })
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
	{"a dot before a parameter, and a slash that StripSlashes removes",
		[]step{use("StripSlashes"), {call: "POST", pattern: "/{org}/login"}},
		"POST", "/./login/", "POST /{org}/login"},
	{"an empty parameter, and a slash that StripSlashes removes",
		[]step{use("StripSlashes"), {call: "POST", pattern: "/{org}/login"}},
		"POST", "//login/", "POST /{org}/login"},
	{"two dots before a parameter, and a slash that StripSlashes removes",
		[]step{use("StripSlashes"), {call: "POST", pattern: "/{org}/login"}},
		"POST", "/../login/", "POST /{org}/login"},
	{"the same when StripSlashes cannot be seen",
		[]step{{call: "UseWrapped", pattern: "StripSlashes"}, {call: "POST", pattern: "/{org}/login"}},
		"POST", "/../login/", "POST /{org}/login"},
	{"one of two slashes",
		[]step{use("StripSlashes"), {call: "GET", pattern: "/b/"}}, "GET", "/b//", "GET /b"},
	{"a slash that StripSlashes removes from a path with a route",
		[]step{use("StripSlashes"), {call: "GET", pattern: "/b"}, {call: "Handle", pattern: "/b/"}},
		"GET", "/b/", "GET /b"},
	{"an escaped slash, which StripSlashes decodes",
		[]step{use("StripSlashes"), {call: "GET", pattern: "/a/b"}, {call: "GET", pattern: "/{p}/"}},
		"GET", "/a%2Fb/", "GET /a/b"},
	{"a path that CleanPath cleans, with a route before",
		[]step{use("CleanPath"), {call: "POST", pattern: "/login"}, {call: "POST", pattern: "/{org}/login"}},
		"POST", "//login", "POST /login"},
	{"HEAD of a path that CleanPath cleans, beside GET of the path before",
		[]step{use("CleanPath"), {call: "Handle", pattern: "/c"}, {call: "GET", pattern: "/c/"}},
		"HEAD", "/c/", "/c"},
	{"HEAD of a path that GetHead leaves to GET, beside all methods of the clean path",
		[]step{use("GetHead"), {call: "Handle", pattern: "/c"}, {call: "GET", pattern: "/c/"}},
		"HEAD", "/c/", "GET /c"},
	{"a slash for each router with StripSlashes",
		[]step{use("StripSlashes"), {call: "Route", pattern: "/a", below: []step{use("StripSlashes"),
			{call: "GET", pattern: "/b"}, {call: "GET", pattern: "/{p}/"}}}},
		"GET", "/a/b//", "GET /a/b"},
	{"HEAD of an inner router with GetHead, beside GET of the mount",
		[]step{{call: "Route", pattern: "/a", below: []step{use("GetHead"), use("limiter"),
			{call: "GET", pattern: "/b"}}}, {call: "GET", pattern: "/a/*"}},
		"HEAD", "/a/b", "GET /a/b"},
	{"HEAD of a handler beside a router without routes, when GetHead cannot be seen",
		[]step{{call: "UseWrapped", pattern: "GetHead"}, {call: "Route", pattern: "/"},
			{call: "GET", pattern: "/*", with: true}},
		"HEAD", "/", "GET /*"},
}

func use(middleware string) step { return step{call: "Use", pattern: middleware} }

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
