package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/kind"
	"github.com/ration-go/ration/limiter"
)

var (
	background = context.Background()

	alice = limiter.Caller{Principal: limiter.Principal{Kind: "user", Tenant: "acme", ID: "alice"}}
	bob   = limiter.Caller{Principal: limiter.Principal{Kind: "user", Tenant: "acme", ID: "bob"}}
	carol = limiter.Caller{Principal: limiter.Principal{Kind: "user", Tenant: "zeta", ID: "carol"}}
)

// on returns c on another route.
func on(c limiter.Caller, route string) limiter.Caller { c.Route = route; return c }

// newLimiter has its accounts in memory, on a clock that stands at the epoch.
func newLimiter(t *testing.T, budgets ...limiter.Budget) (*limiter.Limiter, *manual) {
	t.Helper()
	clock := new(manual)
	l, err := limiter.New(newStore(t, clock), budgets, limiter.Config{})
	require.NoError(t, err)
	return l, clock
}

// take returns what was said to one request.
func take(t *testing.T, l *limiter.Limiter, c limiter.Caller, cost int64) string {
	t.Helper()
	d, err := l.Take(background, c, cost)
	require.NoError(t, err)
	return strings.TrimSpace(d.Budget + " " + said(d))
}

func peek(t *testing.T, l *limiter.Limiter, c limiter.Caller, cost int64) string {
	t.Helper()
	d, err := l.Peek(background, c, cost)
	require.NoError(t, err)
	return strings.TrimSpace(d.Budget + " " + said(d))
}

func TestLimiter_ScopesNameTheAccounts(t *testing.T) {
	tests := []struct {
		scope limiter.Scope
		// The accounts of: alice on r, bob on r, carol on r, alice on q.
		same string
	}{
		{0, "aaaa"},
		{limiter.ByTenant, "aaba"},
		{limiter.ByPrincipal, "abca"},
		{limiter.ByRoute, "aaab"},
		{limiter.ByTenant | limiter.ByRoute, "aabc"},
		{limiter.ByPrincipal | limiter.ByRoute, "abcd"},
		{limiter.ByTenant | limiter.ByPrincipal, "abca"},
	}
	for _, test := range tests {
		t.Run(fmt.Sprint(test.scope), func(t *testing.T) {
			l, _ := newLimiter(t,
				limiter.Budget{Name: "b", Scope: test.scope, Limit: limiter.PerHour(100)})
			used := map[byte]int64{}
			callers := []limiter.Caller{on(alice, "r"), on(bob, "r"), on(carol, "r"), on(alice, "q")}
			for i, c := range callers {
				used[test.same[i]]++
				d, err := l.Take(background, c, 1)
				require.NoError(t, err)
				assert.Equal(t, 100-used[test.same[i]], d.Remaining, "caller %d", i)
			}
		})
	}
}

// What a request works with, four pieces of memory, is used again whatever came of
// it. The race detector drops a quarter of that.
func TestLimiter_UsesMemoryAgain(t *testing.T) {
	l, _ := newLimiter(t, limiter.Budget{Name: "a", Limit: limiter.PerHour(300)},
		limiter.Budget{Name: "b", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(200)})
	allocs := func(call func()) float64 { return testing.AllocsPerRun(200, call) }
	for range 3 { // in the end all are denied
		assert.Less(t, allocs(func() { _, _ = l.Take(background, alice, 1) }), 3.0)
		assert.Less(t, allocs(func() { _, _ = l.Peek(background, alice, 1) }), 3.0)
	}
	assert.Less(t, allocs(func() { _, _ = l.Reserve(background, bob, 0) }), 3+3.0,
		"beside a reservation and its two lists")
}

func TestLimiter_ATenantIsNeverAnotherKindsNorAPrincipals(t *testing.T) {
	l, _ := newLimiter(t,
		limiter.Budget{Name: "b", Scope: limiter.ByTenant, Limit: limiter.PerHour(1)})
	for _, p := range []limiter.Principal{
		{Kind: "user", Tenant: "10.0.0.0/24", ID: "a"},
		{Kind: "user", ID: "10.0.0.0/24"},
		{Kind: "key", ID: "10.0.0.0/24"},
		{Kind: kind.Address, Tenant: "10.0.0.0/24", ID: "10.0.0.1"},
		{Kind: kind.Certificate, Tenant: "10.0.0.0/24", ID: "10.0.0.1"},
	} {
		assert.Equal(t, "b allow 0", take(t, l, limiter.Caller{Principal: p}, 1), "%v", p)
	}
	other := limiter.Principal{Kind: "key", Tenant: "10.0.0.0/24", ID: "b"}
	assert.Equal(t, "b deny 1h0m0s", take(t, l, limiter.Caller{Principal: other}, 1),
		"kinds of one tenant share")
}

func TestLimiter_NobodyIsRefusedWhereABudgetNeedsAPrincipal(t *testing.T) {
	for _, nobody := range []limiter.Principal{{}, {Kind: "user"}, {ID: "x"}, {Tenant: "t"},
		{Kind: "user", Tenant: "t"}} {
		c := limiter.Caller{Principal: nobody}
		for _, scope := range []limiter.Scope{limiter.ByTenant, limiter.ByPrincipal} {
			l, _ := newLimiter(t, limiter.Budget{Name: "all", Limit: limiter.PerHour(5)},
				limiter.Budget{Name: "b", Scope: scope, Limit: limiter.PerHour(1)})
			for _, ask := range []func(context.Context, limiter.Caller, int64) (
				limiter.Decision, error){l.Take, l.Peek} {
				d, err := ask(background, c, 1)
				require.ErrorIs(t, err, limiter.ErrNobody)
				assert.Zero(t, d)
			}
			r, err := l.Reserve(background, c, 1)
			require.ErrorIs(t, err, limiter.ErrNobody)
			assert.False(t, r.Decision.Allowed())
			require.ErrorIs(t, l.Reset(background, c), limiter.ErrNobody)
			assert.Equal(t, "b allow 0", take(t, l, alice, 1))
		}
		l, _ := newLimiter(t, limiter.Budget{Name: "all", Limit: limiter.PerHour(1)})
		assert.Equal(t, "all allow 0", take(t, l, c, 1), "everybody's budget takes anybody")
	}
}

// Charging one budget before the other refuses eats the second.
func TestLimiter_ARefusedRequestDebitsNoBudget(t *testing.T) {
	each := limiter.Budget{Name: "each", Scope: limiter.ByPrincipal, Limit: limiter.PerMinute(2)}
	all := limiter.Budget{Name: "all", Limit: limiter.PerMinute(10)}
	for _, budgets := range [][]limiter.Budget{{each, all}, {all, each}} {
		store := newStore(t, new(manual))
		l := limiter.Must(limiter.New(store, budgets, limiter.Config{}))
		audit := limiter.Must(limiter.New(store, []limiter.Budget{all}, limiter.Config{}))
		allowed := 0
		for range 50 {
			if strings.Contains(take(t, l, alice, 1), "allow") {
				allowed++
			}
		}
		assert.Equal(t, 2, allowed)
		assert.Equal(t, "all allow 8", peek(t, audit, alice, 0))
		assert.Equal(t, "each allow 1", take(t, l, bob, 1))
		assert.Equal(t, "each allow 0", take(t, l, bob, 1))
		assert.Equal(t, "each deny 30s", take(t, l, bob, 1))
		assert.Equal(t, "all allow 6", peek(t, audit, alice, 0))
	}
}

func TestLimiter_TheDecidingBudgetIsTheStrictest(t *testing.T) {
	budget := func(name string, n int64) limiter.Budget {
		return limiter.Budget{Name: name, Limit: limiter.PerMinute(n)}
	}
	l, _ := newLimiter(t, budget("wide", 100), budget("narrow", 3), budget("twin", 3))
	assert.Equal(t, "narrow allow 2", take(t, l, alice, 1), "ties go by name")
	assert.Equal(t, "narrow never", take(t, l, alice, 4))
	assert.Equal(t, "narrow allow 0", take(t, l, alice, 2))
	assert.Equal(t, "narrow deny 20s", take(t, l, alice, 1))

	l, _ = newLimiter(t, budget("a", 2), limiter.Budget{Name: "b", Limit: limiter.PerHour(2)})
	assert.Equal(t, "a allow 0", take(t, l, alice, 2))
	assert.Equal(t, "b deny 30m0s", take(t, l, alice, 1), "the longest wait")
	assert.Equal(t, "a never", take(t, l, alice, 3))
}

func TestLimiter_RoutesLimitWhereABudgetApplies(t *testing.T) {
	l, _ := newLimiter(t, limiter.Budget{Name: "b", Limit: limiter.PerHour(2),
		Routes: []string{"GET /a", "GET /b"}})
	assert.Equal(t, "b allow 1", take(t, l, on(alice, "GET /a"), 1))
	assert.Equal(t, "b allow 0", take(t, l, on(alice, "GET /b"), 1), "one account for both")
	assert.Equal(t, "allow 0", take(t, l, on(alice, "GET /c"), 100), "no budget applies")
	d, err := l.Take(background, on(alice, "GET /c"), 100)
	require.NoError(t, err)
	assert.Equal(t, limiter.Decision{Outcome: limiter.Allow}, d)
}

func TestLimiter_PerRequestCostsOneWhateverTheCost(t *testing.T) {
	l, _ := newLimiter(t,
		limiter.Budget{Name: "bytes", Limit: limiter.PerHour(1000)},
		limiter.Budget{Name: "requests", Limit: limiter.PerHour(3), PerRequest: true})
	assert.Equal(t, "requests allow 2", take(t, l, alice, 300))
	assert.Equal(t, "requests allow 1", take(t, l, alice, 0), "a cost of 0 is a request")
	assert.Equal(t, "requests allow 0", take(t, l, alice, 400))
	assert.Equal(t, "requests deny 20m0s", take(t, l, alice, 1))
}

func TestLimiter_ShadowBudgetsAreCountedAndNeverRefuse(t *testing.T) {
	seen := new(recorder)
	l := limiter.Must(limiter.New(newStore(t, new(manual)), []limiter.Budget{
		{Name: "real", Limit: limiter.PerHour(10)},
		{Name: "trial", Limit: limiter.PerHour(2), Shadow: true},
	}, limiter.Config{Observer: seen.observer()}))
	seen.take()
	assert.Equal(t, "real allow 8", take(t, l, alice, 2))
	assert.Equal(t, "real allow 7", take(t, l, alice, 1))
	assert.Equal(t, "real allow 2", take(t, l, alice, 5), "above the trial's capacity")
	assert.Equal(t, "real deny 6m0s", take(t, l, alice, 3))
	assert.Equal(t, "real allow 1", take(t, l, alice, 1))
	assert.Equal(t, []string{"default real allow", "default trial shadow_allow",
		"default real allow", "default trial shadow_deny",
		"default real allow", "default trial shadow_deny",
		"default real deny", "default trial shadow_deny",
		"default real allow", "default trial shadow_deny"}, seen.take())
}

// Its counts tell a shadow budget that would refuse nothing from one whose routes
// no request takes.
func TestLimiter_AShadowBudgetThatNeverAppliesIsNeverCounted(t *testing.T) {
	seen := new(recorder)
	budgets := []limiter.Budget{
		{Name: "trial", Limit: limiter.PerHour(2), Shadow: true},
		{Name: "typo", Limit: limiter.PerHour(2), Shadow: true, Routes: []string{"POST /logn"}},
		{Name: "exempt", Limit: limiter.PerHour(2), Shadow: true,
			LimitFor: func(context.Context, limiter.Caller) limiter.Limit { return limiter.Unlimited }},
	}
	l := limiter.Must(limiter.New(newStore(t, new(manual)), budgets,
		limiter.Config{Observer: seen.observer()}))
	seen.take()
	for range 3 {
		take(t, l, on(alice, "POST /login"), 1)
	}
	_, err := l.Peek(background, alice, 1)
	require.NoError(t, err)
	assert.Equal(t, []string{"default trial shadow_allow", "default trial shadow_allow",
		"default trial shadow_deny"}, seen.take())
}

func TestLimiter_ShadowIsNotDebitedByARefusedRequest(t *testing.T) {
	seen := new(recorder)
	l := limiter.Must(limiter.New(newStore(t, new(manual)), []limiter.Budget{
		{Name: "real", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(1)},
		{Name: "trial", Limit: limiter.PerHour(2), Shadow: true},
	}, limiter.Config{Observer: seen.observer()}))
	for range 5 {
		take(t, l, alice, 1)
	}
	seen.take()
	take(t, l, bob, 1)
	assert.Equal(t, []string{"default real allow", "default trial shadow_allow"}, seen.take(),
		"the trial had one left")
	take(t, l, carol, 1)
	assert.Contains(t, seen.take(), "default trial shadow_deny")
}

func TestLimiter_CostsOf0AndBelow(t *testing.T) {
	l, _ := newLimiter(t, limiter.Budget{Name: "b", Limit: limiter.PerHour(5)})
	assert.Equal(t, "b allow 0", take(t, l, alice, 5))
	assert.Equal(t, "b allow 0", take(t, l, alice, 0))
	for _, cost := range []int64{-1, -3, math.MinInt64} {
		var bad *limiter.CostError
		_, err := l.Take(background, alice, cost)
		require.ErrorAs(t, err, &bad)
		assert.Equal(t, &limiter.CostError{Cost: cost, Max: math.MaxInt64}, bad)
		_, err = l.Peek(background, alice, cost)
		require.ErrorAs(t, err, &bad)
		_, err = l.Reserve(background, alice, cost)
		require.ErrorAs(t, err, &bad)
	}
	assert.Equal(t, "b deny 12m0s", take(t, l, alice, 1))
}

func TestLimiter_PeekChangesNothing(t *testing.T) {
	seen := new(recorder)
	l := limiter.Must(limiter.New(newStore(t, new(manual)),
		[]limiter.Budget{{Name: "b", Limit: limiter.PerHour(2)}}, limiter.Config{Observer: seen.observer()}))
	seen.take()
	for range 5 {
		assert.Equal(t, "b allow 1", peek(t, l, alice, 1), "as if it were taken")
		assert.Equal(t, "b never", peek(t, l, alice, 3))
	}
	assert.Empty(t, seen.take(), "nor does it count")
	assert.Equal(t, "b allow 0", take(t, l, alice, 2))
	assert.Equal(t, "b deny 30m0s", peek(t, l, alice, 1))
}

func TestLimiter_ACallerThatHasGoneIsNotCharged(t *testing.T) {
	l, _ := newLimiter(t, limiter.Budget{Name: "b", Limit: limiter.PerHour(2), OnError: limiter.Open})
	gone, cancel := context.WithCancel(background)
	cancel()
	d, err := l.Take(gone, alice, 1)
	require.ErrorIs(t, err, context.Canceled)
	assert.Zero(t, d)
	var store *limiter.StoreError
	assert.False(t, errors.As(err, &store))
	_, err = l.Peek(gone, alice, 1)
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, "b allow 0", take(t, l, alice, 2))
}

func TestLimiter_ResetFillsTheCallersOwnAccounts(t *testing.T) {
	l, _ := newLimiter(t,
		limiter.Budget{Name: "own", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(3)},
		limiter.Budget{Name: "shared", Scope: limiter.ByTenant, Limit: limiter.PerHour(10)})
	take(t, l, alice, 3)
	take(t, l, bob, 2)
	require.NoError(t, l.Reset(background, alice))
	assert.Equal(t, "own deny 40m0s", take(t, l, bob, 3), "another's account stays")
	assert.Equal(t, "own allow 0", take(t, l, alice, 3))
	require.NoError(t, l.Reset(background, alice))
	assert.Equal(t, "shared deny 6m0s", take(t, l, alice, 3), "what is shared stays")
}

func TestLimiter_ResetNeedsAStoreThatCan(t *testing.T) {
	l := limiter.Must(limiter.New(pickyStore{Store: newStore(t, new(manual))}, []limiter.Budget{
		{Name: "b", Limit: limiter.PerSecond(3), OnError: limiter.Closed}}, limiter.Config{}))
	require.ErrorIs(t, l.Reset(background, alice), errors.ErrUnsupported)
}

func TestLimiter_ShadowBudgetsThatWouldBlockAreCounted(t *testing.T) {
	seen := new(recorder)
	store := storeWithNow(t, time.Now)
	l := limiter.Must(limiter.New(store, []limiter.Budget{
		{Name: "real", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(10)},
		{Name: "trial", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(10), Shadow: true,
			LimitFor: func(context.Context, limiter.Caller) limiter.Limit { return limiter.Blocked }},
	}, limiter.Config{Observer: seen.observer()}))
	seen.take()
	for range 2 {
		require.Contains(t, take(t, l, alice, 1), "real allow")
	}
	assert.Equal(t, []string{"default real allow", "default trial shadow_deny",
		"default real allow", "default trial shadow_deny"}, seen.take())
}

func TestLimiter_ResetLooksAtNoPlan(t *testing.T) {
	plan := limiter.PerHour(2)
	l, _ := newLimiter(t, limiter.Budget{Name: "b", Scope: limiter.ByPrincipal,
		Limit:    limiter.PerHour(2),
		LimitFor: func(context.Context, limiter.Caller) limiter.Limit { return plan }})
	d, err := l.Take(background, alice, 2)
	require.NoError(t, err)
	require.True(t, d.Allowed())
	plan = limiter.Blocked
	require.NoError(t, l.Reset(background, alice))
	plan = limiter.PerHour(2)
	d, err = l.Take(background, alice, 2)
	require.NoError(t, err)
	assert.True(t, d.Allowed())
}
