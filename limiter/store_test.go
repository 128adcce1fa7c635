package limiter_test

import (
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/storekit"
)

func TestCheckTake_RefusesNegativeCosts(t *testing.T) {
	require.NoError(t, storekit.CheckTake(nil))
	require.NoError(t, storekit.CheckTake([]limiter.Charge{{Cost: 0}, {Cost: math.MaxInt64}}))
	err := storekit.CheckTake([]limiter.Charge{{Cost: 1}, {Cost: -2}})
	assert.Equal(t, &limiter.CostError{Cost: -2, Max: math.MaxInt64}, err)
}

func TestCheckSettle_WantsReceiptsAndNoMoreBackThanWasTaken(t *testing.T) {
	taken := limiter.Receipt{At: 7, Taken: 5, Place: 3, Valid: true}
	require.NoError(t, storekit.CheckSettle(nil))
	require.NoError(t, storekit.CheckSettle([]limiter.Charge{
		{Cost: -5, Receipt: taken}, {Cost: math.MaxInt64, Receipt: taken}}))
	require.ErrorIs(t, storekit.CheckSettle([]limiter.Charge{
		{Cost: -5, Receipt: taken}, {Cost: 1}}), limiter.ErrReceipt)
	err := storekit.CheckSettle([]limiter.Charge{{Cost: -6, Receipt: taken}})
	assert.Equal(t, &limiter.CostError{Cost: -6, Min: -5, Max: math.MaxInt64}, err)
	assert.EqualError(t, err, "limiter: cost = -6: want at least -5")
	assert.EqualError(t, &limiter.CostError{Cost: 9, Min: 1, Max: 8},
		"limiter: cost = 9: want 1 to 8")
}

// refusing is a store that says no in its own words.
type refusing struct{ limiter.Store }

var errMine = errors.New("no room for it")

func (refusing) Check(limiter.Limit) error { return errMine }

func TestNew_KeepsTheReasonOfAStoreThatCannotHoldALimit(t *testing.T) {
	_, err := limiter.New(refusing{newStore(t, new(manual))},
		[]limiter.Budget{{Name: "a", Limit: limiter.PerSecond(1), OnError: limiter.Closed}},
		limiter.Config{})
	require.ErrorIs(t, err, errMine)
	assert.ErrorContains(t, err, "Budgets[0]")
}
