package middleware_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/middleware"
)

// mount is one mount of a limiter.
type mount struct {
	cost int64
	cfg  middleware.Config
}

// mounted mounts one limiter several times, from the outermost to the innermost.
func mounted(t *testing.T, f *fixture, h http.Handler, mounts ...mount) http.Handler {
	t.Helper()
	for i := len(mounts) - 1; i >= 0; i-- {
		m := mounts[i]
		m.cfg.Cost = func(*http.Request) int64 { return m.cost }
		h = f.middleware(t, byUser, keying.Pattern, m.cfg)(h)
	}
	return authenticate(h)
}

func TestFurtherIn_OnlyTheRestIsPaid(t *testing.T) {
	for _, tt := range []struct {
		costs []int64
		spent int64
	}{
		{[]int64{7}, 7}, {[]int64{7, 7}, 7}, {[]int64{7, 2}, 7}, {[]int64{2, 7}, 7},
		{[]int64{0, 7}, 7}, {[]int64{2, 0, 7, 5, 9}, 9}, {[]int64{0, 0}, 0},
	} {
		f := newFixture(t, tokens, requests)
		var mounts []mount
		for _, cost := range tt.costs {
			mounts = append(mounts, mount{cost: cost})
		}
		assert.Equal(t, 200, send1(mounted(t, f, http.HandlerFunc(noop), mounts...)).Code)
		assert.Equal(t, map[string]int64{"tokens": 100 - tt.spent, "requests": 98},
			balances(t, f, "alice"), "%d; looking costs a request", tt.costs)
	}
}

// A refusal further in states the wait for a new request, which pays the whole cost.
func TestFurtherIn_ARefusalWaitsForTheWholeCost(t *testing.T) {
	f := newFixture(t, limiter.Budget{Name: "all", Scope: limiter.ByPrincipal,
		Limit: limiter.PerMinute(10)})
	h := mounted(t, f, http.HandlerFunc(noop), mount{cost: 2}, mount{cost: 7})
	assert.Equal(t, 200, send1(h).Code)
	w := send1(h) // 3 are left: 2 for the outer mount
	assert.Equal(t, 429, w.Code)
	assert.Equal(t, "36", w.Header().Get("Retry-After"), "from 1 to 7, at one in 6 s")
	assert.EqualValues(t, 1, read(t, w.Header()).left)
	assert.EqualValues(t, 1, balances(t, f, "alice")["all"])

	f = newFixture(t, limiter.Budget{Name: "all", Scope: limiter.ByPrincipal,
		Limit: limiter.PerMinute(6)})
	w = send1(mounted(t, f, http.HandlerFunc(noop), mount{cost: 2}, mount{cost: 7}))
	assert.Equal(t, 429, w.Code)
	assert.Empty(t, w.Header().Get("Retry-After"), "no account could ever pay 7")
}

// The outer mount counts a request before its handler runs.
func TestFurtherIn_ARefusalCountsBesideTheOuterAllow(t *testing.T) {
	f := newFixture(t, limiter.Budget{Name: "all", Scope: limiter.ByPrincipal,
		Limit: limiter.PerHour(4)})
	h := mounted(t, f, http.HandlerFunc(noop), mount{cost: 1}, mount{cost: 2}, mount{cost: 3})
	assert.Equal(t, 200, send1(h).Code)
	assert.Equal(t, []string{"http unmatched allow"}, f.seen.take())
	assert.Equal(t, 429, send1(h).Code)
	assert.Equal(t, []string{"http unmatched allow", "http unmatched deny"}, f.seen.take())
}

// Clones that are served at the same time share what the outer mount has paid.
func TestFurtherIn_EachCloneServedAtTheSameTimePaysTheRest(t *testing.T) {
	for _, tt := range []struct{ inner, spent int64 }{{2, 2}, {7, 2 + 5 + 5}} {
		var calls atomic.Int64
		both := make(chan struct{}) // closed when both clones are being charged
		budget := tokens
		budget.LimitFor = func(context.Context, limiter.Caller) limiter.Limit {
			switch calls.Add(1) {
			case 1: // the outer mount
				return limiter.Limit{}
			case 3:
				close(both)
			}
			<-both
			return limiter.Limit{}
		}
		f := newFixture(t, budget)
		h := mounted(t, f, http.HandlerFunc(noop), mount{cost: tt.inner})
		fork := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var clones sync.WaitGroup
			for range 2 {
				clones.Go(func() { h.ServeHTTP(httptest.NewRecorder(), r.Clone(r.Context())) })
			}
			clones.Wait()
		})
		assert.Equal(t, 200, send1(mounted(t, f, fork, mount{cost: 2})).Code)
		assert.Equal(t, map[string]int64{"tokens": 100 - tt.spent}, balances(t, f, "alice"))
	}
}

func TestFurtherIn_SettleCorrectsAllParts(t *testing.T) {
	on, off := middleware.Config{Settles: true}, middleware.Config{}
	for _, cfg := range [][]middleware.Config{{off, on}, {on, off}, {on, on}} {
		for _, costs := range [][]int64{{2, 7}, {7, 2}, {7, 7}, {0, 7}} {
			for _, actual := range []int64{0, 1, 2, 3, 7, 20} {
				f := newFixture(t, tokens, requests)
				h := mounted(t, f, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					assert.NoError(t, middleware.Settle(r.Context(), actual))
					assert.ErrorIs(t, middleware.Settle(r.Context(), 0), limiter.ErrReceipt)
				}), mount{costs[0], cfg[0]}, mount{costs[1], cfg[1]})
				assert.Equal(t, 200, send1(h).Code)
				assert.Equal(t, map[string]int64{"tokens": 100 - actual, "requests": 98},
					balances(t, f, "alice"), "settles %t %t, costs %d",
					cfg[0].Settles, cfg[1].Settles, costs)
			}
		}
	}
}

func TestFurtherIn_ByStatusCorrectsAllParts(t *testing.T) {
	by := middleware.Config{ByStatus: byStatus} // a success costs 1, a redirect 9
	for name, cfg := range map[string][]middleware.Config{
		"outer": {by, {}}, "inner": {{}, by}, "both": {by, by},
	} {
		for _, costs := range [][]int64{{2, 7}, {7, 2}, {7, 7}, {0, 7}} {
			if name == "outer" && costs[1] > costs[0] {
				continue // the outer rule corrects only its own part
			}
			for status, actual := range map[int]int64{200: 1, 303: 9, 401: max(costs[0], costs[1])} {
				t.Run(fmt.Sprintf("%s/%d/%d", name, costs, status), func(t *testing.T) {
					f := newFixture(t, tokens, requests)
					h := mounted(t, f, answers(status), mount{costs[0], cfg[0]},
						mount{costs[1], cfg[1]})
					assert.Equal(t, status, send1(h).Code)
					assert.Equal(t, map[string]int64{"tokens": 100 - actual, "requests": 98},
						balances(t, f, "alice"))
				})
			}
		}
	}
}

// Caller is not needed for one charge, nor one Middleware for both mounts.
func TestFurtherIn_OneLimiterMountedTwiceChargesOnce(t *testing.T) {
	f := newFixture(t, tokens, requests)
	limit := f.middleware(t, byUser, keying.Pattern, middleware.Config{})
	other := f.middleware(t, byUser, keying.Pattern, middleware.Config{Caller: true, Settles: true})
	h := authenticate(limit(other(limit(http.HandlerFunc(noop)))))
	for n := range int64(5) {
		h.ServeHTTP(httptest.NewRecorder(), get("/", "alice")())
		left := balances(t, f, "alice")
		assert.Equal(t, 99-n, left["tokens"])
		assert.Equal(t, 100-2*(n+1), left["requests"], "looking costs one, too")
	}
	assert.Len(t, f.seen.take(), 5)
}

// A request that a handler makes up, and that is free, settles only itself.
func TestFurtherIn_AFreeRequestThatIsMadeUpSettlesNothing(t *testing.T) {
	f := newFixture(t, limiter.Budget{Name: "orders", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(10)})
	mount := f.middleware(t, byUser, keying.Pattern, middleware.Config{Settles: true,
		Cost: func(*http.Request) int64 { return 5 },
		Skip: func(r *http.Request) bool { return r.URL.Path == "/health" }})
	var settled error
	health := mount(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		settled = middleware.Settle(r.Context(), 0)
	}))
	h := authenticate(mount(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inner, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://in/health", nil)
		require.NoError(t, err)
		health.ServeHTTP(w, inner)
	})))
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("X-Test-User", "alice")
	h.ServeHTTP(httptest.NewRecorder(), r)
	assert.ErrorIs(t, settled, limiter.ErrReceipt)
}
