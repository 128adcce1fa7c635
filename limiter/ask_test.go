package limiter_test

import (
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

func TestScope_PersonalIsNotEverybodys(t *testing.T) {
	for scope, want := range map[limiter.Scope]bool{
		0: false, limiter.ByRoute: false, limiter.ByTenant: true, limiter.ByPrincipal: true,
		limiter.ByPrincipal | limiter.ByRoute: true,
	} {
		assert.Equal(t, want, scope.Personal(), scope)
	}
}
