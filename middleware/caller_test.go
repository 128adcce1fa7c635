package middleware_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"sync"
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

// orders is a service with a limit of 3 by user and route, and one of 30 by
// address in front of the authentication.
func orders(t *testing.T, addresses keying.Addresses) *httptest.Server {
	t.Helper()
	users := newFixture(t, limiter.Budget{Name: "user", Scope: perRoute, Limit: limiter.PerMinute(3)})
	all := newFixture(t, limiter.Budget{Name: "address", Scope: limiter.ByPrincipal,
		Limit: limiter.PerMinute(30)})
	router := chi.NewRouter()
	routes := chiroute.New(router).Route
	router.Use(
		all.middleware(t, keying.ByAddress(addresses), routes, middleware.Config{}),
		authenticate,
		users.middleware(t, byUser, routes, middleware.Config{}),
	)
	none := func(http.ResponseWriter, *http.Request) {}
	router.Get("/orders/{id}", none)
	router.Get("/files/*", none)
	router.Handle("/any/{id}", http.HandlerFunc(none))
	router.Route("/api", func(r chi.Router) { r.Get("/orders/{id}", none) })
	return serve(t, router)
}

// statuses sends n requests, each changed in its own way, and counts answers.
func statuses(
	t *testing.T, server *httptest.Server, n int, change func(i int, r *http.Request),
) map[int]int {
	t.Helper()
	counts := map[int]int{}
	for i := range n {
		r, err := http.NewRequest(http.MethodGet, server.URL+"/orders/7", nil)
		require.NoError(t, err)
		change(i, r)
		resp, err := server.Client().Do(r)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		counts[resp.StatusCode]++
	}
	return counts
}

func TestMiddleware_NothingThatAUserSendsMakesAnotherAccount(t *testing.T) {
	changes := map[string]func(i int, r *http.Request){
		"id":         func(i int, r *http.Request) { r.URL.Path = fmt.Sprint("/orders/", i) },
		"query":      func(i int, r *http.Request) { r.URL.RawQuery = fmt.Sprint("id=", i) },
		"wildcard":   func(i int, r *http.Request) { r.URL.Path = fmt.Sprintf("/files/%d/x", i) },
		"api-key":    func(i int, r *http.Request) { r.Header.Set("X-Api-Key", fmt.Sprint(i)) },
		"user-id":    func(i int, r *http.Request) { r.Header.Set("X-User-Id", fmt.Sprint(i)) },
		"credential": func(i int, r *http.Request) { r.Header.Set("Authorization", fmt.Sprint(i)) },
		"cookie":     func(i int, r *http.Request) { r.Header.Set("Cookie", fmt.Sprint("id=", i)) },
		"host":       func(i int, r *http.Request) { r.Host = fmt.Sprintf("h%d.example.com:%d", i, i) },
		"connection": func(_ int, r *http.Request) { r.Close = true },
		"method": func(i int, r *http.Request) {
			r.URL.Path, r.Method = "/any/7", []string{"GET", "PUT", "OPTIONS", "HEAD"}[i%4]
		},
		"forwarded": func(i int, r *http.Request) {
			for _, name := range []string{"X-Forwarded-For", "X-Real-Ip", "True-Client-Ip"} {
				r.Header.Set(name, fmt.Sprintf("198.51.100.%d", i))
			}
			r.Header.Set("Forwarded", fmt.Sprintf("for=198.51.100.%d", i))
		},
		"not-found": func(i int, r *http.Request) { r.URL.Path = fmt.Sprint("/nothing/", i) },
		"not-allowed": func(i int, r *http.Request) {
			r.Method = []string{"POST", "PURGE", "PATCH"}[i%3]
		},
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			counts := statuses(t, orders(t, keying.Addresses{}), 20, func(i int, r *http.Request) {
				r.Header.Set("X-Test-User", "alice")
				change(i, r)
			})
			assert.Equal(t, 17, counts[http.StatusTooManyRequests], counts)
		})
	}
}

func TestMiddleware_RoutesOfTwoMountsAreTwoAccounts(t *testing.T) {
	counts := statuses(t, orders(t, keying.Addresses{}), 8, func(i int, r *http.Request) {
		r.Header.Set("X-Test-User", "alice")
		r.URL.Path = []string{"/orders/7", "/api/orders/7"}[i%2]
	})
	assert.Equal(t, map[int]int{200: 6, 429: 2}, counts)
}

func TestMiddleware_StrangersCannotSpendAUsersAccount(t *testing.T) {
	server := orders(t, keying.Addresses{})
	counts := statuses(t, server, 20, func(int, *http.Request) {})
	assert.Equal(t, map[int]int{401: 20}, counts)
	counts = statuses(t, server, 3, func(_ int, r *http.Request) {
		r.Header.Set("X-Test-User", "alice")
	})
	assert.Equal(t, map[int]int{200: 3}, counts)
	counts = statuses(t, server, 20, func(int, *http.Request) {})
	assert.Equal(t, map[int]int{401: 7, 429: 13}, counts, "failed logins cost, too")
}

func TestMiddleware_CallersBehindATrustedProxyAreTheirOwn(t *testing.T) {
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	for name, tt := range map[string]struct {
		addresses keying.Addresses
		refused   int
	}{
		"trusted":     {keying.Addresses{Proxies: loopback}, 0},
		"not-trusted": {keying.Addresses{}, 20}, // all are the proxy
	} {
		t.Run(name, func(t *testing.T) {
			service, err := url.Parse(orders(t, tt.addresses).URL)
			require.NoError(t, err)
			// The proxy replaces what its callers claim by where they come from.
			proxy := serve(t, &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) {
				p.SetURL(service)
				p.Out.Header.Set("X-Forwarded-For", p.In.Header.Get("X-Test-Address"))
			}})
			counts := statuses(t, proxy, 50, func(i int, r *http.Request) {
				r.Header.Set("X-Test-Address", []string{"203.0.113.7", "203.0.113.8"}[i%2])
			})
			assert.Equal(t, tt.refused, counts[429])
		})
	}
}

func TestMiddleware_HoldsNothingWhileAHandlerRuns(t *testing.T) {
	f := newFixture(t, limiter.Budget{Name: "all", Limit: limiter.PerSecond(10)})
	var running sync.WaitGroup
	running.Add(10)
	server := serve(t, f.middleware(t, byAddress, keying.Pattern, middleware.Config{})(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			running.Done()
			running.Wait() // until all ten are in here
		})))
	var served atomic.Int64
	var clients sync.WaitGroup
	for range 10 {
		clients.Go(func() {
			resp, err := server.Client().Get(server.URL)
			if err == nil && resp.Body.Close() == nil {
				served.Add(1)
			}
		})
	}
	clients.Wait()
	assert.EqualValues(t, 10, served.Load())
}

func TestMiddleware_AllowsExactlyTheBudgetAtOnce(t *testing.T) {
	f := newFixture(t, limiter.Budget{Name: "all", Scope: perRoute, Limit: limiter.PerHour(100)})
	m := f.middleware(t, byAddress, keying.Pattern, middleware.Config{})
	var ran atomic.Int64
	h := m(m(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { ran.Add(1) })))
	var callers sync.WaitGroup
	for range 64 {
		callers.Go(func() {
			for range 10 {
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
			}
		})
	}
	callers.Wait()
	assert.EqualValues(t, 100, ran.Load())
}

// An obedient caller, alone, is never refused a second time.
func TestMiddleware_WaitingRetryAfterIsEnough(t *testing.T) {
	for _, limit := range []limiter.Limit{
		{Tokens: 10, Per: time.Minute, Burst: 1}, {Tokens: 3, Per: 7 * time.Second, Burst: 2},
		{Tokens: 999_983, Per: 24 * time.Hour, Burst: 5}, {Tokens: 1, Per: 24 * time.Hour, Burst: 1},
	} {
		f := newFixture(t, limiter.Budget{Name: "all", Scope: perRoute, Limit: limit})
		h := f.middleware(t, byAddress, keying.Pattern, middleware.Config{})(http.NotFoundHandler())
		refused := false
		for i := range 200 {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
			if w.Code != http.StatusTooManyRequests {
				refused = false
				f.move(time.Duration(i) * time.Millisecond)
				continue
			}
			require.False(t, refused, "%v: refused again after Retry-After", limit)
			refused = true
			wait, err := time.ParseDuration(w.Header().Get("Retry-After") + "s")
			require.NoError(t, err)
			f.move(wait)
		}
	}
}
