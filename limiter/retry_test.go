package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/storekit"
)

// settleFails is a store whose next Settles fail, before or after they did it.
type settleFails struct {
	limiter.Store
	errs     []error
	after    bool
	consumes bool
	calls    int
}

func (s *settleFails) Settle(ctx context.Context, charges []limiter.Charge) error {
	s.calls++
	if len(s.errs) == 0 {
		return s.Store.Settle(ctx, charges)
	}
	err := s.errs[0]
	s.errs = s.errs[1:]
	if s.after {
		copied := slices.Clone(charges)
		if err := s.Store.Settle(ctx, copied); err != nil {
			return err
		}
	}
	if s.consumes {
		charges[0].Receipt = limiter.Receipt{}
	}
	return err
}

func newSettleFails(t *testing.T, errs ...error) (*settleFails, *limiter.Limiter) {
	s := &settleFails{Store: newStore(t, new(manual)), errs: errs}
	return s, limiter.Must(limiter.New(s, failClosed, limiter.Config{}))
}

var failClosed = []limiter.Budget{{Name: "b", Limit: limiter.PerHour(5), OnError: limiter.Closed}}

func storeError(reason string) error {
	return &limiter.StoreError{Reason: reason, Err: errors.New("no answer")}
}

func TestReservation_ASettleThatChangedNothingCanBeCalledAgain(t *testing.T) {
	for name, err := range map[string]error{
		"unavailable": storeError(storekit.Unavailable),
		"timeout":     storeError(storekit.Timeout),
		"overload":    storeError(storekit.Overload),
		"wrapped":     fmt.Errorf("mine: %w", storeError(storekit.Unavailable)),
		"cost":        &limiter.CostError{Cost: 9},
		"config":      &limiter.ConfigError{Field: "Limit"},
	} {
		t.Run(name, func(t *testing.T) {
			s, l := newSettleFails(t, err, err, err, err)
			settled, cancelled := reserve(t, l, 3), reserve(t, l, 2)
			require.Equal(t, err, settled.Settle(background, 1))
			require.Equal(t, err, settled.Cancel(background))
			require.Equal(t, err, cancelled.Cancel(background))
			require.Equal(t, err, cancelled.Settle(background, 2-1))
			assert.Equal(t, "b deny 12m0s", peek(t, l, alice, 1), "what was reserved stands")
			require.NoError(t, settled.Settle(background, 1))
			require.NoError(t, cancelled.Cancel(background), "after a Settle that failed")
			assert.Equal(t, "b allow 4", peek(t, l, alice, 0))
			require.ErrorIs(t, settled.Settle(background, 0), limiter.ErrReceipt)
			require.ErrorIs(t, cancelled.Cancel(background), limiter.ErrReceipt)
			assert.Equal(t, 6, s.calls)
		})
	}
}

func TestReservation_ASettleThatMayHaveHappenedIsNotCalledAgain(t *testing.T) {
	for name, err := range map[string]error{
		"ambiguous":   storeError(storekit.Ambiguous),
		"other":       storeError(storekit.Other),
		"no reason":   storeError(""),
		"foreign":     errors.New("connection reset"),
		"context":     context.DeadlineExceeded,
		"no receipt":  limiter.ErrReceipt,
		"a later one": storeError("eclipse"),
	} {
		t.Run(name, func(t *testing.T) {
			s, l := newSettleFails(t, err)
			s.after = true
			r := reserve(t, l, 3)
			require.Equal(t, err, r.Settle(background, 1))
			require.ErrorIs(t, r.Settle(background, 1), limiter.ErrReceipt)
			require.ErrorIs(t, r.Cancel(background), limiter.ErrReceipt)
			assert.Equal(t, 1, s.calls)
			assert.Equal(t, "b allow 4", peek(t, l, alice, 0), "credited once")
		})
	}
}

func TestReservation_AConsumedReceiptIsNotSettledAgain(t *testing.T) {
	s, l := newSettleFails(t, storeError(storekit.Unavailable))
	s.consumes = true
	r := reserve(t, l, 3)
	require.Error(t, r.Settle(background, 1))
	require.ErrorIs(t, r.Settle(background, 1), limiter.ErrReceipt)
}

func TestReservation_ASettleThatCorrectsNothingAsksNoStore(t *testing.T) {
	s, l := newSettleFails(t, storeError(storekit.Unavailable))
	require.NoError(t, reserve(t, l, 2).Settle(background, 2))
	assert.Zero(t, s.calls)
}

func TestReservation_ManyRetriesOfOneSettleCountOnce(t *testing.T) {
	errs := make([]error, 20)
	for i := range errs {
		errs[i] = storeError(storekit.Unavailable)
	}
	s, _ := newSettleFails(t, errs...)
	locked := &lockedSettle{settleFails: s}
	l := limiter.Must(limiter.New(locked, failClosed, limiter.Config{}))
	r := reserve(t, l, 5)
	var done atomic.Int64
	var group sync.WaitGroup
	for i := range 16 {
		group.Go(func() {
			for range 50 {
				settle := func() error { return r.Settle(background, 3) }
				if i%2 == 0 {
					settle = func() error { return r.Cancel(background) }
				}
				if settle() == nil {
					done.Add(1)
				}
				_ = l.Reload(failClosed)
			}
		})
	}
	group.Wait()
	if done.Load() == 0 { // all lost against one in flight
		require.NoError(t, r.Settle(background, 3))
		done.Add(1)
	}
	assert.EqualValues(t, 1, done.Load())
	d, err := l.Peek(background, alice, 0)
	require.NoError(t, err)
	assert.Contains(t, []int64{2, 5}, d.Remaining)
}

// lockedSettle lets one Settle in at a time.
type lockedSettle struct {
	*settleFails
	mu sync.Mutex
}

func (s *lockedSettle) Settle(ctx context.Context, charges []limiter.Charge) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settleFails.Settle(ctx, charges)
}

// fickle is a store that writes receipts and then fails.
type fickle struct{ limiter.Store }

func (s fickle) Take(ctx context.Context, charges []limiter.Charge) (limiter.Decision, error) {
	_, _ = s.Store.Take(ctx, charges)
	for i := range charges {
		charges[i].Receipt = limiter.Receipt{Taken: 5, Valid: true}
	}
	return limiter.Decision{}, storeError(storekit.Ambiguous)
}

func TestReservation_ATakeThatFailedLeavesNothingToSettle(t *testing.T) {
	store := newStore(t, new(manual))
	budgets := []limiter.Budget{{Name: "b", Limit: limiter.PerHour(5), OnError: limiter.Open}}
	l := limiter.Must(limiter.New(fickle{store}, budgets, limiter.Config{}))
	r, err := l.Reserve(background, alice, 5)
	require.Error(t, err)
	require.True(t, r.Decision.Allowed())
	require.NoError(t, r.Cancel(background))
	sound := limiter.Must(limiter.New(store, budgets, limiter.Config{}))
	assert.Equal(t, "b allow 0", peek(t, sound, alice, 0), "what it took stands")
}
