package limiter_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
	"github.com/ration-go/ration/limiter/storekit"
)

// slow is a store that never answers in time.
type slow struct{ *memstore.Store }

func (slow) Take(context.Context, []limiter.Charge) (limiter.Decision, error) {
	return limiter.Decision{}, &limiter.StoreError{Reason: storekit.Timeout, Err: assert.AnError}
}

func answer(l limiter.Limit) func(context.Context, limiter.Caller) limiter.Limit {
	return func(context.Context, limiter.Caller) limiter.Limit { return l }
}

// alike returns budgets that differ by their names only.
func alike(b limiter.Budget, names ...string) []limiter.Budget {
	budgets := make([]limiter.Budget, len(names))
	for i, name := range names {
		budgets[i], budgets[i].Name = b, name
	}
	return budgets
}

func TestLimiter_OfEqualAnswersTheFirstNameDecides(t *testing.T) {
	names := []string{"b", "a", "c"}
	blocked := limiter.Must(limiter.New(newStore(t, new(manual)), alike(limiter.Budget{
		Limit: limiter.PerHour(1), LimitFor: answer(limiter.Blocked)}, names...), limiter.Config{}))
	d, err := blocked.Take(t.Context(), limiter.Caller{}, 1)
	require.NoError(t, err)
	assert.Equal(t, limiter.Decision{Outcome: limiter.Never, Budget: "a", Limit: limiter.Blocked}, d)

	failing := limiter.Must(limiter.New(slow{newStore(t, new(manual))}, alike(limiter.Budget{
		Limit: limiter.PerHour(1), OnError: limiter.Closed}, names...), limiter.Config{}))
	d, err = failing.Take(t.Context(), limiter.Caller{}, 1)
	assert.Equal(t, limiter.Deny, d.Outcome)
	assert.Equal(t, "a", d.Budget)
	var failed *limiter.StoreError
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, storekit.Timeout, failed.Reason, "as the store has it")
}

// Where the budget that bounds it is left out, a budget by workload is too,
// whatever else is charged.
func TestLimiter_AWorkloadNeedsTheBudgetThatBoundsIt(t *testing.T) {
	w := &witness{Store: newStore(t, new(manual))}
	l := limiter.Must(limiter.New(w, []limiter.Budget{
		{Name: "all", Limit: limiter.PerHour(9)},
		{Name: "bound", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(1),
			LimitFor: answer(limiter.Unlimited)},
		{Name: "split", Scope: limiter.ByPrincipal | limiter.ByWorkload, Limit: limiter.PerHour(1)},
	}, limiter.Config{}))
	_, err := l.Take(t.Context(), limiter.Caller{
		Principal: limiter.Principal{Kind: "user", ID: "1"}, Workload: "w"}, 1)
	require.NoError(t, err)
	assert.Equal(t, []limiter.Key{{Budget: "all"}}, w.keys)
}

func TestLimiter_WithoutAnObserverOrABudgetNothingIsReported(t *testing.T) {
	budgets := []limiter.Budget{{Name: "a", Limit: limiter.PerHour(1), Routes: []string{"r"}}}
	var seen recorder
	l := limiter.Must(limiter.New(newStore(t, new(manual)), budgets,
		limiter.Config{Observer: seen.observer()}))
	seen.take()
	_, err := l.Take(t.Context(), limiter.Caller{Route: "other"}, 1)
	require.NoError(t, err)
	assert.Empty(t, seen.take())

	l = limiter.Must(limiter.New(newStore(t, new(manual)), budgets, limiter.Config{}))
	assert.NotPanics(t, func() {
		_, err = l.Adapter().Take(t.Context(), &limiter.Request{Transport: "http"})
	})
	assert.NoError(t, err)
}
