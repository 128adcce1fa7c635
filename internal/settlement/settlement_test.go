package settlement_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ration-go/ration/internal/settlement"
	"github.com/ration-go/ration/limiter"
)

// fake remembers what it was settled at, and answers an error of its own.
type fake struct {
	err     error
	actuals []int64
}

func (f *fake) Settle(_ context.Context, actual int64) error {
	f.actuals = append(f.actuals, actual)
	return f.err
}

type other struct{}

func TestSettle_ReachesEachReservationOnce(t *testing.T) {
	outer, inner := &fake{}, &fake{}
	ctx := settlement.With(t.Context(), "r", outer)
	ctx = context.WithValue(ctx, other{}, "kept")
	ctx = context.WithoutCancel(settlement.With(ctx, "r", inner))
	assert.NoError(t, settlement.Settle(ctx, 7))
	assert.Equal(t, []int64{7}, outer.actuals)
	assert.Equal(t, []int64{7}, inner.actuals)
	assert.Equal(t, "kept", ctx.Value(other{}))
}

func TestSettle_TriesAllAndReturnsTheInnermostError(t *testing.T) {
	first, second := errors.New("inner"), errors.New("outer")
	outer, middle, inner := &fake{err: second}, &fake{err: first}, &fake{}
	ctx := settlement.With(settlement.With(settlement.With(t.Context(), "r", outer), "r", middle), "r", inner)
	assert.Same(t, first, settlement.Settle(ctx, 1))
	assert.Len(t, outer.actuals, 1)
}

func TestSettle_KnowsNoReservationInAnotherContext(t *testing.T) {
	settlement.With(t.Context(), "r", &fake{})
	assert.ErrorIs(t, settlement.Settle(t.Context(), 1), limiter.ErrReceipt)
}

// Where one of two limiters could not be reached, the call is repeated.
func TestSettle_ARepeatedCallSettlesWhatIsStillOpen(t *testing.T) {
	down := errors.New("unavailable")
	outer, inner := &fake{err: down}, &fake{}
	ctx := settlement.With(settlement.With(t.Context(), "r", outer), "r", inner)
	assert.Same(t, down, settlement.Settle(ctx, 1))
	inner.err = limiter.ErrReceipt
	assert.Same(t, down, settlement.Settle(ctx, 1), "still")
	outer.err = nil
	assert.NoError(t, settlement.Settle(ctx, 1))
	outer.err = limiter.ErrReceipt
	assert.ErrorIs(t, settlement.Settle(ctx, 1), limiter.ErrReceipt)
}
