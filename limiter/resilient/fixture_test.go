package resilient_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
	"github.com/ration-go/ration/limiter/resilient"
	"github.com/ration-go/ration/limiter/storekit"
)

var (
	background = context.Background()
	quiet      = slog.New(slog.DiscardHandler)
	alice      = limiter.Caller{Principal: limiter.Principal{Kind: "user", ID: "alice"}, Route: "GET /"}
)

// shared is a store that other processes share, and that can be down. It has a breaker
// of its own that never opens, so nothing stands between it and the test.
type shared struct {
	limiter.Store
	down  atomic.Bool
	asked atomic.Int64
}

var errDown = &limiter.StoreError{Reason: storekit.Unavailable, Err: errors.New("down")}

func newShared(t testing.TB) *shared { return &shared{Store: newMemory(t, nil)} }

func newMemory(t testing.TB, now func() time.Time) *memstore.Store {
	t.Helper()
	s, err := memstore.New(memstore.Config{MaxAccounts: 100_000, Now: now})
	require.NoError(t, err)
	return s
}

func (s *shared) Capabilities() limiter.Capabilities {
	return limiter.Capabilities{
		Name: "shared", BreakerOpen: func() bool { return false }, Reset: s.reset,
	}
}

func (s *shared) reset(ctx context.Context, charges []limiter.Charge) error {
	if s.down.Load() {
		return errDown
	}
	return s.Store.(*memstore.Store).Reset(ctx, charges)
}

func (s *shared) Take(ctx context.Context, c []limiter.Charge) (limiter.Decision, error) {
	s.asked.Add(1)
	if s.down.Load() {
		return limiter.Decision{}, errDown
	}
	return s.Store.Take(ctx, c)
}

func (s *shared) Peek(ctx context.Context, c []limiter.Charge) (limiter.Decision, error) {
	if s.down.Load() {
		return limiter.Decision{}, errDown
	}
	return s.Store.Peek(ctx, c)
}

func (s *shared) Settle(ctx context.Context, c []limiter.Charge) error {
	if s.down.Load() {
		return errDown
	}
	return s.Store.Settle(ctx, c)
}

// local is a local store that counts what it is asked.
type local struct {
	*memstore.Store
	taken [][]limiter.Charge // as they were charged
}

func (l *local) Take(ctx context.Context, c []limiter.Charge) (limiter.Decision, error) {
	l.taken = append(l.taken, slices.Clone(c))
	return l.Store.Take(ctx, c)
}

// process is one process with its limiter.
type process struct {
	*limiter.Limiter
	shared *shared
	local  *local
	store  *resilient.Store
}

// newProcess returns one of so many processes.
func newProcess(t testing.TB, replicas int, budgets ...limiter.Budget) *process {
	t.Helper()
	return newProcessWith(t, newShared(t), limiter.Config{Logger: quiet},
		resilient.Config{Replicas: func() int { return replicas }}, budgets...)
}

func newProcessWith(
	t testing.TB, s *shared, cfg limiter.Config, resilience resilient.Config,
	budgets ...limiter.Budget,
) *process {
	t.Helper()
	p := &process{shared: s, local: &local{Store: newMemory(t, nil)}}
	var err error
	p.store, err = resilient.New(s, p.local, resilience)
	require.NoError(t, err)
	p.Limiter, err = limiter.New(p.store, budgets, cfg)
	require.NoError(t, err)
	return p
}

// take takes cost for alice, and returns the policy that has answered; 0 if the shared
// store has decided.
func (p *process) take(t testing.TB, cost int64) (limiter.Decision, limiter.FailurePolicy) {
	t.Helper()
	return answeredBy(t)(p.Take(background, alice, cost))
}

func answeredBy(
	t testing.TB,
) func(limiter.Decision, error) (limiter.Decision, limiter.FailurePolicy) {
	return func(d limiter.Decision, err error) (limiter.Decision, limiter.FailurePolicy) {
		t.Helper()
		if err == nil {
			return d, 0
		}
		var failed *limiter.StoreError
		require.ErrorAs(t, err, &failed)
		return d, failed.Policy
	}
}
