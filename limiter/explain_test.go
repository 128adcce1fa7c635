package limiter_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
)

// counting is a store that counts its calls, and that can fail.
type counting struct {
	limiter.Store
	takes, peeks int
	err          error
}

func (c *counting) Take(ctx context.Context, charges []limiter.Charge) (limiter.Decision, error) {
	c.takes++
	return c.Store.Take(ctx, charges)
}

func (c *counting) Peek(ctx context.Context, charges []limiter.Charge) (limiter.Decision, error) {
	c.peeks++
	if c.err != nil {
		return limiter.Decision{}, c.err
	}
	return c.Store.Peek(ctx, charges)
}

// explained is a limiter whose budgets need all that Explain shows.
func explained(t *testing.T, observer limiter.Observer) (*limiter.Limiter, *counting) {
	t.Helper()
	answers := func(limit limiter.Limit) func(context.Context, limiter.Caller) limiter.Limit {
		return func(_ context.Context, c limiter.Caller) limiter.Limit {
			if c.Principal.ID == "bob" {
				return limit
			}
			return limiter.Limit{}
		}
	}
	store := &counting{Store: limiter.Must(memstore.New(memstore.Config{
		Now: func() time.Time { return time.Unix(1_700_000_000, 0) },
	}))}
	l, err := limiter.New(store, []limiter.Budget{
		{Name: "user", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(3600), OnError: limiter.Open},
		{Name: "route", Scope: limiter.ByPrincipal | limiter.ByRoute, PerRequest: true,
			Limit: limiter.Limit{Tokens: 60, Per: time.Hour, Burst: 2}, OnError: limiter.Closed},
		{Name: "elsewhere", Limit: limiter.PerHour(1), Routes: []string{"GET /b"}, OnError: limiter.Open},
		{Name: "plan", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(500), OnError: limiter.Open,
			LimitFor: answers(limiter.Unlimited)},
		{Name: "ban", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(500), OnError: limiter.Open,
			LimitFor: answers(limiter.Blocked)},
		{Name: "trial", Shadow: true, Limit: limiter.PerHour(1), OnError: limiter.Open},
	}, limiter.Config{Name: "api", Observer: observer})
	require.NoError(t, err)
	return l, store
}

// shown is a charge as a reader sees it.
type shown struct {
	budget    string
	limit     string
	cost      int64
	outcome   limiter.Outcome
	remaining int64
	wait      time.Duration
}

func show(e limiter.DecisionEvent) (all []shown) {
	for _, c := range e.Charges {
		all = append(all, shown{c.Key.Budget, c.Limit.String(), c.Cost, c.Result.Outcome,
			c.Result.Remaining, c.Result.RetryAfter})
	}
	return all
}

func TestExplain_ShowsEveryBudgetThatApplies(t *testing.T) {
	reported := 0
	l, store := explained(t, limiter.Observer{
		Decided: func(context.Context, limiter.DecisionEvent) { reported++ }})
	caller := limiter.Caller{Principal: limiter.Principal{Kind: "user", ID: "alice"}, Route: "GET /a"}
	for range 2 {
		_, err := l.Take(t.Context(), caller, 10)
		require.NoError(t, err)
	}
	reported = 0
	for range 3 { // it changes nothing
		e, err := l.Explain(t.Context(), caller, 10)
		require.NoError(t, err)
		assert.Equal(t, "api", e.Limiter)
		assert.Equal(t, caller, e.Caller)
		assert.EqualValues(t, 10, e.Cost)
		assert.Equal(t, limiter.Decision{Outcome: limiter.Deny, Budget: "route",
			Limit: limiter.Limit{Tokens: 60, Per: time.Hour, Burst: 2}, RetryAfter: time.Minute,
			ResetAfter: 2 * time.Minute}, e.Decision)
		assert.Equal(t, []shown{
			{"user", "3600/1h", 10, limiter.Allow, 3580, 0},
			{"route", "60/1h burst=2", 1, limiter.Deny, 0, time.Minute},
			{"plan", "500/1h", 10, limiter.Allow, 480, 0},
			{"ban", "500/1h", 10, limiter.Allow, 480, 0},
			{"trial", "1/1h", 10, limiter.Never, 1, 0},
		}, show(e))
		assert.Equal(t, limiter.Key{Budget: "route", Principal: caller.Principal, Route: "GET /a"},
			e.Charges[1].Key)
		assert.True(t, e.Charges[4].Shadow)
	}
	assert.Equal(t, 3, store.peeks, "one call each")
	assert.Zero(t, reported)
}

// A budget that blocks the caller, and one that does not limit it, are shown as such, and
// the others with their balances.
func TestExplain_ShowsBlockedAndUnlimited(t *testing.T) {
	l, _ := explained(t, limiter.Observer{})
	e, err := l.Explain(t.Context(), limiter.Caller{
		Principal: limiter.Principal{Kind: "user", ID: "bob"}, Route: "GET /b"}, 1)
	require.NoError(t, err)
	assert.Equal(t, limiter.Decision{Outcome: limiter.Never, Budget: "ban", Limit: limiter.Blocked},
		e.Decision)
	assert.Equal(t, []shown{
		{"user", "3600/1h", 0, limiter.Allow, 3600, 0},
		{"route", "60/1h burst=2", 0, limiter.Allow, 2, 0},
		{"elsewhere", "1/1h", 0, limiter.Allow, 1, 0},
		{"trial", "1/1h", 0, limiter.Allow, 1, 0},
		{"plan", "unlimited", 1, limiter.Allow, 0, 0},
		{"ban", "blocked", 1, limiter.Never, 0, 0},
	}, show(e))
}

// Of a caller that is blocked, a store that fails tells no balances, and none is made up.
func TestExplain_ShowsNoBalancesThatTheStoreDoesNotTell(t *testing.T) {
	l, store := explained(t, limiter.Observer{})
	store.err = errors.New("down")
	e, err := l.Explain(t.Context(), limiter.Caller{
		Principal: limiter.Principal{Kind: "user", ID: "bob"}, Route: "GET /a"}, 1)
	require.NoError(t, err)
	assert.Equal(t, "ban", e.Decision.Budget)
	assert.Equal(t, []shown{
		{"plan", "unlimited", 1, limiter.Allow, 0, 0},
		{"ban", "blocked", 1, limiter.Never, 0, 0},
	}, show(e))
}

func TestExplain_ReturnsTheErrorsOfTake(t *testing.T) {
	l, store := explained(t, limiter.Observer{})
	_, err := l.Explain(t.Context(), limiter.Caller{Route: "GET /a"}, 1)
	require.ErrorIs(t, err, limiter.ErrNobody)
	var cost *limiter.CostError
	_, err = l.Explain(t.Context(), alice, -1)
	require.ErrorAs(t, err, &cost)
	_, err = new(limiter.Limiter).Explain(t.Context(), alice, 1)
	require.Error(t, err)

	store.err = errors.New("down")
	e, err := l.Explain(t.Context(), alice, 1)
	var failed *limiter.StoreError
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, limiter.Closed, failed.Policy)
	assert.Equal(t, err, e.Err)
	assert.Equal(t, "route", e.Decision.Budget)
}

// What the Gate says is what Take would say: no budget is asked.
func TestExplain_AsksTheGate(t *testing.T) {
	store := &counting{Store: limiter.Must(memstore.New(memstore.Config{}))}
	l := limiter.Must(limiter.New(store, []limiter.Budget{
		{Name: "a", Limit: limiter.PerHour(1), OnError: limiter.Open}}, limiter.Config{
		Gate: func(context.Context, limiter.Caller) limiter.GateResult {
			return limiter.GateResult{Blocked: true, RetryAfter: time.Minute}
		}}))
	e, err := l.Explain(t.Context(), alice, 1)
	require.NoError(t, err)
	assert.Equal(t, limiter.Decision{Outcome: limiter.Deny, Limit: limiter.Blocked,
		RetryAfter: time.Minute}, e.Decision)
	assert.Empty(t, e.Charges)
	assert.Zero(t, store.peeks)
}

// What Explain returned is not that of a later request.
func TestExplain_TheChargesCanBeKept(t *testing.T) {
	l, _ := explained(t, limiter.Observer{})
	e, err := l.Explain(t.Context(), alice, 1)
	require.NoError(t, err)
	before := show(e)
	for range 5 {
		_, _ = l.Take(t.Context(), limiter.Caller{
			Principal: limiter.Principal{Kind: "user", ID: "carol"}, Route: "GET /b"}, 7)
	}
	assert.Equal(t, before, show(e))
}
