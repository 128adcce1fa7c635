package grpcinterceptor_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ration-go/ration/grpcinterceptor"
	"github.com/ration-go/ration/internal/lab/redistest"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/redisstore"
	"github.com/ration-go/ration/limiter/storekit"
)

// inRedis are budgets of each kind, all of plenty, and one of requests.
var inRedis = []limiter.Budget{
	{Name: "bucket", Limit: limiter.PerDay(100)},
	{Name: "window", Limit: limiter.Limit{
		Algorithm: limiter.FixedWindow, Tokens: 100, Per: 365 * 24 * time.Hour}},
	{Name: "log", Limit: limiter.Limit{
		Algorithm: limiter.RollingLog, Tokens: 100, Per: 24 * time.Hour}},
	{Name: "requests", PerRequest: true, Limit: limiter.PerDay(100)},
}

// shared is a limiter on a server.
type shared struct {
	*limiter.Limiter
	*reports
}

func newShared(t *testing.T, network, addr string, timeout time.Duration) shared {
	t.Helper()
	client := redis.NewClient(&redis.Options{Network: network, Addr: addr})
	t.Cleanup(func() { _ = client.Close() })
	store, err := redisstore.New(client, redisstore.Config{Timeout: timeout})
	require.NoError(t, err)
	budgets := slices.Clone(inRedis)
	for i := range budgets {
		budgets[i].Scope, budgets[i].OnError = limiter.ByPrincipal, limiter.Closed
	}
	l, log := limiterOver(t, store, budgets...)
	return shared{l, log}
}

// spent requires that alice has spent so much of each budget of tokens, and so
// many requests.
func (s shared) spent(t *testing.T, tokens, requests int64) {
	t.Helper()
	assert.Equal(t, map[string]int64{"bucket": 100 - tokens, "window": 100 - tokens,
		"log": 100 - tokens, "requests": 100 - requests - 1}, // asking is a request
		s.remaining(t, s.Limiter, limiter.Caller{Principal: alice}))
}

// patient is a timeout for tests of what is decided, on machines under load.
const patient = 10 * time.Second

func TestRedis_ACallIsSettled(t *testing.T) {
	server := redistest.Start(t)
	handlers := grpcinterceptor.Config{Cost: seven, Settles: true}
	rule := grpcinterceptor.Config{Cost: seven, ByCode: byCode}
	for name, tt := range map[string]struct {
		cfg     grpcinterceptor.Config
		handler func(context.Context) error
		want    int64
		code    codes.Code
	}{
		"down":    {handlers, settleAt(3), 3, codes.OK},
		"to-0":    {handlers, settleAt(0), 0, codes.OK},
		"up":      {handlers, settleAt(20), 20, codes.OK},
		"not":     {handlers, fails(codes.Unknown), 7, codes.Unknown},
		"rule":    {rule, func(context.Context) error { return nil }, 1, codes.OK},
		"rule-up": {rule, fails(codes.InvalidArgument), 9, codes.InvalidArgument},
		"panic":   {rule, func(context.Context) error { panic("mistake") }, 7, codes.Internal},
	} {
		t.Run(name, func(t *testing.T) {
			server.Do("FLUSHALL")
			l := newShared(t, server.Network, server.Addr, patient)
			client, stop := act(t, &service{unary: tt.handler}, intercept(t, l.Limiter, users, tt.cfg))
			_, err := client.EmptyCall(as(t, "alice"), empty)
			assert.Equal(t, tt.code, status.Code(err))
			stop()
			l.spent(t, tt.want, 1)
		})
	}
}

func settleAt(actual int64) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := grpcinterceptor.Settle(ctx, actual); err != nil {
			return err
		}
		if err := grpcinterceptor.Settle(ctx, 0); err != limiter.ErrReceipt {
			return status.Errorf(codes.Internal, "settled again: %v", err)
		}
		return nil
	}
}

func TestRedis_MessagesAreSettledEach(t *testing.T) {
	server := redistest.Start(t)
	for name, tt := range map[string]struct {
		lengths        []int
		actuals        []int64 // -1: nothing is said
		want, requests int64
	}{
		"each":  {[]int{10, 20, 30}, []int64{1, 2, 3}, 6, 3},
		"none":  {[]int{10, 20, 30}, []int64{-1, -1, -1}, 60, 3},
		"first": {[]int{10, 20}, []int64{0, -1}, 20, 2},
		"up":    {[]int{10}, []int64{50}, 50, 1},
	} {
		t.Run(name, func(t *testing.T) {
			server.Do("FLUSHALL")
			l := newShared(t, server.Network, server.Addr, patient)
			cfg := byLength
			cfg.Settles = true
			client, stop := act(t, &service{stream: func(s conversation) error {
				for _, actual := range tt.actuals {
					if _, err := s.Recv(); err != nil {
						return err
					}
					if actual >= 0 {
						assert.NoError(t, grpcinterceptor.Settle(s.Context(), actual))
					}
					if err := s.Send(response); err != nil {
						return err
					}
				}
				return nil
			}}, intercept(t, l.Limiter, users, cfg))
			_, _, err := converse(as(t, "alice"), client, tt.lengths...)
			require.NoError(t, err)
			stop()
			l.spent(t, tt.want, tt.requests)
		})
	}
}

// A correction whose reply is lost was booked once, and is not tried again.
func TestRedis_ALostReplyToSettleBooksItOnce(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server)
	l := newShared(t, proxy.Network, proxy.Addr, patient)
	client, stop := act(t, &service{unary: func(ctx context.Context) error {
		var failed *limiter.StoreError
		proxy.Set(redistest.LoseReply)
		if assert.ErrorAs(t, grpcinterceptor.Settle(ctx, 3), &failed) {
			assert.Equal(t, storekit.Ambiguous, failed.Reason)
		}
		proxy.Set(redistest.None)
		assert.ErrorIs(t, grpcinterceptor.Settle(ctx, 3), limiter.ErrReceipt)
		return nil
	}}, intercept(t, l.Limiter, users,
		grpcinterceptor.Config{Cost: seven, Settles: true, ByCode: byCode}))
	_, err := client.EmptyCall(as(t, "alice"), empty)
	require.NoError(t, err)
	stop()
	l.spent(t, 3, 1)
	assert.Empty(t, l.logged())
}

// A server that has gone while the handler ran takes nothing from its answer.
func TestRedis_WithoutItsServerACallKeepsItsAnswerAndItsCost(t *testing.T) {
	server := redistest.Start(t)
	l := newShared(t, server.Network, server.Addr, 200*time.Millisecond)
	client, stop := act(t, &service{unary: func(context.Context) error {
		server.Pause()
		return nil
	}}, intercept(t, l.Limiter, users, grpcinterceptor.Config{Cost: seven, ByCode: byCode}))
	_, err := client.EmptyCall(as(t, "alice"), empty)
	require.NoError(t, err)
	stop()
	assert.Contains(t, l.logged(), "code=settle-failed")
	server.Resume()
	newShared(t, server.Network, server.Addr, patient).spent(t, 7, 1)
}

// The deadline of a client is no failure of the store: while the server hangs, no
// policy answers for calls whose own time is over.
func TestRedis_ADeadlineOfTheClientNeverOpensABudget(t *testing.T) {
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Network: server.Network, Addr: server.Addr})
	t.Cleanup(func() { _ = client.Close() })
	store, err := redisstore.New(client, redisstore.Config{Timeout: patient})
	require.NoError(t, err)
	l, log := limiterOver(t, store, limiter.Budget{Name: "api", Scope: limiter.ByPrincipal,
		Limit: limiter.PerDay(100), OnError: limiter.Open})
	caller, stop := act(t, &service{unary: func(context.Context) error {
		t.Error("the handler ran")
		return nil
	}}, intercept(t, l, users, grpcinterceptor.Config{}))
	server.Pause()
	defer server.Resume()
	for range 3 {
		ctx, cancel := context.WithTimeout(as(t, "alice"), 50*time.Millisecond)
		_, err := caller.EmptyCall(ctx, empty)
		cancel()
		assert.Equal(t, codes.DeadlineExceeded, status.Code(err))
	}
	stop()
	log.mu.Lock()
	defer log.mu.Unlock()
	require.Len(t, log.seen, 3)
	for _, r := range log.seen {
		assert.Equal(t, "canceled", r.outcome)
	}
}
