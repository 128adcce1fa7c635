package limiter_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
)

// What an outer mount has paid on its own route pays nothing of a budget of the inner
// route.
func TestAdapter_ABudgetOfTheInnerRouteIsCharged(t *testing.T) {
	login := limiter.Budget{Name: "login", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(1),
		Routes: []string{"POST /login"}}
	perRequest := login
	perRequest.PerRequest = true
	blocking := limiter.Budget{Name: "plans", Scope: limiter.ByPrincipal | limiter.ByRoute,
		Limit: limiter.PerHour(100), LimitFor: func(_ context.Context, c limiter.Caller) limiter.Limit {
			if c.Route == "POST /login" {
				return limiter.Blocked
			}
			return limiter.PerHour(100)
		}}
	for name, test := range map[string]struct {
		budget limiter.Budget
		outer  int64
		want   int
	}{
		"a budget":              {login, 1, 1},
		"after a dearer outer":  {login, 4, 1},
		"a budget for requests": {perRequest, 1, 1},
		"a budget that blocks":  {blocking, 1, 0},
	} {
		l, _ := newLimiter(t, test.budget)
		a := mounted(t, l, 2, false)
		allowed := 0
		for range 10 {
			ctx := admit(t, a, background, &limiter.Request{Caller: on(alice, "unmatched"), Cost: test.outer})
			r := limiter.Request{Caller: on(alice, "POST /login"), Cost: 1}
			_, err := a.Take(ctx, &r)
			require.NoError(t, err)
			if r.Decision.Allowed() {
				allowed++
			}
		}
		assert.Equal(t, test.want, allowed, name)
	}
}

func TestAdapter_AnInnerRouteMayNeedAPrincipal(t *testing.T) {
	l, _ := newLimiter(t, limiter.Budget{Name: "b", Scope: limiter.ByPrincipal,
		Limit: limiter.PerHour(1), Routes: []string{"private"}})
	a := mounted(t, l, 2, false)
	ctx := admit(t, a, background, &limiter.Request{Caller: limiter.Caller{Route: "unmatched"}, Cost: 1})
	_, err := a.Take(ctx, &limiter.Request{Caller: limiter.Caller{Route: "private"}, Cost: 1})
	assert.ErrorIs(t, err, limiter.ErrNobody)
}

// The wait is that of a new request, which has to pay all accounts.
func TestAdapter_ADeniedRestWaitsForTheAccountsOfEarlierParts(t *testing.T) {
	l, _ := newLimiter(t,
		limiter.Budget{Name: "a", Limit: limiter.PerHour(1), Routes: []string{"a"}},
		limiter.Budget{Name: "b", Limit: limiter.PerSecond(2), Routes: []string{"b"}})
	a := mounted(t, l, 2, false)
	take(t, l, on(alice, "b"), 2)
	ctx := admit(t, a, background, &limiter.Request{Caller: on(alice, "a"), Cost: 1})
	r := limiter.Request{Caller: on(alice, "b"), Cost: 2}
	_, err := a.Take(ctx, &r)
	require.NoError(t, err)
	assert.Equal(t, "a", r.Decision.Budget)
	assert.Equal(t, limiter.PerHour(1).Per, r.Decision.RetryAfter)
}

// A call that was half done fixes the cost: another one may not settle the rest.
func TestSettle_ThatIsHalfDoneIsOnlyRepeated(t *testing.T) {
	l, _ := settling(t, 2)
	ctx := background
	for _, cost := range []int64{3, 5} {
		ctx = admit(t, l.Adapter(), ctx, &limiter.Request{Caller: alice, Cost: cost, Settles: true})
	}
	require.Error(t, limiter.Settle(ctx, 0))
	assert.ErrorIs(t, limiter.Settle(ctx, 6), limiter.ErrReceipt)
	require.NoError(t, limiter.Settle(ctx, 0))
	assert.EqualValues(t, 10, left(t, l))
}

func TestSettle_OfThreePartsIsRepeatedAfterAFailure(t *testing.T) {
	for fails := 1; fails <= 3; fails++ {
		l, _ := settling(t, fails)
		ctx := background
		for _, cost := range []int64{1, 3, 6} {
			ctx = admit(t, l.Adapter(), ctx, &limiter.Request{Caller: alice, Cost: cost, Settles: true})
		}
		require.Error(t, limiter.Settle(ctx, 0), fails)
		require.NoError(t, limiter.Settle(ctx, 0), fails)
		assert.EqualValues(t, 10, left(t, l), fails)
	}
}

// Of two calls at once one settles all parts, and the other one nothing.
func TestSettle_OfTwoCallsAtOnceOneCounts(t *testing.T) {
	for range 2000 {
		l, _ := settling(t, 0)
		outer := limiter.Request{Caller: alice, Cost: 3, Reserve: true, Settles: true}
		ctx := admit(t, l.Adapter(), background, &outer)
		inner := limiter.Request{Caller: alice, Cost: 5, Reserve: true, Settles: true}
		ctx = admit(t, l.Adapter(), ctx, &inner)
		byRule := make(chan error)
		go func() { byRule <- inner.Reservation.Settle(ctx, 0) }()
		byHandler := limiter.Settle(ctx, 4)
		rule := <-byRule
		require.NotEqual(t, rule == nil, byHandler == nil, "%v, %v", rule, byHandler)
		want := int64(10)
		if byHandler == nil {
			want = 6
		}
		require.Equal(t, want, left(t, l))
	}
}

// A budget that was unlimited at the outer mount has been paid nothing.
func TestAdapter_ABudgetThatIsLimitedMeanwhileIsCharged(t *testing.T) {
	limit := limiter.Unlimited
	l, _ := newLimiter(t,
		limiter.Budget{Name: "all", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(100)},
		limiter.Budget{Name: "plans", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(100),
			LimitFor: func(context.Context, limiter.Caller) limiter.Limit { return limit }})
	a := mounted(t, l, 2, false)
	ctx := admit(t, a, background, &limiter.Request{Caller: alice, Cost: 1})
	limit = limiter.PerHour(2)
	r := limiter.Request{Caller: alice, Cost: 1, WantState: true}
	admit(t, a, ctx, &r)
	assert.Equal(t, "plans", r.State.Budget)
	assert.EqualValues(t, 1, r.State.Remaining)
}

// The wait that a refused rest states is that of the budgets which can refuse.
func TestAdapter_AShadowBudgetOfTheOuterRouteDelaysNobody(t *testing.T) {
	l, _ := newLimiter(t,
		limiter.Budget{Name: "all", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(10)},
		limiter.Budget{Name: "watched", Scope: limiter.ByPrincipal, Limit: limiter.PerDay(1),
			Routes: []string{"outer"}, Shadow: true})
	a := mounted(t, l, 2, false)
	ctx := admit(t, a, background, &limiter.Request{Caller: on(alice, "outer"), Cost: 9})
	admit(t, a, background, &limiter.Request{Caller: on(alice, "other"), Cost: 1})
	r := limiter.Request{Caller: on(alice, "inner"), Cost: 10}
	_, err := a.Take(ctx, &r)
	require.NoError(t, err)
	assert.Equal(t, limiter.Deny, r.Decision.Outcome)
	assert.Equal(t, "all", r.Decision.Budget)
	assert.Equal(t, time.Hour, r.Decision.RetryAfter)
}
