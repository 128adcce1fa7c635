package middleware_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
	"github.com/ration-go/ration/middleware"
)

const workload = "X-Workload"

// labelled is a limiter of 20 an hour, and of 5 for each workload.
func labelled(t *testing.T) (*limiter.Limiter, *memstore.Store) {
	t.Helper()
	store := limiter.Must(memstore.New(memstore.Config{}))
	l, err := limiter.New(store, []limiter.Budget{
		{Name: "user", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(20)},
		{Name: "workload", Scope: limiter.ByPrincipal | limiter.ByWorkload, Limit: limiter.PerHour(5)},
	}, limiter.Config{})
	require.NoError(t, err)
	return l, store
}

func TestMiddleware_LabelsSplitABudgetAndNeverMultiplyIt(t *testing.T) {
	config := middleware.Config{
		Workloads: keying.Workloads{Header: workload, Listed: []string{"web"}, Slots: 4},
	}
	tests := []struct {
		name     string
		who      keying.Who
		label    func(i int) string
		want     int // of 100
		accounts int64
	}{
		{"one-label", byUser, func(int) string { return "web" }, 5, 2},
		{"no-label", byUser, func(int) string { return "" }, 5, 2},
		{"two-labels", byUser, func(i int) string { return []string{"web", "other"}[i%2] }, 10, 3},
		{"a-label-for-each-request", byUser, func(i int) string { return fmt.Sprint(i) }, 20, 5},
		{"addresses-have-none", byAddress, func(i int) string { return fmt.Sprint(i) }, 5, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l, store := labelled(t)
			m := limiter.Must(middleware.New(l, tt.who, keying.Pattern, config))
			h := authenticate(m.Handler(http.HandlerFunc(noop)))
			passed := 0
			for i := range 100 {
				r := get("/", "alice")()
				r.Header.Set(workload, tt.label(i))
				w := httptest.NewRecorder()
				if h.ServeHTTP(w, r); w.Code == http.StatusOK {
					passed++
				}
			}
			assert.Equal(t, tt.want, passed)
			assert.Equal(t, tt.accounts, store.Stats().Accounts)
		})
	}
}

func TestNew_RefusesWorkloadsThatAreNotValid(t *testing.T) {
	l, _ := labelled(t)
	_, err := middleware.New(l, byUser, keying.Pattern, middleware.Config{
		Workloads: keying.Workloads{Header: workload, Slots: 1000},
	})
	var config *limiter.ConfigError
	require.ErrorAs(t, err, &config)
	assert.Equal(t, "Workloads.Slots", config.Field)

	_, err = middleware.New(l, byUser, keying.Pattern, middleware.Config{})
	require.ErrorAs(t, err, &config, "a budget ByWorkload, and no labels")
	assert.Equal(t, "Workloads", config.Field)
}

func TestCallerFrom_KnowsWhomTheMiddlewareCharged(t *testing.T) {
	l, _ := labelled(t)
	for _, keep := range []bool{true, false} {
		m := limiter.Must(middleware.New(l, byUser, keying.Pattern, middleware.Config{
			Caller: keep, Workloads: keying.Workloads{Header: workload, Listed: []string{"web"}},
		}))
		var caller limiter.Caller
		var known bool
		mux := http.NewServeMux()
		mux.Handle("GET /items/{id}", authenticate(m.Handler(http.HandlerFunc(
			func(_ http.ResponseWriter, r *http.Request) {
				caller, known = keying.CallerFrom(r.Context())
				assert.Equal(t, "7", r.PathValue("id"))
			}))))
		r := get("/items/7", "alice")()
		r.Header.Set(workload, "web")
		mux.ServeHTTP(httptest.NewRecorder(), r)
		if !keep {
			// A limiter that is mounted twice may know it, but does not promise to.
			continue
		}
		assert.True(t, known)
		assert.Equal(t, limiter.Caller{
			Principal: limiter.Principal{Kind: "user", ID: "alice"},
			Route:     "GET /items/{id}", Workload: "web",
		}, caller)
	}
}

func TestCallerFrom_KnowsNobodyWhereNothingWasCharged(t *testing.T) {
	l, _ := labelled(t)
	_, known := keying.CallerFrom(t.Context())
	assert.False(t, known)
	m := limiter.Must(middleware.New(l, byUser, keying.Pattern, middleware.Config{
		Caller: true, Skip: func(*http.Request) bool { return true },
		Workloads: keying.Workloads{Header: workload},
	}))
	m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, known := keying.CallerFrom(r.Context())
		assert.False(t, known)
	})).ServeHTTP(httptest.NewRecorder(), get("/", "alice")())
}

// An authenticated caller of a known route costs no allocation.
func TestMiddleware_AllocatesNothingForTheAuthenticated(t *testing.T) {
	l, _ := logged(t, many())
	m := limiter.Must(middleware.New(l, byUser, keying.Pattern, middleware.Config{
		Headers: middleware.Off, Workloads: keying.Workloads{Header: workload},
	}))
	h := m.Handler(http.HandlerFunc(noop))
	r := httptest.NewRequest("GET", "/", nil)
	r.Pattern = "GET /"
	r = r.WithContext(keying.WithPrincipal(r.Context(), limiter.Principal{Kind: "user", ID: "alice"}))
	w := httptest.NewRecorder()
	assert.Zero(t, allocations(func() { h.ServeHTTP(w, r) }))
}
