package limiter_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
)

// unavailableOnce is a store whose Settle fails at one call and changes nothing then.
type unavailableOnce struct {
	limiter.Store
	calls, fails int
}

func (s *unavailableOnce) Settle(ctx context.Context, charges []limiter.Charge) error {
	if s.calls++; s.calls == s.fails {
		return &limiter.StoreError{Reason: "unavailable", Err: errors.New("down")}
	}
	return s.Store.Settle(ctx, charges)
}

func settling(t *testing.T, fails int) (*limiter.Limiter, *unavailableOnce) {
	t.Helper()
	store := &unavailableOnce{Store: newStore(t, new(manual)), fails: fails}
	l, err := limiter.New(store, []limiter.Budget{{Name: "b", Scope: limiter.ByPrincipal,
		Limit: limiter.PerDay(10), OnError: limiter.Closed}}, limiter.Config{})
	require.NoError(t, err)
	for range 2 {
		_, err = l.Adapter().Setup("test", true, nil)
		require.NoError(t, err)
	}
	return l, store
}

func left(t *testing.T, l *limiter.Limiter) int64 {
	t.Helper()
	d, err := l.Peek(t.Context(), alice, 0)
	require.NoError(t, err)
	return d.Remaining
}

// What the handler said is not overruled by a rule of the adapter, though the
// handler's call has failed and may be tried again.
func TestSettle_OfAHandlerThatFailedIsNotOverruled(t *testing.T) {
	l, _ := settling(t, 1)
	r := limiter.Request{Transport: "test", Caller: alice, Cost: 5, Settles: true}
	ctx, err := l.Adapter().Take(t.Context(), &r)
	require.NoError(t, err)
	require.Error(t, limiter.Settle(ctx, 4))
	assert.ErrorIs(t, r.Reservation.Settle(ctx, 0), limiter.ErrReceipt)
	assert.EqualValues(t, 5, left(t, l))
	require.NoError(t, limiter.Settle(ctx, 4))
	assert.EqualValues(t, 6, left(t, l))
}

// A call that has settled one part of a request, and failed at another, settles the
// rest when it is repeated.
func TestSettle_ARepeatedCallSettlesTheEarlierPart(t *testing.T) {
	l, _ := settling(t, 2)
	outer := limiter.Request{Transport: "test", Caller: alice, Cost: 1, Settles: true}
	ctx, err := l.Adapter().Take(t.Context(), &outer)
	require.NoError(t, err)
	inner := limiter.Request{Transport: "test", Caller: alice, Cost: 5, Settles: true}
	ctx, err = l.Adapter().Take(ctx, &inner)
	require.NoError(t, err)
	require.EqualValues(t, 5, left(t, l))
	require.Error(t, limiter.Settle(ctx, 0))
	require.NoError(t, limiter.Settle(ctx, 0))
	assert.EqualValues(t, 10, left(t, l))
	assert.ErrorIs(t, limiter.Settle(ctx, 0), limiter.ErrReceipt)
}

// The reservation of an outer adapter corrects what was charged further in, too.
func TestReservation_OfAnOuterAdapterReachesTheLaterPart(t *testing.T) {
	for actual, want := range map[int64]int64{0: 10, 3: 7, 9: 1} {
		l, _ := settling(t, 0)
		outer := limiter.Request{Transport: "test", Caller: alice, Cost: 1, Reserve: true}
		ctx, err := l.Adapter().Take(t.Context(), &outer)
		require.NoError(t, err)
		inner := limiter.Request{Transport: "test", Caller: alice, Cost: 6}
		_, err = l.Adapter().Take(ctx, &inner)
		require.NoError(t, err)
		require.EqualValues(t, 4, left(t, l))
		require.NoError(t, outer.Reservation.Settle(ctx, actual))
		assert.Equal(t, want, left(t, l), "settled at %d", actual)
	}
}

// A correction that a store has not made is reported, whatever error says so. A mistake of
// the caller is no loss.
func TestReservation_EverySettleThatFailsIsReported(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		lost int
	}{
		"a store error":   {&limiter.StoreError{Reason: "unavailable", Err: errors.New("down")}, 1},
		"any error":       {errors.New("connection refused"), 1},
		"a timeout":       {context.DeadlineExceeded, 1},
		"a wrong cost":    {&limiter.CostError{Cost: 7}, 0},
		"a wrong limit":   {&limiter.ConfigError{Field: "Limit"}, 0},
		"settled already": {limiter.ErrReceipt, 0},
		"none":            {nil, 0},
	} {
		store := &settleFails{Store: newStore(t, new(manual)), errs: []error{test.err}}
		lost := 0
		l := limiter.Must(limiter.New(store, []limiter.Budget{{Name: "b", Limit: limiter.PerDay(10),
			OnError: limiter.Closed}}, limiter.Config{Observer: limiter.Observer{
			SettleLost: func(string, string) { lost++ },
		}}))
		r, err := l.Reserve(t.Context(), alice, 5)
		require.NoError(t, err)
		require.Equal(t, test.err, r.Cancel(t.Context()))
		assert.Equal(t, test.lost, lost, name)
	}
}
