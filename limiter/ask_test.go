package limiter_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
)

func TestLimiter_BudgetIsFoundByItsName(t *testing.T) {
	store, err := memstore.New(memstore.Config{})
	require.NoError(t, err)
	want := limiter.Budget{Name: "b", Scope: limiter.ByPrincipal, Limit: limiter.PerSecond(2)}
	l, err := limiter.New(store, []limiter.Budget{
		{Name: "a", Limit: limiter.PerSecond(1)}, want,
	}, limiter.Config{})
	require.NoError(t, err)

	got, ok := l.Budget("b")
	assert.True(t, ok)
	assert.Equal(t, want, got)
	_, ok = l.Budget("c")
	assert.False(t, ok)
	assert.Zero(t, testing.AllocsPerRun(100, func() { l.Budget("b") }))
}

func TestNew_CopiesTheRoutes(t *testing.T) {
	store, err := memstore.New(memstore.Config{})
	require.NoError(t, err)
	routes := []string{"GET /a"}
	l, err := limiter.New(store, []limiter.Budget{
		{Name: "b", Limit: limiter.PerSecond(2), Routes: routes},
	}, limiter.Config{})
	require.NoError(t, err)
	routes[0] = "GET /b"
	got, _ := l.Budget("b")
	assert.Equal(t, []string{"GET /a"}, got.Routes)
}

func TestScope_PersonalIsNotEverybodys(t *testing.T) {
	for scope, want := range map[limiter.Scope]bool{
		0: false, limiter.ByRoute: false, limiter.ByTenant: true, limiter.ByPrincipal: true,
		limiter.ByPrincipal | limiter.ByRoute: true,
	} {
		assert.Equal(t, want, scope.Personal(), scope)
	}
}

func TestLimiter_TakeEachShowsWhatWasCharged(t *testing.T) {
	store, err := memstore.New(memstore.Config{})
	require.NoError(t, err)
	l, err := limiter.New(store, []limiter.Budget{
		{Name: "a", Limit: limiter.PerHour(3)},
		{Name: "b", Limit: limiter.PerHour(2), Shadow: true},
		{Name: "c", Limit: limiter.PerHour(1), Routes: []string{"elsewhere"}},
	}, limiter.Config{})
	require.NoError(t, err)
	take := func(cost int64) (seen map[string]limiter.Outcome, err error) {
		seen = map[string]limiter.Outcome{}
		_, err = l.TakeEach(t.Context(), limiter.Caller{}, cost,
			func(b *limiter.Budget, c *limiter.Charge) {
				assert.Equal(t, b.Name, c.Key.Budget)
				assert.Equal(t, b.Limit, c.Limit)
				seen[b.Name] = c.Result.Outcome
			})
		return seen, err
	}
	seen, err := take(3)
	require.NoError(t, err)
	assert.Equal(t, map[string]limiter.Outcome{"a": limiter.Allow, "b": limiter.Never}, seen)
	seen, err = take(1)
	require.NoError(t, err)
	assert.Equal(t, limiter.Deny, seen["a"])
	seen, err = take(-1)
	require.Error(t, err)
	assert.Empty(t, seen)
}

// allocations returns what f allocates at the least: under the race detector pools
// forget at times.
func allocations(f func()) float64 {
	least := testing.AllocsPerRun(1, f)
	for range 100 {
		least = min(least, testing.AllocsPerRun(1, f))
	}
	return least
}

func TestLimiter_TakeEachDoesNotAllocate(t *testing.T) {
	store, err := memstore.New(memstore.Config{})
	require.NoError(t, err)
	l, err := limiter.New(store, []limiter.Budget{{Name: "a", Limit: limiter.PerHour(1 << 30)}},
		limiter.Config{})
	require.NoError(t, err)
	assert.Zero(t, allocations(func() {
		var left int64
		_, _ = l.TakeEach(t.Context(), limiter.Caller{}, 1,
			func(_ *limiter.Budget, c *limiter.Charge) { left += c.Result.Remaining })
	}))
}

func TestLimiter_BudgetsAreThoseOfTheLastReloadByName(t *testing.T) {
	budget := func(name string) limiter.Budget {
		return limiter.Budget{Name: name, Limit: limiter.PerSecond(1)}
	}
	l, _ := newLimiter(t, budget("b"), budget("a"))
	require.NoError(t, l.Reload([]limiter.Budget{budget("d"), budget("c")}))
	var names []string
	for _, b := range l.Budgets() {
		names = append(names, b.Name)
	}
	assert.Equal(t, []string{"c", "d"}, names)
}

func TestLimiter_WarnSaysWhereTheCodeIsExplained(t *testing.T) {
	var log strings.Builder
	l, err := limiter.New(limiter.Must(memstore.New(memstore.Config{})),
		[]limiter.Budget{{Name: "a", Limit: limiter.PerSecond(1)}}, limiter.Config{
			Name: "edge", Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
	require.NoError(t, err)
	l.Warn(t.Context(), "some-code", "what is wrong", slog.Int("requests", 3))
	assert.Regexp(t, `level=WARN msg="what is wrong" code=some-code `+
		`see=https://github.com/ration-go/ration#some-code limiter=edge requests=3`, log.String())
}

func TestLimiter_CanFailIsWhatTheStoreSays(t *testing.T) {
	budgets := []limiter.Budget{{Name: "b", Limit: limiter.PerSecond(1), OnError: limiter.Closed}}
	for _, can := range []bool{false, true} {
		l, err := limiter.New(&fallible{can: can}, budgets, limiter.Config{})
		require.NoError(t, err)
		assert.Equal(t, can, l.CanFail())
	}
	l, _ := newLimiter(t, budgets...)
	assert.False(t, l.CanFail(), "a store that does not say so does not fail")
}
