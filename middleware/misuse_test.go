package middleware_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/misuse"
	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/keying/chiroute"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
	"github.com/ration-go/ration/middleware"
)

// logged is a limiter that writes its warnings to a buffer.
func logged(t *testing.T, budgets ...limiter.Budget) (*limiter.Limiter, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	l, err := limiter.New(limiter.Must(memstore.New(memstore.Config{})), budgets,
		limiter.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	return l, &log
}

// codes returns the codes of the warnings, in order.
func codes(log *bytes.Buffer) []string {
	var found []string
	for _, field := range strings.Fields(log.String()) {
		if code, ok := strings.CutPrefix(field, "code="); ok {
			found = append(found, code)
		}
	}
	return found
}

// many is a budget that nobody uses up.
func many(routes ...string) limiter.Budget {
	return limiter.Budget{Name: "many", Scope: perRoute, Limit: limiter.PerHour(1e9), Routes: routes}
}

func noop(http.ResponseWriter, *http.Request) {}

// rewritesPath serves /old as /new, in place, as rewriters do.
func rewritesPath(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/old" {
			r.URL.Path = "/new"
		}
		next.ServeHTTP(w, r)
	})
}

// overridesMethod believes a header, in place, as method overrides do.
func overridesMethod(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if method := r.Header.Get("X-Http-Method-Override"); method != "" {
			r.Method = method
		}
		next.ServeHTTP(w, r)
	})
}

func TestMiddleware_LogsMisuseOnce(t *testing.T) {
	mux := http.NewServeMux()
	for _, pattern := range []string{"GET /items/{id}", "DELETE /items/{id}", "GET /old", "GET /new"} {
		mux.HandleFunc(pattern, noop)
	}
	router := chi.NewRouter()
	router.Route("/api", func(r chi.Router) { r.Get("/items/{id}", noop) })
	tests := []struct {
		name    string
		budget  limiter.Budget
		who     keying.Who
		route   keying.Route
		handler http.Handler
		method  string
		path    string
		user    string
		want    []string
	}{
		// The limiter cannot know any route.
		{"pattern-around-a-mux", many(), byUser, keying.Pattern, mux, "GET", "/items/7", "alice",
			[]string{"no-route"}},
		{"pattern-around-chi", many(), byUser, keying.Pattern, router, "GET", "/api/items/7", "alice",
			[]string{"no-route"}},
		{"another-mux", many(), byUser, keying.Mux(http.NewServeMux()), mux, "GET", "/items/7", "alice",
			[]string{"no-route"}},
		{"before-the-authentication", many(), byUser, keying.Mux(mux), mux, "GET", "/items/7", "",
			[]string{"no-principal"}},
		{"before-the-authentication-or-address", many(),
			keying.Authenticated(keying.OrAddress(keying.Addresses{})), keying.Mux(mux), mux,
			"GET", "/items/7", "", []string{"no-principal"}},
		{"path-rewriter-inside", many(), byUser, keying.Mux(mux), rewritesPath(mux), "GET", "/old",
			"alice", []string{"route-rewritten"}},
		{"method-override-inside", many(), byUser, keying.Mux(mux), overridesMethod(mux), "GET",
			"/items/7", "alice", []string{"route-rewritten"}},
		{"budget-on-an-unknown-route", many("GET /items", "GET /items/{id}"), byUser, keying.Mux(mux),
			mux, "GET", "/items/7", "alice", []string{"route-unknown"}},
		// All is well.
		{"no-budget-by-route", limiter.Budget{Name: "many", Scope: limiter.ByPrincipal,
			Limit: limiter.PerHour(1e9)}, byUser, keying.Pattern, mux, "GET", "/items/7", "alice", nil},
		{"mux", many("GET /items/{id}", "DELETE /items/{id}"), byUser, keying.Mux(mux), mux, "GET",
			"/items/7", "alice", nil},
		{"chi", many("GET /api/items/{id}"), byUser, chiroute.New(router).Route, router, "GET",
			"/api/items/7", "alice", nil},
		{"not-found-in-a-sub-router", many(), byUser, chiroute.New(router).Route, router, "GET",
			"/api/none", "alice", []string{"no-route"}}, // since no other request comes
		{"by-address", many(), byAddress, keying.Mux(mux), mux, "GET", "/items/7", "", nil},
		{"budget-for-no-route", many("unmatched"), byUser, keying.Mux(mux), mux, "GET", "/items/7",
			"alice", nil},
		{"rewritten-to-the-same-route", many(), byUser, keying.Mux(mux),
			http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { r.URL.Path = "/items/8" }),
			"GET", "/items/7", "alice", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l, log := logged(t, tt.budget)
			m, err := middleware.New(l, tt.who, tt.route, middleware.Config{})
			require.NoError(t, err)
			h := authenticate(m.Handler(tt.handler))
			for range 2*misuse.Patience + 1 {
				r := httptest.NewRequest(tt.method, tt.path, nil)
				r.Header.Set("X-Test-User", tt.user)
				r.Header.Set("X-Http-Method-Override", "DELETE")
				h.ServeHTTP(httptest.NewRecorder(), r)
			}
			assert.Equal(t, tt.want, codes(log), log)
		})
	}
}

// Behind a proxy that is not trusted, all callers are one.
func TestMiddleware_LogsAProxyThatIsNotTrusted(t *testing.T) {
	trusting := func(prefix string) keying.Who {
		return keying.ByAddress(keying.Addresses{Proxies: []netip.Prefix{netip.MustParsePrefix(prefix)}})
	}
	none := func(int) bool { return false }
	for _, tt := range []struct {
		name   string
		who    keying.Who
		direct func(n int) bool // requests that came without a proxy
		want   []string
	}{
		{"all through it", byAddress, none, []string{"proxy-unnamed"}},
		{"one of them not", byAddress, func(n int) bool { return n == 50 }, []string{"proxy-unnamed"}},
		{"the first and the last not", byAddress, func(n int) bool { return n%99 == 0 },
			[]string{"proxy-unnamed"}},
		{"most", byAddress, func(n int) bool { return n%2 == 0 && n > 0 }, []string{"proxy-unnamed"}},
		{"half", byAddress, func(n int) bool { return n%2 == 0 }, nil},
		{"late", byAddress, func(n int) bool { return n < 100 }, nil},
		{"another is trusted", trusting("198.51.100.0/24"), none, []string{"proxy-unnamed"}},
		{"it is trusted", trusting("192.0.2.0/24"), none, nil},
		{"principals", byUser, none, []string{"no-principal"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, log := logged(t, perHour(1e9))
			h := limiter.Must(middleware.New(l, tt.who, keying.Pattern, middleware.Config{})).Handler(
				http.HandlerFunc(noop))
			for n := range 3 * misuse.Patience {
				r := httptest.NewRequest("GET", "/", nil)
				if tt.direct(n) {
					r.RemoteAddr = "203.0.113.9:1"
				} else {
					r.Header.Set("X-Forwarded-For", "203.0.113.7")
				}
				h.ServeHTTP(httptest.NewRecorder(), r)
				if n < misuse.Patience-1 {
					require.Empty(t, codes(log))
				}
			}
			assert.Equal(t, tt.want, codes(log))
			if slices.Contains(tt.want, "proxy-unnamed") {
				assert.Contains(t, log.String(), "remote=192.0.2.1:1234")
			}
		})
	}
}

// One request by a trusted proxy shows that the proxies are configured.
func TestMiddleware_LogsNoProxyOnceOneWasTrusted(t *testing.T) {
	l, log := logged(t, perHour(1e9))
	h := limiter.Must(middleware.New(l, keying.ByAddress(keying.Addresses{
		Proxies: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")},
	}), keying.Pattern, middleware.Config{})).Handler(http.HandlerFunc(noop))
	for n := range 3 * misuse.Patience {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-Forwarded-For", "203.0.113.7")
		if n == misuse.Patience/2 {
			r.RemoteAddr = "198.51.100.1:1"
		}
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	assert.Empty(t, codes(log))
}

func TestMiddleware_LogsOnceATrustedProxyThatStatesNoCaller(t *testing.T) {
	addresses := keying.Addresses{Proxies: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")},
		UnixProxy: true, Header: "x-real-ip"}
	shared := addresses
	shared.Unknown = keying.OrShared()
	socket := context.WithValue(t.Context(), http.LocalAddrContextKey,
		&net.UnixAddr{Name: "s", Net: "unix"})
	for name, who := range map[string]keying.Who{
		"refused": keying.ByAddress(addresses), "shared": keying.ByAddress(shared),
		"authenticated": keying.Authenticated(keying.OrAddress(addresses)),
	} {
		for _, tt := range []struct {
			name, header, lines, remote string
			ctx                         context.Context
			want                        []string
		}{
			{"absent", "X-Other", "", "192.0.2.1:1", t.Context(), []string{"forwarded-missing"}},
			{"empty", "X-Real-Ip", "", "192.0.2.1:1", t.Context(), []string{"forwarded-missing"}},
			{"not-readable", "X-Real-Ip", "203.0.113.7, unknown", "192.0.2.1:1", t.Context(),
				[]string{"forwarded-missing"}},
			{"behind-another-proxy", "X-Real-Ip", "unknown, 192.0.2.7", "192.0.2.1:1", t.Context(),
				[]string{"forwarded-missing"}},
			{"another-header", "X-Forwarded-For", "203.0.113.7", "192.0.2.1:1", t.Context(),
				[]string{"forwarded-missing"}},
			{"unix", "X-Other", "", "@", socket, []string{"forwarded-missing"}},
			{"readable", "X-Real-Ip", "unknown, 203.0.113.7", "192.0.2.1:1", t.Context(), nil},
			{"readable-unix", "X-Real-Ip", "203.0.113.7", "@", socket, nil},
			{"of-the-proxies-themselves", "X-Real-Ip", "192.0.2.7", "192.0.2.1:1", t.Context(), nil},
			{"not-trusted", "X-Other", "", "203.0.113.9:1", t.Context(), nil},
		} {
			t.Run(name+"/"+tt.name, func(t *testing.T) {
				l, log := logged(t, perHour(1e9))
				h := limiter.Must(middleware.New(l, who, keying.Pattern, middleware.Config{})).Handler(
					http.HandlerFunc(noop))
				for range misuse.Patience / 2 {
					r := httptest.NewRequest("GET", "/", nil).WithContext(tt.ctx)
					r.Header.Set(tt.header, tt.lines)
					r.RemoteAddr = tt.remote
					h.ServeHTTP(httptest.NewRecorder(), r)
				}
				assert.Equal(t, tt.want, codes(log))
				if tt.want != nil {
					assert.Contains(t, log.String(), "header=X-Real-Ip remote="+tt.remote)
				}
			})
		}
	}
}

// Watching costs nothing once the first requests were seen.
func TestMiddleware_AllocatesNoMoreToWatchProxies(t *testing.T) {
	for name, tt := range map[string]struct {
		addresses keying.Addresses
		remote    string
		most      float64 // the text that names the address, and a func that reads the header
	}{
		"no-proxies": {keying.Addresses{}, "203.0.113.9:1", 1},
		"proxies": {keying.Addresses{Proxies: []netip.Prefix{
			netip.MustParsePrefix("192.0.2.0/24")}}, "192.0.2.1:1", 2},
	} {
		l, _ := logged(t, perHour(1e9))
		h := limiter.Must(middleware.New(l, keying.ByAddress(tt.addresses), keying.Pattern,
			middleware.Config{Headers: middleware.Off})).Handler(http.HandlerFunc(noop))
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = tt.remote
		r.Header.Set("X-Forwarded-For", "203.0.113.7")
		w := httptest.NewRecorder()
		for range 2 * misuse.Patience {
			h.ServeHTTP(w, r)
		}
		assert.LessOrEqual(t, allocations(func() { h.ServeHTTP(w, r) }), tt.most, name)
	}
}

// One request that is in order shows that the place is right.
func TestMiddleware_LogsNothingOnceARequestWasInOrder(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /items/{id}", noop)
	l, log := logged(t, many())
	m := limiter.Must(middleware.New(l, byUser, keying.Mux(mux), middleware.Config{}))
	h := authenticate(m.Handler(mux))
	for i := range 3 * misuse.Patience {
		r := httptest.NewRequest("GET", "/scan", nil)
		if i == misuse.Patience/2 {
			r = get("/items/7", "alice")()
		}
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	assert.Empty(t, log.String())
}

func TestMiddleware_NamesTheRoutesThatAreUnknown(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /items/{id}", noop)
	l, log := logged(t, many("GET /item/{id}", "GET /items/{id}"))
	m := limiter.Must(middleware.New(l, byUser, keying.Mux(mux), middleware.Config{}))
	m.Handler(mux).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	assert.Contains(t, log.String(), `see=https://github.com/ration-go/ration#warnings`)
	assert.Contains(t, log.String(), `Budget \"many\".Routes[0] = \"GET /item/{id}\": `+
		`want a route that the router has`)
}

func TestNew_RefusesABudgetOnARouteThatNoRequestHas(t *testing.T) {
	l, _ := logged(t, many("GET /a", "HEAD /a"))
	_, err := middleware.New(l, byUser, keying.Pattern, middleware.Config{})
	var config *limiter.ConfigError
	require.ErrorAs(t, err, &config)
	assert.Equal(t, `Budget "many".Routes[1]`, config.Field)
	assert.Equal(t, "HEAD /a", config.Value)
}

func TestMiddleware_WarnsOfNothingWhatChiDoesItself(t *testing.T) {
	router := chi.NewRouter()
	l, log := logged(t, many())
	m := limiter.Must(middleware.New(l, byUser, chiroute.New(router).Route, middleware.Config{}))
	router.Use(authenticate, m.Handler, chimiddleware.StripSlashes, chimiddleware.GetHead,
		chimiddleware.CleanPath)
	router.Route("/api", func(r chi.Router) { r.Get("/items/{id}", noop) })
	for _, path := range []string{"/api/items/7", "/api/items/7/", "/api//items/7", "/api/none"} {
		for _, method := range []string{"GET", "HEAD", "POST"} {
			r := get(path, "alice")()
			r.Method = method
			router.ServeHTTP(httptest.NewRecorder(), r)
		}
	}
	assert.Empty(t, log.String())
}

// A preflight that arrives at the limiter was answered by no CORS middleware.
func TestMiddleware_LogsAPreflightOnce(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /items/{id}", noop)
	for _, tt := range []struct {
		name                   string
		around                 func(http.Handler) http.Handler
		cfg                    middleware.Config
		method, origin, asksOf string
		want                   []string
	}{
		{"charged, then refused", same, middleware.Config{}, "OPTIONS", "https://a", "GET",
			[]string{"cors-inside"}},
		{"answered by CORS", cors, middleware.Config{}, "OPTIONS", "https://a", "GET", nil},
		{"skipped by the service", same, middleware.Config{
			Skip: func(r *http.Request) bool { return r.Method == "OPTIONS" },
		}, "OPTIONS", "https://a", "GET", nil},
		{"not from a page", same, middleware.Config{}, "OPTIONS", "", "GET", nil},
		{"for no method", same, middleware.Config{}, "OPTIONS", "https://a", "", nil},
		{"no OPTIONS", same, middleware.Config{}, "GET", "https://a", "GET", nil},
	} {
		l, log := logged(t, perHour(2))
		m := limiter.Must(middleware.New(l, byAddress, keying.Mux(mux), tt.cfg))
		h := tt.around(m.Handler(mux))
		for range 5 {
			r := httptest.NewRequest(tt.method, "/items/7", nil)
			r.Header.Set("Origin", tt.origin)
			r.Header.Set("Access-Control-Request-Method", tt.asksOf)
			h.ServeHTTP(httptest.NewRecorder(), r)
		}
		assert.Equal(t, tt.want, codes(log), tt.name)
		if tt.want != nil {
			assert.Contains(t, log.String(), `msg="a CORS preflight was charged or refused: `)
			assert.Contains(t, log.String(), "route=unmatched")
		}
	}
}

func same(h http.Handler) http.Handler { return h }

// upgrading is a handler that begins HTTP/2 on a connection as those of h2c do:
// from then on no request of it would pass the limiter.
func upgrading(began *bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		preface := r.Method == "PRI" && len(r.Header) == 0 && r.URL.Path == "*" && r.Proto == "HTTP/2.0"
		upgrade := r.Header.Get("Upgrade") == "h2c" && len(r.Header["Http2-Settings"]) == 1
		*began = *began || preface || upgrade
		w.WriteHeader(http.StatusNoContent)
	})
}

func TestMiddleware_NoHandlerInsideBeginsHTTP2(t *testing.T) {
	const upgrade = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\n" +
		"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"
	for request, status := range map[string]int{
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n": http.StatusHTTPVersionNotSupported,
		upgrade:                            http.StatusNoContent,
	} {
		for _, skip := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/skip=%t", strings.Fields(request)[0], skip), func(t *testing.T) {
				l, log := logged(t, limiter.Budget{Name: "all", Limit: limiter.PerHour(100)})
				m := limiter.Must(middleware.New(l, byAddress, keying.Pattern, middleware.Config{
					Skip: func(*http.Request) bool { return skip },
				}))
				var began bool
				server := serve(t, m.Handler(upgrading(&began)))
				for range 2 {
					assert.Equal(t, status, send(t, server, request))
				}
				assert.False(t, began)
				assert.Equal(t, []string{"h2c-inside"}, codes(log))
			})
		}
	}
	// The same, without a limiter in front: the handler would begin it.
	var began bool
	send(t, serve(t, upgrading(&began)), upgrade)
	assert.True(t, began)
}

// send writes a request as it is and returns the status of the answer.
func send(t *testing.T, server *httptest.Server, request string) int {
	t.Helper()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = conn.Write([]byte(request))
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode
}
