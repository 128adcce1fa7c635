package limiter_test

import (
	"cmp"
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
)

func TestCheckTake_RefusesNegativeCosts(t *testing.T) {
	require.NoError(t, limiter.CheckTake(nil))
	require.NoError(t, limiter.CheckTake([]limiter.Charge{{Cost: 0}, {Cost: math.MaxInt64}}))
	err := limiter.CheckTake([]limiter.Charge{{Cost: 1}, {Cost: -2}})
	assert.Equal(t, &limiter.CostError{Cost: -2, Max: math.MaxInt64}, err)
}

func TestCheckSettle_WantsReceiptsAndNoMoreBackThanWasTaken(t *testing.T) {
	taken := limiter.NewReceipt(7, 5, 3)
	at, tokens, place, ok := taken.Taken()
	assert.Equal(t, []any{int64(7), int64(5), uint64(3), true}, []any{at, tokens, place, ok})

	require.NoError(t, limiter.CheckSettle(nil))
	require.NoError(t, limiter.CheckSettle([]limiter.Charge{
		{Cost: -5, Receipt: taken}, {Cost: math.MaxInt64, Receipt: taken}}))
	require.ErrorIs(t, limiter.CheckSettle([]limiter.Charge{
		{Cost: -5, Receipt: taken}, {Cost: 1}}), limiter.ErrReceipt)
	err := limiter.CheckSettle([]limiter.Charge{{Cost: -6, Receipt: taken}})
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
		[]limiter.Budget{{Name: "a", Limit: limiter.PerSecond(1)}}, limiter.Config{})
	require.ErrorIs(t, err, errMine)
	assert.ErrorContains(t, err, "Budgets[0]")
}

func TestKey_CompareOrdersByBudgetPrincipalRouteAndWorkload(t *testing.T) {
	p := func(kind, tenant, id string) limiter.Principal {
		return limiter.Principal{Kind: kind, Tenant: tenant, ID: id}
	}
	ordered := []limiter.Key{
		{},
		{Budget: "a"},
		{Budget: "a", Workload: "w"},
		{Budget: "a", Route: "r"},
		{Budget: "a", Principal: p("", "", "i")},
		{Budget: "a", Principal: p("", "t", "")},
		{Budget: "a", Principal: p("k", "", "")},
		{Budget: "b"},
	}
	for i, x := range ordered {
		for j, y := range ordered {
			assert.Equal(t, cmp.Compare(i, j), x.Compare(y), "%v %v", x, y)
		}
	}
}
