package middleware_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/keying/chiroute"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/middleware"
)

const denied = `429 Too Many Requests
Cache-Control: no-store
Content-Type: application/problem+json
Ratelimit: "orders";r=0;t=6
Ratelimit-Policy: "orders";q=2;w=12
Retry-After: 6

{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",` +
	`"title":"Quota Exceeded","status":429,"violated-policies":["orders"]}
`

// routers serve "GET /orders/{id}" behind the limiter, each in another way.
var routers = map[string]func(t *testing.T, f *fixture, order http.Handler) http.Handler{
	"chi": func(t *testing.T, f *fixture, order http.Handler) http.Handler {
		router := chi.NewRouter()
		routes := chiroute.New(router)
		router.Use(authenticate, f.middleware(t, byUser, routes.Route, middleware.Config{}))
		router.Method("GET", "/orders/{id}", order)
		router.Method("HEAD", "/orders/{id}", order)
		return router
	},
	"around-a-standard-mux": func(t *testing.T, f *fixture, order http.Handler) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("GET /orders/{id}", order)
		limit := f.middleware(t, byUser, keying.Mux(mux), middleware.Config{})
		return authenticate(limit(mux))
	},
	"handler-of-a-standard-mux": func(t *testing.T, f *fixture, order http.Handler) http.Handler {
		mux := http.NewServeMux()
		limit := f.middleware(t, byUser, keying.Pattern, middleware.Config{})
		mux.Handle("GET /orders/{id}", limit(order))
		return authenticate(mux)
	},
}

func TestMiddleware_AnswersAfterTheBudgetAndItsWait(t *testing.T) {
	for name, build := range routers {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, limiter.Budget{Name: "orders", Scope: perRoute,
				Limit: limiter.Limit{Tokens: 10, Per: time.Minute, Burst: 2}})
			var ran atomic.Int64
			server := serve(t, build(t, f, http.HandlerFunc(
				func(w http.ResponseWriter, _ *http.Request) {
					ran.Add(1)
					_, _ = io.WriteString(w, "secret")
				})))
			for _, left := range []string{"1", "0"} {
				resp, body := exchange(t, server, "GET", "/orders/7", "alice")
				assert.Equal(t, "200 OK\nContent-Type: text/plain; charset=utf-8\n"+
					"Ratelimit: \"orders\";r="+left+";t=6\n"+
					"Ratelimit-Policy: \"orders\";q=2;w=12\n\nsecret", golden(resp, body))
			}
			f.move(time.Second / 2) // the wait is 5.5 s
			resp, body := exchange(t, server, "GET", "/orders/8", "alice")
			assert.Equal(t, denied, golden(resp, body))
			assert.EqualValues(t, 2, ran.Load(), "a refused request must not run")

			resp, body = exchange(t, server, "HEAD", "/orders/8", "alice")
			assert.Equal(t, 429, resp.StatusCode)
			assert.Equal(t, "6", resp.Header.Get("Retry-After"))
			assert.Empty(t, body)

			resp, _ = exchange(t, server, "GET", "/orders/8", "bob")
			assert.Equal(t, 200, resp.StatusCode, "another user")

			f.move(6 * time.Second)
			resp, _ = exchange(t, server, "GET", "/orders/8", "alice")
			assert.Equal(t, 200, resp.StatusCode, "after Retry-After")

			const route = "http GET /orders/{id} "
			assert.Equal(t, []string{route + "allow", route + "allow", route + "deny",
				route + "deny", route + "allow", route + "allow"}, f.seen.take())
		})
	}
}

func TestMiddleware_ResponseWriterIsNotWrapped(t *testing.T) {
	f := newFixture(t, limiter.Budget{Name: "all", Limit: limiter.PerSecond(9)})
	limit := f.middleware(t, byAddress, keying.Pattern, middleware.Config{})
	w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
	limit(http.HandlerFunc(func(got http.ResponseWriter, req *http.Request) {
		assert.Same(t, w, got)
		assert.Same(t, r, req)
	})).ServeHTTP(w, r)
	assert.Empty(t, w.Header())
}

func TestMiddleware_ACostAboveTheCapacityIsNeverAllowed(t *testing.T) {
	f := newFixture(t, limiter.Budget{Name: "orders", Scope: perRoute, Limit: limiter.PerSecond(5)})
	var cost int64
	server := serve(t, f.middleware(t, byAddress, keying.Pattern, middleware.Config{
		Cost: func(*http.Request) int64 { return cost },
	})(http.NotFoundHandler()))

	cost = 6
	resp, body := exchange(t, server, "GET", "/", "")
	assert.Equal(t, `429 Too Many Requests
Cache-Control: no-store
Content-Type: application/problem+json
Ratelimit: "orders";r=5
Ratelimit-Policy: "orders";q=5;w=1

{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",`+
		`"title":"Quota Exceeded","status":429,"violated-policies":["orders"],`+
		`"detail":"The request costs more than the limit ever allows."}
`, golden(resp, body))
	cost = 5
	resp, _ = exchange(t, server, "GET", "/", "")
	assert.Equal(t, 404, resp.StatusCode, "nothing was taken for the refused one")
	cost = -1
	resp, body = exchange(t, server, "GET", "/", "")
	assert.Equal(t, 500, resp.StatusCode)
	assert.Equal(t, "{\"title\":\"Internal Server Error\",\"status\":500}\n", body)
	cost = 0
	resp, _ = exchange(t, server, "GET", "/", "")
	assert.Equal(t, 404, resp.StatusCode, "free, also with nothing left")
	assert.Equal(t, []string{"http unmatched never", "http unmatched allow",
		"http unmatched error_closed", "http unmatched allow"}, f.seen.take())
}

func TestMiddleware_NamesOnlyTheCallersOwnBudgets(t *testing.T) {
	f := newFixture(t, limiter.Budget{Name: "everybody", Limit: limiter.PerSecond(1)})
	server := serve(t, f.middleware(t, byAddress, keying.Pattern, middleware.Config{})(
		http.NotFoundHandler()))
	exchange(t, server, "GET", "/", "")
	resp, body := exchange(t, server, "GET", "/", "")
	assert.Equal(t, 429, resp.StatusCode)
	assert.Contains(t, body, `"violated-policies":[]`)
	assert.NotContains(t, body, "everybody")
}

func TestMiddleware_NobodyIsAskedForCredentials(t *testing.T) {
	f := newFixture(t, limiter.Budget{Name: "orders", Scope: perRoute, Limit: limiter.PerSecond(1)})
	handler := f.middleware(t, byUser, keying.Pattern, middleware.Config{})(http.NotFoundHandler())
	resp, body := exchange(t, serve(t, handler), "GET", "/", "")
	assert.Equal(t, `401 Unauthorized
Cache-Control: no-store
Content-Type: application/problem+json
Www-Authenticate: Bearer realm="api"

{"title":"Unauthorized","status":401}
`, golden(resp, body))
	assert.Equal(t, []string{"http unmatched unauthenticated"}, f.seen.take())
}

func TestMiddleware_NobodyWithoutAChallengeIsForbidden(t *testing.T) {
	f := newFixture(t, limiter.Budget{Name: "orders", Scope: perRoute, Limit: limiter.PerSecond(1)})
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "@"
	w := httptest.NewRecorder()
	f.middleware(t, byAddress, keying.Pattern, middleware.Config{})(
		http.NotFoundHandler()).ServeHTTP(w, r)
	assert.Equal(t, 403, w.Code)
	assert.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	assert.NotContains(t, w.Header(), "Www-Authenticate")
	assert.Equal(t, []string{"http unmatched unauthenticated"}, f.seen.take())
}

func TestMiddleware_ARefusalKeepsHeadersThatDoNotSpeakOfItsBody(t *testing.T) {
	f := newFixture(t, limiter.Budget{Name: "orders", Scope: perRoute, Limit: limiter.PerSecond(1)})
	limit := f.middleware(t, byAddress, keying.Pattern, middleware.Config{
		Cost: func(*http.Request) int64 { return 2 },
	})(http.NotFoundHandler())
	resp, body := exchange(t, serve(t, http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			h := w.Header()
			h.Set("Access-Control-Allow-Origin", "https://example.com")
			h.Set("Access-Control-Expose-Headers", "Retry-After")
			h.Set("Vary", "Origin")
			h.Set("X-Request-Id", "7")
			h.Set("Content-Type", "text/html")
			h.Set("Content-Length", "1")
			h.Set("Content-Encoding", "gzip")
			h.Set("ETag", `"x"`)
			h.Set("Last-Modified", "Mon, 30 Nov 2026 12:00:00 GMT")
			h.Set("Expires", "Mon, 30 Nov 2026 12:00:00 GMT")
			h.Set("Cache-Control", "public, max-age=60")
			h.Set("CDN-Cache-Control", "max-age=60")
			h.Set("Retry-After", "1")
			limit.ServeHTTP(w, r)
		})), "GET", "/", "")
	head, _, _ := strings.Cut(golden(resp, body), "\n\n")
	assert.Equal(t, `429 Too Many Requests
Access-Control-Allow-Origin: https://example.com
Access-Control-Expose-Headers: Retry-After
Cache-Control: no-store
Content-Type: application/problem+json
Ratelimit: "orders";r=1
Ratelimit-Policy: "orders";q=1;w=1
Vary: Origin
X-Request-Id: 7`, head)
}

func TestMiddleware_SkippedRequestsAreFreeAndCounted(t *testing.T) {
	f := newFixture(t, limiter.Budget{Name: "orders", Scope: perRoute, Limit: limiter.PerHour(1)})
	server := serve(t, f.middleware(t, byUser, keying.Pattern, middleware.Config{
		Skip: func(r *http.Request) bool { return r.URL.Path == "/healthz" },
	})(http.NotFoundHandler()))
	for range 3 {
		resp, _ := exchange(t, server, "GET", "/healthz", "")
		assert.Equal(t, 404, resp.StatusCode)
	}
	assert.Equal(t, []string{"http unmatched skipped", "http unmatched skipped",
		"http unmatched skipped"}, f.seen.take())
}

// failing is a store that cannot decide.
type failing struct {
	limiter.Store
	err error
}

func (f failing) Check(limiter.Limit) error { return nil }
func (f failing) Take(context.Context, []limiter.Charge) (limiter.Decision, error) {
	return limiter.Decision{}, f.err
}

// denying is a store that asks for one wait.
type denying struct {
	limiter.Store
	wait time.Duration
}

func (d denying) Check(limiter.Limit) error { return nil }
func (d denying) Take(context.Context, []limiter.Charge) (limiter.Decision, error) {
	return limiter.Decision{Outcome: limiter.Deny, Budget: "orders", RetryAfter: d.wait}, nil
}

func TestMiddleware_RetryAfterIsWholeSecondsRoundedUp(t *testing.T) {
	for wait, want := range map[time.Duration]string{
		0: "1", 1: "1", time.Second: "1", time.Second + 1: "2", 90 * time.Second: "90",
		100 * 365 * 24 * time.Hour: "2147483647",
	} {
		l, err := limiter.New(denying{wait: wait}, []limiter.Budget{{
			Name: "orders", Scope: perRoute, Limit: limiter.PerSecond(1), OnError: limiter.Closed,
		}}, limiter.Config{})
		require.NoError(t, err)
		m, err := middleware.New(l, byAddress, keying.Pattern, middleware.Config{})
		require.NoError(t, err)
		w := httptest.NewRecorder()
		m.Handler(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest("HEAD", "/", nil))
		assert.Equal(t, []string{want}, w.Header().Values("Retry-After"), wait)
		assert.Empty(t, w.Body.String(), "HEAD")
	}
}

func TestMiddleware_AnswersByThePolicyWhenTheStoreFails(t *testing.T) {
	secret := errors.New("dial tcp 10.1.2.3:6379: password hunter2")
	tests := []struct {
		name   string
		policy limiter.FailurePolicy
		status int
		retry  string
		answer string
	}{
		{"open", limiter.Open, 404, "", "error_open"},
		{"closed", limiter.Closed, 503, "1", "error_closed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := &fixture{seen: &seen{}}
			var err error
			f.limiter, err = limiter.New(failing{err: secret}, []limiter.Budget{{
				Name: "orders", Scope: perRoute, Limit: limiter.PerSecond(1), OnError: tt.policy,
			}}, limiter.Config{Observer: f.seen.observer()})
			require.NoError(t, err)
			resp, body := exchange(t, serve(t, f.middleware(t, byAddress, keying.Pattern,
				middleware.Config{})(http.NotFoundHandler())), "GET", "/", "")
			assert.Equal(t, tt.status, resp.StatusCode)
			assert.Equal(t, tt.retry, resp.Header.Get("Retry-After"))
			assert.NotContains(t, body, "hunter2")
			assert.Equal(t, []string{"http unmatched " + tt.answer}, f.seen.take())
		})
	}
}

func TestMiddleware_ACallerThatHasGoneIsNotServed(t *testing.T) {
	f := newFixture(t, limiter.Budget{Name: "orders", Scope: perRoute, Limit: limiter.PerSecond(1)})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := httptest.NewRecorder()
	limit := f.middleware(t, byAddress, keying.Pattern, middleware.Config{})
	limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("the handler ran")
	})).ServeHTTP(w, httptest.NewRequest("GET", "/", nil).WithContext(ctx))
	assert.Equal(t, 503, w.Code)
	assert.Equal(t, []string{"http unmatched canceled"}, f.seen.take())
}

func TestMiddleware_RandomPathsShareOneAccountAndOneLabel(t *testing.T) {
	f := newFixture(t, limiter.Budget{Name: "all", Scope: perRoute, Limit: limiter.PerMinute(5)})
	router := chi.NewRouter()
	router.Use(f.middleware(t, byAddress, chiroute.New(router).Route, middleware.Config{}))
	router.Get("/orders/{id}", func(http.ResponseWriter, *http.Request) {})
	counts := map[int]int{}
	for i := range 1000 {
		method := []string{"GET", "POST", "PURGE"}[i%3]
		r := httptest.NewRequest(method, "/"+strings.Repeat("x", i%50)+"/orders", nil)
		w := httptest.NewRecorder()
		router.ServeHTTP(w, r)
		counts[w.Code]++
	}
	assert.Equal(t, 995, counts[429])
	labels := map[string]bool{}
	for _, answer := range f.seen.take() {
		labels[answer] = true
	}
	assert.Equal(t, map[string]bool{"http unmatched allow": true, "http unmatched deny": true}, labels)
}

func TestMiddleware_Allocates(t *testing.T) {
	for name, tt := range map[string]struct {
		cfg  middleware.Config
		deny bool
		most float64
	}{
		"headers":     {middleware.Config{}, false, 2},
		"x-ratelimit": {middleware.Config{Headers: middleware.XRateLimit}, false, 4},
		"off":         {middleware.Config{Headers: middleware.Off}, false, 0},
		"caller":      {middleware.Config{Headers: middleware.Off, Caller: true}, false, 2},
		"settles":     {middleware.Config{Headers: middleware.Off, Settles: true}, false, 6},
		"denied":      {middleware.Config{}, true, 5},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, limiter.Budget{Name: "orders", Scope: limiter.ByPrincipal,
				Limit: limiter.Limit{Tokens: 1, Per: time.Second, Burst: 1 << 20}})
			tt.cfg.Cost = func(*http.Request) int64 {
				if tt.deny {
					return 1 << 20
				}
				return 1
			}
			h := f.middleware(t, byUser, keying.Pattern, tt.cfg)(http.HandlerFunc(noop))
			r := httptest.NewRequest("GET", "/", nil)
			r = r.WithContext(keying.WithPrincipal(r.Context(),
				limiter.Principal{Kind: "user", ID: "a"}))
			w := &discard{header: http.Header{}}
			h.ServeHTTP(w, r)
			f.seen.off = true
			assert.LessOrEqual(t, allocations(func() {
				clear(w.header)
				h.ServeHTTP(w, r)
			}), tt.most)
		})
	}
}

// allocations returns what f allocates at the least: under the race detector pools
// forget at times.
func allocations(f func()) float64 {
	least := testing.AllocsPerRun(1, f)
	for range 100 {
		least = min(least, testing.AllocsPerRun(1, f))
	}
	return least
}

// discard is a ResponseWriter that costs nothing.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header       { return d.header }
func (*discard) Write(p []byte) (int, error) { return len(p), nil }
func (*discard) WriteHeader(int)             {}
