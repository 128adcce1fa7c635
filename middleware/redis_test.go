package middleware_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/lab/redistest"
	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/redisstore"
	"github.com/ration-go/ration/limiter/storekit"
	"github.com/ration-go/ration/middleware"
)

// patient is a timeout for tests of what is decided, on machines under load.
const patient = 10 * time.Second

// newShared returns a fixture on a server, with budgets of tokens of each kind
// and one of requests, each of 100, and what it logs.
func newShared(
	t *testing.T, network, addr string, timeout time.Duration,
) (f *fixture, logged *bytes.Buffer) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Network: network, Addr: addr})
	t.Cleanup(func() { _ = client.Close() })
	store, err := redisstore.New(client, redisstore.Config{Timeout: timeout})
	require.NoError(t, err)
	budgets := []limiter.Budget{
		{Name: "bucket", Limit: limiter.PerDay(100)},
		{Name: "window", Limit: limiter.Limit{
			Algorithm: limiter.FixedWindow, Tokens: 100, Per: 365 * 24 * time.Hour}},
		{Name: "log", Limit: limiter.Limit{
			Algorithm: limiter.RollingLog, Tokens: 100, Per: 24 * time.Hour}},
		{Name: "requests", PerRequest: true, Limit: limiter.PerDay(100)},
	}
	for i := range budgets {
		budgets[i].Scope, budgets[i].OnError = limiter.ByPrincipal, limiter.Closed
	}
	f, logged = &fixture{seen: &seen{}}, new(bytes.Buffer)
	f.limiter, err = limiter.New(store, budgets, limiter.Config{
		Observer: f.seen.observer(), Logger: slog.New(slog.NewTextHandler(logged, nil)),
	})
	require.NoError(t, err)
	return f, logged
}

// spentInRedis requires that alice has spent so much of each budget of tokens, in
// one request.
func spentInRedis(t *testing.T, f *fixture, tokens int64) {
	t.Helper()
	// The request that asks is one itself.
	assert.Equal(t, map[string]int64{
		"bucket": 100 - tokens, "window": 100 - tokens, "log": 100 - tokens, "requests": 100 - 2,
	}, balances(t, f, "alice"))
}

// costByStatus charges successes 1 and calls without a right argument 9; all else
// stands.
func costByStatus(status int, reserved int64) int64 {
	switch status {
	case http.StatusOK:
		return 1
	case http.StatusBadRequest:
		return 9
	}
	return reserved
}

// asked answers one request of alice with h.
func asked(t *testing.T, f *fixture, cfg middleware.Config, h http.HandlerFunc) int {
	t.Helper()
	server := httptest.NewServer(authenticate(f.middleware(t, byUser, keying.Pattern, cfg)(h)))
	defer server.Close()
	resp, _ := exchange(t, server, http.MethodGet, "/", "alice")
	return resp.StatusCode
}

func TestRedis_ARequestIsSettled(t *testing.T) {
	server := redistest.Start(t)
	handlers := middleware.Config{Cost: seven, Settles: true}
	rule := middleware.Config{Cost: seven, ByStatus: costByStatus}
	for name, tt := range map[string]struct {
		cfg    middleware.Config
		actual int64 // -1: the handler says nothing
		status int
		want   int64
	}{
		"down":     {handlers, 3, 200, 3},
		"to-0":     {handlers, 0, 200, 0},
		"up":       {handlers, 20, 200, 20},
		"not":      {handlers, -1, 500, 7},
		"rule":     {rule, -1, 200, 1},
		"rule-up":  {rule, -1, 400, 9},
		"rule-not": {rule, -1, 500, 7},
	} {
		t.Run(name, func(t *testing.T) {
			server.Do("FLUSHALL")
			f, logged := newShared(t, server.Network, server.Addr, patient)
			status := asked(t, f, tt.cfg, func(w http.ResponseWriter, r *http.Request) {
				if tt.actual >= 0 {
					assert.NoError(t, middleware.Settle(r.Context(), tt.actual))
					assert.ErrorIs(t, middleware.Settle(r.Context(), 0), limiter.ErrReceipt)
				}
				w.WriteHeader(tt.status)
			})
			assert.Equal(t, tt.status, status)
			spentInRedis(t, f, tt.want)
			assert.Empty(t, logged.String())
		})
	}
}

// A correction whose reply is lost was booked once, and is not tried again.
func TestRedis_ALostReplyToSettleBooksItOnce(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server)
	f, logged := newShared(t, proxy.Network, proxy.Addr, patient)
	cfg := middleware.Config{Cost: seven, Settles: true, ByStatus: costByStatus}
	status := asked(t, f, cfg, func(_ http.ResponseWriter, r *http.Request) {
		var failed *limiter.StoreError
		proxy.Set(redistest.LoseReply)
		if assert.ErrorAs(t, middleware.Settle(r.Context(), 3), &failed) {
			assert.Equal(t, storekit.Ambiguous, failed.Reason)
		}
		proxy.Set(redistest.None)
		assert.ErrorIs(t, middleware.Settle(r.Context(), 3), limiter.ErrReceipt)
	})
	assert.Equal(t, 200, status)
	spentInRedis(t, f, 3)
	assert.Empty(t, logged.String())
}

// A server that has gone while the handler ran takes nothing from its answer.
func TestRedis_WithoutItsServerARequestKeepsItsAnswerAndItsCost(t *testing.T) {
	server := redistest.Start(t)
	f, logged := newShared(t, server.Network, server.Addr, 200*time.Millisecond)
	cfg := middleware.Config{Cost: seven, ByStatus: costByStatus}
	status := asked(t, f, cfg, func(w http.ResponseWriter, _ *http.Request) {
		server.Pause()
		w.WriteHeader(http.StatusOK)
	})
	assert.Equal(t, 200, status)
	assert.Contains(t, logged.String(), "code=settle-failed")
	server.Resume()
	f, _ = newShared(t, server.Network, server.Addr, patient)
	spentInRedis(t, f, 7)
}

// The deadline that a service gives its requests is no failure of the store: while
// the server hangs, no policy answers for those whose own time is over.
func TestRedis_ADeadlineOfTheServiceNeverOpensABudget(t *testing.T) {
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Network: server.Network, Addr: server.Addr})
	t.Cleanup(func() { _ = client.Close() })
	store, err := redisstore.New(client, redisstore.Config{Timeout: patient})
	require.NoError(t, err)
	f := &fixture{seen: &seen{}}
	f.limiter, err = limiter.New(store, []limiter.Budget{{Name: "api", Scope: limiter.ByPrincipal,
		Limit: limiter.PerDay(100), OnError: limiter.Open}},
		limiter.Config{Observer: f.seen.observer(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	handler := f.middleware(t, byUser, keying.Pattern, middleware.Config{})(http.HandlerFunc(
		func(http.ResponseWriter, *http.Request) { t.Error("the handler ran") }))
	web := serve(t, authenticate(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 30*time.Millisecond)
		defer cancel()
		handler.ServeHTTP(w, r.WithContext(ctx))
	})))
	server.Pause()
	defer server.Resume()
	for range 3 {
		resp, _ := exchange(t, web, http.MethodGet, "/", "alice")
		assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
		assert.Equal(t, []string{"http unmatched canceled"}, f.seen.take())
	}
}
