package limiter_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
)

// watching is an observer of stores.
type watching struct {
	limiter.Observer
	stores []string
	events []limiter.StoreEvent
}

func (w *watching) Configured(string, []string)      {}
func (w *watching) Decided(limiter.DecisionEvent)    {}
func (w *watching) ConfiguredStore(of, store string) { w.stores = append(w.stores, of+" "+store) }
func (w *watching) Asked(e limiter.StoreEvent)       { w.events = append(w.events, e) }

// named is a fallible store with a name.
type named struct{ fallible }

func (*named) String() string { return "tape" }

func TestLimiter_ToldHowAStoreThatCanFailAnswers(t *testing.T) {
	budgets := []limiter.Budget{{Name: "a", Limit: limiter.PerHour(5), OnError: limiter.Open}}
	w := &watching{}
	store := &named{fallible{can: true}}
	l, err := limiter.New(store, budgets, limiter.Config{Name: "api", Observer: w})
	require.NoError(t, err)
	assert.Equal(t, []string{"api tape"}, w.stores)

	ctx := context.Background()
	for _, answer := range []error{
		nil, &limiter.StoreError{Reason: limiter.Ambiguous, Err: errors.New("lost")},
		context.Canceled, &limiter.CostError{Cost: -1},
	} {
		store.err = answer
		_, _ = l.Take(ctx, limiter.Caller{}, 1)
		_, _ = l.Peek(ctx, limiter.Caller{}, 1)
	}
	require.Len(t, w.events, 4, "callers that are gone, or wrong, are no answer")
	for i, want := range []limiter.StoreReason{"", "", limiter.Ambiguous, limiter.Ambiguous} {
		e := w.events[i]
		assert.GreaterOrEqual(t, int64(e.Took), int64(0))
		e.Took = 0
		assert.Equal(t, limiter.StoreEvent{Limiter: "api", Store: "tape", Reason: want}, e)
	}

	never := &watching{}
	l, err = limiter.New(&fallible{}, budgets, limiter.Config{Observer: never})
	require.NoError(t, err)
	_, _ = l.Take(ctx, limiter.Caller{}, 1)
	assert.Empty(t, never.stores)
	assert.Empty(t, never.events)

	unnamed := &watching{}
	_, err = limiter.New(&fallible{can: true}, budgets, limiter.Config{Observer: unnamed})
	require.NoError(t, err)
	assert.Equal(t, []string{"default store"}, unnamed.stores)
}
