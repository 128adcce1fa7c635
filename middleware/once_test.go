package middleware_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/keying/chiroute"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
	"github.com/ration-go/ration/middleware"
)

func perHour(n int64) limiter.Budget {
	return limiter.Budget{Name: "all", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(n)}
}

// allowed counts the requests that pass until one is refused.
func allowed(t *testing.T, h http.Handler, request func() *http.Request) int {
	t.Helper()
	for n := range 100 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, request())
		if w.Code == http.StatusTooManyRequests {
			return n
		}
	}
	t.Fatal("100 requests passed")
	return 0
}

func get(path, user string) func() *http.Request {
	return func() *http.Request {
		r := httptest.NewRequest("GET", path, nil)
		r.Header.Set("X-Test-User", user)
		return r
	}
}

func TestMiddleware_ChargesOnceHoweverOftenItIsMounted(t *testing.T) {
	none := func(http.ResponseWriter, *http.Request) {}
	clone := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.Clone(r.Context()))
		})
	}
	tests := []struct {
		name  string
		build func(r chi.Router, mount func(who keying.Who) func(http.Handler) http.Handler)
		want  int // of 4
	}{
		{"once", func(r chi.Router, mount func(keying.Who) func(http.Handler) http.Handler) {
			r.With(mount(byAddress)).Get("/a/b", none)
		}, 4},
		{"root-and-route", func(r chi.Router, mount func(keying.Who) func(http.Handler) http.Handler) {
			m := mount(byAddress)
			r.Use(m)
			r.Route("/a", func(r chi.Router) {
				r.Use(m)
				r.With(m).Get("/b", none)
			})
		}, 4},
		{"two-middlewares", func(r chi.Router, mount func(keying.Who) func(http.Handler) http.Handler) {
			r.Use(mount(byAddress))
			r.With(mount(byAddress)).Get("/a/b", none)
		}, 4},
		{"a-clone-between", func(r chi.Router, mount func(keying.Who) func(http.Handler) http.Handler) {
			r.Use(mount(byAddress), clone)
			r.With(mount(byAddress)).Get("/a/b", none)
		}, 4},
		{"before-and-after-authentication",
			func(r chi.Router, mount func(keying.Who) func(http.Handler) http.Handler) {
				r.Use(mount(byAddress), authenticate, mount(byUser), mount(byAddress))
				r.Get("/a/b", none)
			}, 4}, // two accounts, each charged once
		{"another-url", func(r chi.Router, mount func(keying.Who) func(http.Handler) http.Handler) {
			r.Use(mount(byAddress))
			r.Mount("/a", http.StripPrefix("/a", mount(byAddress)(http.HandlerFunc(none))))
		}, 2},
		{"another-method", func(r chi.Router, mount func(keying.Who) func(http.Handler) http.Handler) {
			r.Use(mount(byAddress))
			m := mount(byAddress)
			r.Get("/a/b", func(w http.ResponseWriter, r *http.Request) {
				r.Method = "DELETE"
				m(http.HandlerFunc(none)).ServeHTTP(w, r)
			})
		}, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t, perHour(4))
			router := chi.NewRouter()
			routes := chiroute.New(router)
			tt.build(router, func(who keying.Who) func(http.Handler) http.Handler {
				return f.middleware(t, who, routes.Route, middleware.Config{})
			})
			assert.Equal(t, tt.want, allowed(t, router, get("/a/b", "alice")))
		})
	}
}

func TestMiddleware_ReportsARequestOnce(t *testing.T) {
	f := newFixture(t, perHour(1))
	m := f.middleware(t, byAddress, keying.Pattern, middleware.Config{})
	h := m(m(http.NotFoundHandler()))
	h.ServeHTTP(httptest.NewRecorder(), get("/", "")())
	h.ServeHTTP(httptest.NewRecorder(), get("/", "")())
	assert.Equal(t, []string{"http unmatched allow", "http unmatched deny"}, f.seen.take())
}

func TestMiddleware_TwoLimitersBothCharge(t *testing.T) {
	for _, mounts := range []int{1, 2} {
		outer, inner := newFixture(t, perHour(3)), newFixture(t, perHour(1))
		h := http.NotFoundHandler()
		for _, f := range []*fixture{inner, outer} {
			m := f.middleware(t, byAddress, keying.Pattern, middleware.Config{})
			for range mounts {
				h = m(h)
			}
		}
		var waits [][]string
		for range 4 {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, get("/", "")())
			waits = append(waits, w.Header().Values("Retry-After"))
		}
		// The inner one refuses, then the outer: each answer has one Retry-After.
		assert.Equal(t, [][]string{nil, {"3600"}, {"3600"}, {"1200"}}, waits, mounts)
	}
}

func TestMiddleware_AUserAndItsAddressBothCount(t *testing.T) {
	f := newFixture(t, perHour(4))
	before := f.middleware(t, byAddress, keying.Pattern, middleware.Config{})
	after := f.middleware(t, byUser, keying.Pattern, middleware.Config{})
	h := before(authenticate(after(http.NotFoundHandler())))
	n := 0
	assert.Equal(t, 4, allowed(t, h, func() *http.Request {
		r := get("/", "alice")()
		n++
		r.RemoteAddr = fmt.Sprintf("203.0.113.%d:1", n) // the user moves
		return r
	}))
	n = 0
	assert.Equal(t, 3, allowed(t, h, func() *http.Request {
		r := get("/", fmt.Sprintf("bob%d", n))() // the address of alice's first request
		n++
		r.RemoteAddr = "203.0.113.1:1"
		return r
	}))
}

func TestMiddleware_NextSeesTheContextBelowTheMark(t *testing.T) {
	f := newFixture(t, perHour(9))
	m := f.middleware(t, byUser, keying.Pattern, middleware.Config{})
	var who limiter.Principal
	h := authenticate(m(m(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		who, _ = keying.PrincipalFrom(r.Context())
	}))))
	h.ServeHTTP(httptest.NewRecorder(), get("/", "alice")())
	assert.Equal(t, "alice", who.ID)
}

func TestMiddleware_KeepsNoLimiterAlive(t *testing.T) {
	store, err := memstore.New(memstore.Config{})
	require.NoError(t, err)
	gone := make(chan struct{})
	func() {
		l, err := limiter.New(store, []limiter.Budget{perHour(1)}, limiter.Config{})
		require.NoError(t, err)
		_, err = middleware.New(l, byAddress, keying.Pattern, middleware.Config{})
		require.NoError(t, err)
		runtime.AddCleanup(l, func(done chan struct{}) { close(done) }, gone)
	}()
	for range 100 {
		runtime.GC()
		select {
		case <-gone:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
	t.Fatal("the limiter is still alive")
}

func TestNew_NamesWhatIsMissing(t *testing.T) {
	f := newFixture(t, perHour(1))
	tests := []struct {
		name    string
		limiter *limiter.Limiter
		who     keying.Who
		route   keying.Route
		field   string
	}{
		{"limiter", nil, byUser, keying.Pattern, "Limiter"},
		{"route", f.limiter, byUser, nil, "Route"},
		{"who", f.limiter, keying.Who{}, keying.Pattern, "Who"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, err := middleware.New(tt.limiter, tt.who, tt.route, middleware.Config{})
			assert.Nil(t, m)
			var config *limiter.ConfigError
			if assert.ErrorAs(t, err, &config) {
				assert.Equal(t, tt.field, config.Field)
			}
		})
	}
}

// A request that a handler makes up is another one, also to the same URL, and
// whatever else is asked of the limiter.
func TestMiddleware_ARequestWithinARequestIsCharged(t *testing.T) {
	for _, caller := range []bool{false, true} {
		f := newFixture(t, perHour(100))
		limit := f.middleware(t, byUser, keying.Pattern, middleware.Config{Caller: caller})
		var limited http.Handler
		limited = authenticate(limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Item") != "" {
				return
			}
			for range 20 {
				item, err := http.NewRequestWithContext(r.Context(), r.Method, r.URL.String(), nil)
				require.NoError(t, err)
				item.Header.Set("Item", "1")
				item.Header.Set("X-Test-User", "alice")
				limited.ServeHTTP(w, item)
			}
		})))
		limited.ServeHTTP(httptest.NewRecorder(), get("/rpc", "alice")())
		assert.EqualValues(t, 100-21, balances(t, f, "alice")["all"], "Caller: %v", caller)
	}
}
