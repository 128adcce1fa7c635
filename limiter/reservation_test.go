package limiter_test

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
)

func storeWithNow(t *testing.T, now func() time.Time) limiter.Store {
	t.Helper()
	s, err := memstore.New(memstore.Config{Now: now})
	require.NoError(t, err)
	return s
}

func reserve(t *testing.T, l *limiter.Limiter, cost int64) *limiter.Reservation {
	t.Helper()
	r, err := l.Reserve(background, alice, cost)
	require.NoError(t, err)
	return r
}

func TestReservation_SettleReplacesTheReservedCost(t *testing.T) {
	for _, algorithm := range []limiter.Algorithm{
		limiter.TokenBucket, limiter.FixedWindow, limiter.RollingLog} {
		t.Run(algorithmName(algorithm), func(t *testing.T) {
			l, _ := newLimiter(t, limiter.Budget{Name: "b",
				Limit: limiter.Limit{Algorithm: algorithm, Tokens: 20, Per: time.Minute}})
			less, same, more := reserve(t, l, 5), reserve(t, l, 5), reserve(t, l, 5)
			require.NoError(t, less.Settle(background, 2))
			require.NoError(t, same.Settle(background, 5))
			require.NoError(t, more.Settle(background, 6))
			assert.Equal(t, "b allow 7", peek(t, l, alice, 0))
			nothing := reserve(t, l, 0)
			require.NoError(t, nothing.Settle(background, 3))
			assert.Equal(t, "b allow 4", peek(t, l, alice, 0), "what was unknown is charged")
		})
	}
}

func TestReservation_CancelGivesBackExactlyWhatWasTaken(t *testing.T) {
	l, _ := newLimiter(t,
		limiter.Budget{Name: "b", Limit: bucketOf(10, time.Second, 20)},
		limiter.Budget{Name: "requests", Limit: limiter.PerHour(100), PerRequest: true})
	r := reserve(t, l, 10)
	require.NoError(t, r.Cancel(background))
	d, err := l.Take(background, alice, 20)
	require.NoError(t, err)
	assert.True(t, d.Allowed())
	assert.Equal(t, "b deny 100ms", take(t, l, alice, 1), "and not a token more")
}

func TestReservation_CreditsStopAtTheCapacity(t *testing.T) {
	l, clock := newLimiter(t, limiter.Budget{Name: "b", Limit: bucketOf(10, time.Second, 20)})
	r := reserve(t, l, 10)
	clock.add(time.Hour)
	require.NoError(t, r.Cancel(background))
	assert.Equal(t, "b allow 20", peek(t, l, alice, 0))
	assert.Equal(t, "b never", peek(t, l, alice, 21))
}

func TestReservation_CountsOnce(t *testing.T) {
	l, _ := newLimiter(t, limiter.Budget{Name: "b", Limit: limiter.PerHour(20)})
	r := reserve(t, l, 10)
	other := reserve(t, l, 10)
	require.NoError(t, r.Settle(background, 8))
	require.ErrorIs(t, r.Settle(background, 0), limiter.ErrReceipt)
	require.ErrorIs(t, r.Cancel(background), limiter.ErrReceipt)
	require.NoError(t, other.Cancel(background))
	require.ErrorIs(t, other.Cancel(background), limiter.ErrReceipt)
	assert.Equal(t, "b allow 12", peek(t, l, alice, 0))
}

func TestReservation_OneOfManySettlersCounts(t *testing.T) {
	l, _ := newLimiter(t, limiter.Budget{Name: "b", Limit: limiter.PerHour(20)})
	r := reserve(t, l, 10)
	var done atomic.Int64
	var group sync.WaitGroup
	for range 32 {
		group.Go(func() {
			if r.Settle(background, 9) == nil {
				done.Add(1)
			}
		})
	}
	group.Wait()
	assert.EqualValues(t, 1, done.Load())
	assert.Equal(t, "b allow 11", peek(t, l, alice, 0))
}

func TestReservation_MoreThanWasReservedIsADebt(t *testing.T) {
	l, clock := newLimiter(t, limiter.Budget{Name: "b", Limit: bucketOf(1, time.Second, 10)})
	require.NoError(t, reserve(t, l, 10).Settle(background, 1_000_000))
	assert.Equal(t, "b deny 11s", take(t, l, alice, 1), "down to minus the capacity")
	assert.Equal(t, "b allow 0", take(t, l, alice, 0), "a cost of 0 is free, also in debt")
	clock.add(11 * time.Second)
	assert.Equal(t, "b allow 0", take(t, l, alice, 1))
}

func TestReservation_PerRequestBudgetsKeepTheirOne(t *testing.T) {
	l, _ := newLimiter(t,
		limiter.Budget{Name: "tokens", Limit: limiter.PerHour(1000)},
		limiter.Budget{Name: "requests", Limit: limiter.PerHour(10), PerRequest: true})
	require.NoError(t, reserve(t, l, 500).Settle(background, 3))
	assert.Equal(t, "requests allow 8", take(t, l, alice, 1))
	require.NoError(t, reserve(t, l, 500).Cancel(background))
	assert.Equal(t, "requests allow 7", take(t, l, alice, 1), "a cancelled request is none")
	assert.Equal(t, "tokens allow 0", take(t, l, alice, 995), "nor has it any cost")
}

func TestReservation_SettlesAfterTheRequestIsCancelled(t *testing.T) {
	l, _ := newLimiter(t, limiter.Budget{Name: "b", Limit: limiter.PerHour(20)})
	ctx, cancel := context.WithCancel(background)
	r, err := l.Reserve(ctx, alice, 10)
	require.NoError(t, err)
	again, err := l.Reserve(ctx, alice, 10)
	require.NoError(t, err)
	cancel()
	require.NoError(t, r.Settle(ctx, 1))
	require.NoError(t, again.Cancel(ctx))
	assert.Equal(t, "b allow 19", peek(t, l, alice, 0))
}

func TestReservation_WhatNobodySettlesStands(t *testing.T) {
	l, _ := newLimiter(t, limiter.Budget{Name: "b", Limit: limiter.PerHour(20)})
	func() {
		defer func() { _ = recover() }()
		reserve(t, l, 15)
		panic("the handler")
	}()
	assert.Equal(t, "b allow 5", peek(t, l, alice, 0))
}

func TestReservation_ARefusedOneHasNothingToSettle(t *testing.T) {
	l, _ := newLimiter(t, limiter.Budget{Name: "b", Limit: limiter.PerHour(5)})
	for _, cost := range []int64{6, 4, 4} {
		r := reserve(t, l, cost)
		if r.Decision.Allowed() {
			continue
		}
		require.ErrorIs(t, r.Settle(background, 0), limiter.ErrReceipt)
		require.ErrorIs(t, r.Cancel(background), limiter.ErrReceipt)
	}
	assert.Equal(t, "b allow 1", peek(t, l, alice, 0))
}

func TestReservation_ANegativeActualCostIsAnErrorAndSettlesNothing(t *testing.T) {
	l, _ := newLimiter(t, limiter.Budget{Name: "b", Limit: limiter.PerHour(5)})
	r := reserve(t, l, 5)
	var bad *limiter.CostError
	require.ErrorAs(t, r.Settle(background, math.MinInt64), &bad)
	assert.Equal(t, "b allow 0", peek(t, l, alice, 0))
	require.NoError(t, r.Settle(background, 1), "and it can still be settled")
}

func TestReservation_ShadowChargesAreSettledWhereTheyWerePaid(t *testing.T) {
	l, _ := newLimiter(t,
		limiter.Budget{Name: "real", Limit: limiter.PerHour(100)},
		limiter.Budget{Name: "trial", Limit: limiter.PerHour(10), Shadow: true})
	paid, unpaid := reserve(t, l, 8), reserve(t, l, 8)
	require.NoError(t, unpaid.Settle(background, 80))
	require.NoError(t, paid.Cancel(background))
	require.NoError(t, l.Reload([]limiter.Budget{{Name: "trial", Limit: limiter.PerHour(10)}}))
	assert.Equal(t, "trial allow 10", peek(t, l, alice, 0))
}

func TestReservation_CancelAfterTheWindowHasEndedChangesNothing(t *testing.T) {
	for _, algorithm := range []limiter.Algorithm{limiter.FixedWindow, limiter.RollingLog} {
		l, clock := newLimiter(t, limiter.Budget{Name: "b",
			Limit: limiter.Limit{Algorithm: algorithm, Tokens: 5, Per: time.Minute}})
		r := reserve(t, l, 5)
		clock.add(time.Minute)
		take(t, l, alice, 3)
		require.NoError(t, r.Cancel(background))
		assert.Equal(t, "b allow 2", peek(t, l, alice, 0), "%v", algorithm)
	}
}
