package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
	"github.com/ration-go/ration/limiter/storekit"
	"github.com/ration-go/ration/middleware"
)

// tokens is a budget of 100 an hour for each user, and requests one of 100
// requests.
var (
	tokens   = limiter.Budget{Name: "tokens", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(100)}
	requests = limiter.Budget{Name: "requests", Scope: limiter.ByPrincipal,
		Limit: limiter.PerHour(100), PerRequest: true}
)

// seven is a Cost.
func seven(*http.Request) int64 { return 7 }

// settling mounts h so that it may settle what it costs, of which 7 is reserved.
func settling(t *testing.T, f *fixture, h http.HandlerFunc) http.Handler {
	t.Helper()
	return authenticate(f.middleware(t, byUser, keying.Pattern,
		middleware.Config{Cost: seven, Settles: true})(h))
}

// send1 sends one request as alice.
func send1(h http.Handler) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, get("/", "alice")())
	return w
}

func TestSettle_ReplacesTheReservedCost(t *testing.T) {
	for _, actual := range []int64{0, 3, 7, 20} {
		f := newFixture(t, tokens)
		w := send1(settling(t, f, func(_ http.ResponseWriter, r *http.Request) {
			assert.EqualValues(t, 93, balances(t, f, "alice")["tokens"], "reserved while it runs")
			assert.NoError(t, middleware.Settle(r.Context(), actual))
		}))
		assert.Equal(t, 200, w.Code)
		assert.Contains(t, w.Header().Get("RateLimit"), "r=93;", "what was known when it began")
		assert.EqualValues(t, 100-actual, balances(t, f, "alice")["tokens"])
	}
}

func TestSettle_BudgetsPerRequestKeepTheirOne(t *testing.T) {
	f := newFixture(t, tokens, requests)
	send1(settling(t, f, func(_ http.ResponseWriter, r *http.Request) {
		assert.NoError(t, middleware.Settle(r.Context(), 0))
	}))
	send1(settling(t, f, func(_ http.ResponseWriter, r *http.Request) {
		assert.NoError(t, middleware.Settle(r.Context(), 50))
	}))
	left := balances(t, f, "alice") // whose own look costs one request
	assert.EqualValues(t, 50, left["tokens"])
	assert.EqualValues(t, 97, left["requests"])
}

func TestSettle_MoreThanThereIsMakesLaterRequestsWait(t *testing.T) {
	f := newFixture(t, limiter.Budget{Name: "b", Scope: limiter.ByPrincipal,
		Limit: limiter.PerMinute(10)})
	h := settling(t, f, func(_ http.ResponseWriter, r *http.Request) {
		assert.NoError(t, middleware.Settle(r.Context(), 1<<40))
	})
	assert.Equal(t, 200, send1(h).Code)
	w := send1(h)
	assert.Equal(t, 429, w.Code)
	assert.Equal(t, "102", w.Header().Get("Retry-After"), "-10, the least, to 7 at one in 6 s")
}

func TestSettle_WorksOnce(t *testing.T) {
	f := newFixture(t, tokens)
	send1(settling(t, f, func(_ http.ResponseWriter, r *http.Request) {
		var cost *limiter.CostError
		assert.ErrorAs(t, middleware.Settle(r.Context(), -1), &cost)
		assert.NoError(t, middleware.Settle(r.Context(), 3), "a mistake settles nothing")
		assert.ErrorIs(t, middleware.Settle(r.Context(), 0), limiter.ErrReceipt)
	}))
	assert.EqualValues(t, 97, balances(t, f, "alice")["tokens"])
}

func TestSettle_WorksOnceForManyAtOnce(t *testing.T) {
	for range 100 {
		f := newFixture(t, tokens)
		var settled, refused atomic.Int64
		send1(settling(t, f, func(_ http.ResponseWriter, r *http.Request) {
			var group sync.WaitGroup
			for range 16 {
				group.Go(func() {
					if err := middleware.Settle(r.Context(), 2); errors.Is(err, limiter.ErrReceipt) {
						refused.Add(1)
					} else if err == nil {
						settled.Add(1)
					}
				})
			}
			group.Wait()
		}))
		assert.EqualValues(t, 1, settled.Load())
		assert.EqualValues(t, 15, refused.Load())
		assert.EqualValues(t, 98, balances(t, f, "alice")["tokens"])
	}
}

func TestSettle_WorksWhenTheCallerHasGoneAndTheHandlerHasReturned(t *testing.T) {
	f := newFixture(t, tokens)
	ctx, leave := context.WithCancel(t.Context())
	var kept context.Context
	h := settling(t, f, func(_ http.ResponseWriter, r *http.Request) { kept = r.Context() })
	h.ServeHTTP(httptest.NewRecorder(), get("/", "alice")().WithContext(ctx))
	leave()
	require.Error(t, kept.Err())
	assert.NoError(t, middleware.Settle(kept, 1))
	assert.EqualValues(t, 99, balances(t, f, "alice")["tokens"])
}

func TestSettle_NeedsARequestThatHasReserved(t *testing.T) {
	assert.ErrorIs(t, middleware.Settle(t.Context(), 1), limiter.ErrReceipt)
	f := newFixture(t, tokens)
	for name, cfg := range map[string]middleware.Config{
		"not-asked-for": {},
		"by-status":     {ByStatus: func(int, int64) int64 { return 1 }},
		"skipped":       {Settles: true, Skip: func(*http.Request) bool { return true }},
	} {
		t.Run(name, func(t *testing.T) {
			send1(authenticate(f.middleware(t, byUser, keying.Pattern, cfg)(http.HandlerFunc(
				func(_ http.ResponseWriter, r *http.Request) {
					assert.ErrorIs(t, middleware.Settle(r.Context(), 1), limiter.ErrReceipt)
				}))))
		})
	}
}

func TestSettle_WhatNobodySettlesStands(t *testing.T) {
	for name, handler := range map[string]http.Handler{
		"returns": http.HandlerFunc(noop),
		"panics": recoverer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			panic("mistake")
		})),
		"aborts": http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			panic(http.ErrAbortHandler)
		}),
		"fails": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }),
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, tokens)
			send1(recoverer(settling(t, f, handler.ServeHTTP)))
			assert.EqualValues(t, 93, balances(t, f, "alice")["tokens"])
		})
	}
}

func TestSettle_SettlesEachLimiterThatLetsIt(t *testing.T) {
	outer, inner, other := newFixture(t, tokens), newFixture(t, tokens), newFixture(t, tokens)
	cfg := middleware.Config{Cost: seven, Settles: true}
	h := authenticate(outer.middleware(t, byUser, keying.Pattern, cfg)(
		other.middleware(t, byUser, keying.Pattern, middleware.Config{Cost: seven})(
			inner.middleware(t, byUser, keying.Pattern, cfg)(http.HandlerFunc(
				func(_ http.ResponseWriter, r *http.Request) {
					assert.NoError(t, middleware.Settle(r.Context(), 2))
				})))))
	assert.Equal(t, 200, send1(h).Code)
	assert.EqualValues(t, 98, balances(t, outer, "alice")["tokens"])
	assert.EqualValues(t, 98, balances(t, inner, "alice")["tokens"])
	assert.EqualValues(t, 93, balances(t, other, "alice")["tokens"], "it does not")
}

func TestSettle_ALimiterMountedTwiceReservesAndSettlesOnce(t *testing.T) {
	f := newFixture(t, tokens)
	limit := f.middleware(t, byUser, keying.Pattern, middleware.Config{Cost: seven, Settles: true,
		ByStatus: func(int, int64) int64 { return 100 }})
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		assert.EqualValues(t, 93, balances(t, f, "alice")["tokens"])
		assert.NoError(t, middleware.Settle(r.Context(), 2))
	})))
	r := get("/", "alice")()
	authenticate(limit(mux)).ServeHTTP(httptest.NewRecorder(), r)
	assert.EqualValues(t, 98, balances(t, f, "alice")["tokens"],
		"the handler's word is before the rule's")
}

func TestSettle_AfterTheLimitHasChanged(t *testing.T) {
	for _, tt := range []struct{ tokens, before, after int64 }{
		{200, 93, 98}, {97, 93, 97}, {50, 50, 50}, // never above the capacity
	} {
		f := newFixture(t, tokens)
		send1(settling(t, f, func(_ http.ResponseWriter, r *http.Request) {
			changed := tokens
			changed.Limit = limiter.PerHour(tt.tokens)
			assert.NoError(t, f.limiter.Reload([]limiter.Budget{changed}))
			assert.EqualValues(t, tt.before, balances(t, f, "alice")["tokens"])
			assert.NoError(t, middleware.Settle(r.Context(), 2))
		}))
		assert.EqualValues(t, tt.after, balances(t, f, "alice")["tokens"])
	}
}

func TestSettle_AfterItsWindowHasEndedNothingComesBack(t *testing.T) {
	f := newFixture(t, limiter.Budget{Name: "w", Scope: limiter.ByPrincipal,
		Limit: limiter.Limit{Tokens: 10, Per: time.Minute, Algorithm: limiter.FixedWindow}})
	send1(settling(t, f, func(_ http.ResponseWriter, r *http.Request) {
		f.move(time.Minute)
		assert.Equal(t, 200, send1(settling(t, f, noop)).Code)
		assert.NoError(t, middleware.Settle(r.Context(), 0))
	}))
	assert.EqualValues(t, 3, balances(t, f, "alice")["w"], "what was taken in this window stays taken")
}

func TestSettle_OnAnOverflowAccount(t *testing.T) {
	store := limiter.Must(memstore.New(memstore.Config{MaxAccounts: 1,
		Now: func() time.Time { return time.Unix(1_700_000_000, 0) }}))
	const capacity = 1_000_000
	f := &fixture{limiter: limiter.Must(limiter.New(store, []limiter.Budget{{
		Name: "b", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(capacity),
	}}, limiter.Config{}))}
	h := settling(t, f, func(_ http.ResponseWriter, r *http.Request) {
		assert.NoError(t, middleware.Settle(r.Context(), 2))
		assert.ErrorIs(t, middleware.Settle(r.Context(), 2), limiter.ErrReceipt)
	})
	const users = 5000
	for i := range users {
		h.ServeHTTP(httptest.NewRecorder(), get("/", fmt.Sprint(i))())
	}
	require.Greater(t, store.Stats().OverflowTakes, int64(users/2))
	for i := range users { // of whom many share an account
		used := spent(t, f, fmt.Sprint(i), capacity)
		assert.Zero(t, used%2, "each request cost 2")
		assert.GreaterOrEqual(t, used, int64(2))
	}
}

// takeFails is a store that cannot decide.
type takeFails struct{ limiter.Store }

func (takeFails) Take(context.Context, []limiter.Charge) (limiter.Decision, error) {
	return limiter.Decision{},
		&limiter.StoreError{Reason: storekit.Unavailable, Err: errors.New("down")}
}

// settleFails is a store that takes and cannot settle.
type settleFails struct{ limiter.Store }

func (settleFails) Settle(context.Context, []limiter.Charge) error {
	return &limiter.StoreError{Reason: storekit.Timeout, Err: errors.New("too slow")}
}

func TestByStatus_LogsOnceWhatCouldNotBeSettled(t *testing.T) {
	for name, tt := range map[string]struct {
		wrap   func(limiter.Store) limiter.Store
		actual int64
	}{
		"store-fails":   {func(s limiter.Store) limiter.Store { return settleFails{s} }, 0},
		"negative-cost": {func(s limiter.Store) limiter.Store { return s }, -1},
	} {
		t.Run(name, func(t *testing.T) {
			store := limiter.Must(memstore.New(memstore.Config{}))
			var log bytes.Buffer
			closed := tokens
			closed.OnError = limiter.Closed
			l := limiter.Must(limiter.New(tt.wrap(store), []limiter.Budget{closed},
				limiter.Config{Logger: slog.New(slog.NewTextHandler(&log, nil)),
					Observer: readsBalances}))
			m := limiter.Must(middleware.New(l, byUser, keying.Pattern, middleware.Config{Cost: seven,
				ByStatus: func(int, int64) int64 { return tt.actual }}))
			h := authenticate(m.Handler(answers(200)))
			assert.Equal(t, 200, send1(h).Code)
			assert.Equal(t, 200, send1(h).Code)
			assert.Equal(t, []string{"settle-failed"}, codes(&log))
			assert.EqualValues(t, 86, balances(t, &fixture{limiter: l}, "alice")["tokens"])
		})
	}
}

func TestSettle_AStoreThatFailedHasReservedNothing(t *testing.T) {
	open := tokens
	open.OnError = limiter.Open
	memory := limiter.Must(memstore.New(memstore.Config{}))
	l := limiter.Must(limiter.New(takeFails{memory}, []limiter.Budget{open}, limiter.Config{}))
	m := limiter.Must(middleware.New(l, byUser, keying.Pattern, middleware.Config{Settles: true}))
	ran := false
	send1(authenticate(m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		ran = true
		assert.NoError(t, middleware.Settle(r.Context(), 1))
	}))))
	assert.True(t, ran)
}

// A request that a handler makes up settles what it reserved itself, and nothing
// of the request that it is made for.
func TestSettle_ARequestWithinARequestSettlesItsOwn(t *testing.T) {
	f := newFixture(t, tokens)
	var limited http.Handler
	cost := func(r *http.Request) int64 {
		if r.URL.Path == "/batch" {
			return 50
		}
		return 5
	}
	limit := f.middleware(t, byUser, keying.Pattern, middleware.Config{Settles: true, Cost: cost})
	limited = authenticate(limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/batch" {
			assert.NoError(t, middleware.Settle(r.Context(), 1))
			return
		}
		for range 3 {
			item, err := http.NewRequestWithContext(r.Context(), "GET", "/item", nil)
			assert.NoError(t, err)
			item.Header.Set("X-Test-User", "alice")
			limited.ServeHTTP(w, item)
		}
		assert.NoError(t, middleware.Settle(r.Context(), 40))
	})))
	r := httptest.NewRequest("POST", "/batch", nil)
	r.Header.Set("X-Test-User", "alice")
	limited.ServeHTTP(httptest.NewRecorder(), r)
	assert.EqualValues(t, 100-40-3, balances(t, f, "alice")["tokens"])
}

func TestByStatus_AWebsocketWorksAndKeepsItsCost(t *testing.T) {
	f := newFixture(t, tokens)
	server := serve(t, f.middleware(t, keying.Authenticated(keying.OrShared()), keying.Pattern,
		middleware.Config{Settles: true, ByStatus: func(int, int64) int64 { return 0 }})(echo))
	conn, in, resp := upgrade(t, server)
	require.Equal(t, 101, resp.StatusCode)
	for range 100 {
		_, err := io.WriteString(conn, "message\n")
		require.NoError(t, err)
		got, err := in.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "message\n", got)
	}
	require.NoError(t, conn.Close())
	server.Close()
	d, err := f.limiter.Peek(t.Context(), limiter.Caller{
		Principal: limiter.Principal{Kind: keying.KindShared, ID: "everybody"}}, 0)
	require.NoError(t, err)
	assert.EqualValues(t, 99, d.Remaining)
}

// Whoever is let in while it is not known who fails is held by what is reserved.
func TestByStatus_ConcurrencyAdmitsNoMoreThanIsReserved(t *testing.T) {
	f := newFixture(t, limiter.Budget{Name: "b", Scope: limiter.ByPrincipal,
		Limit: limiter.PerHour(5)})
	limit := f.middleware(t, byUser, keying.Pattern, middleware.Config{
		ByStatus: func(int, int64) int64 { return 0 },
	})
	for range 20 {
		var running, refused atomic.Int64
		all := make(chan struct{})
		h := authenticate(limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			running.Add(1)
			<-all
			w.WriteHeader(http.StatusOK)
		})))
		var group sync.WaitGroup
		for range 200 {
			group.Go(func() {
				if send1(h).Code == 429 && refused.Add(1) == 195 {
					close(all)
				}
			})
		}
		group.Wait()
		assert.EqualValues(t, 5, running.Load())
		assert.EqualValues(t, 5, balances(t, f, "alice")["b"], "all were given back")
	}
}
