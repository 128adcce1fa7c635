package keying_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ration-go/ration/keying"
)

var patterns = []string{
	"GET /items/{id}", "POST /items", "/any/{id}", "GET /files/{rest...}", "GET /exact/{$}", "/tree/",
	"api.example.com/items/{id}", "GET api.example.com/only", "HEAD /head", "GET /both", "HEAD /both",
	"/deep/{x}/",
}

// The same requests around the mux and around each of its handlers.
var muxRequests = []struct {
	name, method, host, path string
	want                     string
	inner                    bool // a handler is reached, not a redirect, 404 or 405
}{
	{"wildcard", "GET", "", "/items/7", "GET /items/{id}", true},
	{"another-value", "GET", "", "/items/8?a=b", "GET /items/{id}", true},
	{"escaped-slash", "GET", "", "/items/a%2Fb", "GET /items/{id}", true},
	{"head-shares-get", "HEAD", "", "/items/7", "GET /items/{id}", true},
	{"head-beside-get", "HEAD", "", "/both", "GET /both", true},
	{"get-beside-head", "GET", "", "/both", "GET /both", true},
	{"head-alone", "HEAD", "", "/head", "GET /head", true},
	{"method", "POST", "", "/items", "POST /items", true},
	{"all-methods", "PATCH", "", "/any/7", "/any/{id}", true},
	{"options-on-all-methods", "OPTIONS", "", "/any/7", "/any/{id}", true},
	{"method-of-ones-own", "BREW", "", "/any/7", "/any/{id}", true},
	{"rest", "GET", "", "/files/a/b", "GET /files/{rest...}", true},
	{"exact", "GET", "", "/exact/", "GET /exact/{$}", true},
	{"tree", "GET", "", "/tree/a/b", "/tree/", true},
	{"host", "GET", "api.example.com", "/items/7", "api.example.com/items/{id}", true},
	{"host-and-port", "GET", "api.example.com:8080", "/items/7", "api.example.com/items/{id}", true},
	{"host-and-method", "GET", "api.example.com", "/only", "GET api.example.com/only", true},
	// The mux itself answers these.
	{"redirect-to-clean", "GET", "", "/items//7", "GET /items/{id}", false},
	{"redirect-dots", "GET", "", "/x/../items/7", "GET /items/{id}", false},
	{"redirect-to-slash", "GET", "", "/tree", "/tree/", false},
	{"redirect-to-exact", "GET", "", "/exact", "GET /exact/{$}", false},
	{"connect-redirect", "CONNECT", "", "/deep/chosen", "/deep/{x}/", false},
	{"connect", "CONNECT", "", "/deep/chosen/", "/deep/{x}/", true},
	{"connect-below-a-tree", "CONNECT", "", "/tree/secret", "/tree/", true},
	{"asterisk", "OPTIONS", "", "*", keying.Unmatched, false},
	{"below-exact", "GET", "", "/exact/7", keying.Unmatched, false},
	{"not-found", "GET", "", "/nothing", keying.Unmatched, false},
	{"method-not-allowed", "PUT", "", "/items/7", keying.Unmatched, false},
	{"method-in-lower-case", "get", "", "/items/7", keying.Unmatched, false},
	{"options-not-registered", "OPTIONS", "", "/items/7", keying.Unmatched, false},
	{"host-not-registered", "GET", "other.example.com", "/only", keying.Unmatched, false},
}

func TestMux_FindsThePatternAroundTheMux(t *testing.T) {
	mux := http.NewServeMux()
	for _, pattern := range patterns {
		mux.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) {})
	}
	for _, tt := range muxRequests {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, find(keying.Mux(mux), muxRequest(tt.method, tt.host, tt.path)))
		})
	}
}

func TestPattern_FindsThePatternAroundEachHandler(t *testing.T) {
	var found []string
	mux := http.NewServeMux()
	for _, pattern := range patterns {
		mux.HandleFunc(pattern, func(_ http.ResponseWriter, r *http.Request) {
			found = append(found, find(keying.Pattern, r), find(keying.Mux(mux), r))
		})
	}
	for _, tt := range muxRequests {
		t.Run(tt.name, func(t *testing.T) {
			found = nil
			mux.ServeHTTP(httptest.NewRecorder(), muxRequest(tt.method, tt.host, tt.path))
			if tt.inner {
				assert.Equal(t, []string{tt.want, tt.want}, found)
			} else {
				assert.Empty(t, found)
			}
		})
	}
}

func TestPattern_IsUnmatchedAroundTheMux(t *testing.T) {
	assert.Equal(t, keying.Unmatched, find(keying.Pattern, muxRequest("GET", "", "/items/7")))
}

func TestPattern_DoesNotAllocate(t *testing.T) {
	r := muxRequest("GET", "", "/items/7")
	r.Pattern = "GET /items/{id}"
	assert.Zero(t, testing.AllocsPerRun(100, func() { keying.Pattern(r) }))
}

func muxRequest(method, host, path string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Method, r.RequestURI = method, path
	if u, err := url.ParseRequestURI(path); err == nil {
		r.URL = u
	} else {
		r.URL = &url.URL{Path: path}
	}
	if host != "" {
		r.Host = host
	}
	return r
}

func find(route keying.Route, r *http.Request) string {
	pattern, ok := route(r)
	if !ok {
		return keying.Unmatched
	}
	return pattern
}

func TestRoute_RegisteredKnowsTheRoutesOfAMux(t *testing.T) {
	mux := http.NewServeMux()
	for _, pattern := range append(patterns, "GET /files/{x}", "/tree/{x}", "/a%2Fb", "/") {
		mux.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) {})
	}
	for _, pattern := range append(patterns, "GET /files/{x}", "/tree/{x}", "/a%2Fb", "/",
		"GET /head") {
		if pattern == "HEAD /head" || pattern == "HEAD /both" {
			continue // callers get GET's
		}
		registered, known, _ := keying.Mux(mux).Registered(pattern)
		assert.True(t, known)
		assert.True(t, registered, pattern)
	}
	for _, pattern := range []string{"/items/{id}", "GET /items/{other}", "GET /items/7", "/tree",
		"POST /any/{id}", "GET /exact/", "other.example.com/items/{id}", "nothing", "", " ", "GET ",
		"GET /%zz", "HEAD /head"} {
		registered, known, _ := keying.Mux(mux).Registered(pattern)
		assert.True(t, known)
		assert.False(t, registered, pattern)
	}
}

func TestRoute_RegisteredIsNotKnownToOthers(t *testing.T) {
	constant := keying.Route(func(*http.Request) (string, bool) { return "GET /a", true })
	_, known, _ := constant.Registered("/b")
	assert.False(t, known)
	prefixed := keying.Route(func(r *http.Request) (string, bool) {
		pattern, ok := keying.Mux(http.NewServeMux())(r)
		return "v2 " + pattern, ok
	})
	_, known, _ = prefixed.Registered("GET /a")
	assert.False(t, known)
	registered, _, _ := keying.Route(keying.Pattern).Registered("GET /a")
	assert.True(t, registered, "a limiter around single handlers does not know the others")
}

// Whatever method a caller gets through, as past a method override, is no probe.
func TestProbed_NoCallerProbes(t *testing.T) {
	_, _, probed := keying.Probed(muxRequest("?", "", "/items/7"), nil)
	assert.False(t, probed)
	mux := http.NewServeMux()
	mux.HandleFunc("/any/{id}", func(http.ResponseWriter, *http.Request) {})
	assert.Equal(t, "/any/{id}", find(keying.Mux(mux), muxRequest("?", "", "/any/7")))
	assert.Equal(t, keying.Unmatched, find(keying.Mux(mux), muxRequest("?", "", "/items/7")))
}

func TestRoute_RegisteredOutlivesAFinderThatPanics(t *testing.T) {
	_, known, _ := keying.Route(func(r *http.Request) (string, bool) {
		return r.Context().Value("route").(string), true
	}).Registered("GET /a")
	assert.False(t, known)
}

func TestRoute_RegisteredNamesTheRouteOfAMuxThatWasMeant(t *testing.T) {
	mux := http.NewServeMux()
	for _, pattern := range []string{"GET /orgs/{org}", "/upload", "GET /a", "POST /a", "GET  /spaces",
		"GET /exact/{$}", "GET h.example/only", "/tree/"} {
		mux.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) {})
	}
	for route, want := range map[string][]string{
		"GET /orgs/{org}/": {"GET /orgs/{org}"}, "POST /upload": {"/upload"},
		"/a": {"GET /a", "POST /a"}, "get /a": {"GET /a", "POST /a"}, "GET  /spaces": {"GET /spaces"},
		"GET /exact/": {"GET /exact/{$}"}, "h.example/only": {"GET h.example/only"},
		"GET /orgs/{id}": {"GET /orgs/{org}"}, "GET /tree/b": {"/tree/"}, "GET /nothing": nil,
	} {
		registered, known, nearest := keying.Mux(mux).Registered(route)
		assert.True(t, known)
		assert.False(t, registered)
		assert.Equal(t, want, nearest, route)
	}
}
