package limiter_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/kind"
	"github.com/ration-go/ration/limiter"
)

// Never more than the principal's budget, however many labels it invents.
func TestLimiter_WorkloadsSplitAndNeverMultiply(t *testing.T) {
	l, _ := newLimiter(t,
		limiter.Budget{Name: "split", Scope: limiter.ByPrincipal | limiter.ByWorkload,
			Limit: limiter.PerHour(4)},
		limiter.Budget{Name: "own", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(10)})
	labelled := func(label string) limiter.Caller {
		return limiter.Caller{Principal: alice.Principal, Workload: label}
	}
	for range 4 {
		take(t, l, labelled("batch"), 1)
	}
	assert.Equal(t, "split deny 15m0s", take(t, l, labelled("batch"), 1))
	allowed := 0
	for i := range 100 {
		if strings.Contains(take(t, l, labelled(strings.Repeat("x", i)), 1), "allow") {
			allowed++
		}
	}
	assert.Equal(t, 6, allowed)
}

func TestLimiter_AddressesHaveNoWorkloads(t *testing.T) {
	l, _ := newLimiter(t,
		limiter.Budget{Name: "own", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(100)},
		limiter.Budget{Name: "split", Scope: limiter.ByPrincipal | limiter.ByWorkload,
			Limit: limiter.PerHour(1)})
	c := limiter.Caller{Principal: limiter.Principal{Kind: kind.Address, ID: "10.0.0.1"}}
	c.Workload = "a"
	assert.Equal(t, "split allow 0", take(t, l, c, 1))
	c.Workload = "b"
	assert.Equal(t, "split deny 1h0m0s", take(t, l, c, 1))
}

func TestLimiter_AWorkloadBudgetIsSkippedWhereItsBoundIsUnlimited(t *testing.T) {
	l, _ := newLimiter(t,
		limiter.Budget{Name: "split", Scope: limiter.ByPrincipal | limiter.ByWorkload,
			Limit: limiter.PerHour(1)},
		limiter.Budget{Name: "own", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(1),
			LimitFor: func(context.Context, limiter.Caller) limiter.Limit { return limiter.Unlimited }})
	for range 3 {
		assert.Equal(t, "allow 0", take(t, l, alice, 1))
	}
}

func TestLimiter_LimitForSeesThePartsInScopeOnly(t *testing.T) {
	var seen []limiter.Caller
	note := func(_ context.Context, c limiter.Caller) limiter.Limit {
		seen = append(seen, c)
		return limiter.PerHour(7)
	}
	l, _ := newLimiter(t,
		limiter.Budget{Name: "all", Limit: limiter.PerHour(9), LimitFor: note},
		limiter.Budget{Name: "own", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(9),
			LimitFor: note},
		limiter.Budget{Name: "route", Scope: limiter.ByRoute, Limit: limiter.PerHour(9),
			LimitFor: note})
	c := limiter.Caller{Principal: alice.Principal, Route: "GET /", Workload: "w"}
	assert.Equal(t, "all allow 6", take(t, l, c, 1))
	assert.Equal(t, []limiter.Caller{{}, {Principal: alice.Principal}, {Route: "GET /"}}, seen)
}

func TestLimiter_LimitForAnswersPlans(t *testing.T) {
	plans := map[string]limiter.Limit{
		"alice": limiter.PerHour(100), "bob": limiter.Blocked, "carol": limiter.Unlimited}
	l, _ := newLimiter(t, limiter.Budget{Name: "b", Scope: limiter.ByPrincipal,
		Limit: limiter.PerHour(1),
		LimitFor: func(_ context.Context, c limiter.Caller) limiter.Limit {
			return plans[c.Principal.ID]
		}})
	assert.Equal(t, "b allow 99", take(t, l, alice, 1))
	assert.Equal(t, "allow 0", take(t, l, carol, 1_000_000))
	d, err := l.Take(background, bob, 0)
	require.NoError(t, err)
	assert.Equal(t, limiter.Decision{Outcome: limiter.Never, Budget: "b", Limit: limiter.Blocked}, d)
	dave := limiter.Caller{Principal: limiter.Principal{Kind: "user", ID: "dave"}}
	assert.Equal(t, "b allow 0", take(t, l, dave, 1), "no answer means Limit")
}

func TestLimiter_BlockedDebitsNoOtherBudget(t *testing.T) {
	blocked := func(context.Context, limiter.Caller) limiter.Limit { return limiter.Blocked }
	l, _ := newLimiter(t,
		limiter.Budget{Name: "all", Limit: limiter.PerHour(1)},
		limiter.Budget{Name: "b", Limit: limiter.PerHour(1), LimitFor: blocked,
			Routes: []string{"r"}},
		limiter.Budget{Name: "trial", Limit: limiter.PerHour(1), LimitFor: blocked, Shadow: true})
	assert.Equal(t, "b never", take(t, l, on(alice, "r"), 1))
	assert.Equal(t, "all allow 0", take(t, l, alice, 1), "a shadow that blocks does not refuse")
}

func TestLimiter_InvalidAnswersOfLimitForAreLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	answers := []limiter.Limit{{Tokens: -1, Per: 1}, {Tokens: 1},
		{Algorithm: 77, Tokens: 1, Per: 1}, {Burst: 1}}
	next := 0
	budgets := []limiter.Budget{{Name: "b",
		Limit: limiter.PerHour(10), LimitFor: func(context.Context, limiter.Caller) limiter.Limit {
			next++
			return answers[(next-1)%len(answers)]
		}}}
	l := limiter.Must(limiter.New(newStore(t, new(manual)), budgets,
		limiter.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}))
	for range 8 {
		assert.Contains(t, take(t, l, alice, 1), "b allow")
		require.NoError(t, l.Reload(budgets))
	}
	assert.Equal(t, "b allow 1", take(t, l, alice, 1), "Limit applies")
	assert.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
	for _, part := range []string{"level=WARN", "code=limit-for-invalid", "limiter=default",
		"budget=b"} {
		assert.Contains(t, log.String(), part)
	}
	assert.NotContains(t, log.String(), "alice", "who called is personal")
}

func TestLimiter_TheZeroAnswerOfLimitForIsTheBudgetsLimitAndSilent(t *testing.T) {
	var log bytes.Buffer
	plans := map[string]limiter.Limit{"bob": limiter.PerHour(5)} // alice has no plan
	l := limiter.Must(limiter.New(newStore(t, new(manual)), []limiter.Budget{{Name: "b",
		Scope: limiter.ByPrincipal, Limit: limiter.PerHour(10),
		LimitFor: func(_ context.Context, c limiter.Caller) limiter.Limit {
			return plans[c.Principal.ID]
		}}}, limiter.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}))
	assert.Equal(t, "b allow 9", take(t, l, alice, 1))
	assert.Equal(t, "b allow 4", take(t, l, bob, 1))
	assert.Empty(t, log.String())
}

func TestLimiter_APanicInAHookReachesTheCallerAndTheNextRequestIsDecided(t *testing.T) {
	seen, broken := new(recorder), true
	explode := func() {
		if broken {
			panic("hook")
		}
	}
	l := limiter.Must(limiter.New(newStore(t, new(manual)), []limiter.Budget{
		{Name: "a", Limit: limiter.PerHour(10)},
		{Name: "b", Limit: limiter.PerHour(20),
			LimitFor: func(context.Context, limiter.Caller) limiter.Limit { explode(); return limiter.Limit{} }},
	}, limiter.Config{Observer: seen.observer()}))
	for range 3 {
		assert.PanicsWithValue(t, "hook", func() { _, _ = l.Take(background, alice, 1) })
		assert.PanicsWithValue(t, "hook", func() { _, _ = l.Reserve(background, alice, 1) })
	}
	broken = false
	assert.Equal(t, "a allow 9", take(t, l, alice, 1), "a panic of LimitFor takes nothing")

	require.NoError(t, l.Reload([]limiter.Budget{{Name: "a", Limit: limiter.PerHour(10)}}))
	broken, seen.hook = true, explode
	assert.PanicsWithValue(t, "hook", func() { _, _ = l.Take(background, alice, 1) })
	assert.PanicsWithValue(t, "hook", func() {
		_ = l.Reload([]limiter.Budget{{Name: "c", Limit: limiter.PerHour(10)},
			{Name: "a", Limit: limiter.PerHour(10)}})
	})
	broken = false
	assert.Equal(t, "a allow 7", take(t, l, alice, 1), "what an observer saw taken is taken")
	require.NoError(t, l.Reload([]limiter.Budget{{Name: "a", Limit: limiter.PerHour(10)}}))
}

// checker is a store that counts the limits it is asked about.
type checker struct {
	limiter.Store
	checked int
}

func (c *checker) Check(l limiter.Limit) error {
	c.checked++
	return c.Store.Check(l)
}

func TestLimitFor_TheBudgetsOwnLimitIsNotCheckedAgain(t *testing.T) {
	store := &checker{Store: newStore(t, new(manual))}
	own, other := limiter.PerHour(5), limiter.PerHour(6)
	answer := own
	l := limiter.Must(limiter.New(store, []limiter.Budget{{Name: "b", Limit: own,
		OnError: limiter.Closed, LimitFor: func(context.Context, limiter.Caller) limiter.Limit { return answer }}},
		limiter.Config{}))
	before := store.checked
	take(t, l, alice, 1)
	assert.Equal(t, before, store.checked)
	answer = other
	take(t, l, alice, 1)
	assert.Equal(t, before+1, store.checked)
}
