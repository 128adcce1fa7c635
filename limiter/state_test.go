package limiter_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/kind"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
)

// takeWithState takes a request of c with WantState. It may be denied.
func takeWithState(t *testing.T, l *limiter.Limiter, c limiter.Caller, cost int64) limiter.Request {
	t.Helper()
	r := limiter.Request{Caller: c, Cost: cost, WantState: true}
	_, err := l.Adapter().Take(background, &r)
	require.NoError(t, err)
	return r
}

// visible says what the caller of a request may see: the state of a budget, its name,
// its numbers.
func visible(r *limiter.Request) string {
	says := func(is bool, what string) string {
		if is {
			return what
		}
		return ""
	}
	return says(r.State.Budget != "", "state ") + says(r.Named, "named ") + says(r.Shown, "shown")
}

// A caller sees accounts that are its own or its tenant's, and budgets that are Public.
func TestAdapter_ShowsNobodyTheAccountsOfOthers(t *testing.T) {
	address := limiter.Principal{Kind: kind.Address, Tenant: "10.0.0.0/24", ID: "10.0.0.1"}
	lone := limiter.Principal{Kind: kind.Address, ID: "10.0.0.1"}
	shared := limiter.Principal{Kind: kind.Shared, ID: "unauthenticated"}
	const own, tenants = limiter.ByPrincipal, limiter.ByTenant
	for _, test := range []struct {
		name   string
		scope  limiter.Scope
		who    limiter.Principal
		public bool
		want   string
		denied string
	}{
		{"everybody's", 0, alice.Principal, false, "", ""},
		{"the route's", limiter.ByRoute, alice.Principal, false, "", ""},
		{"everybody's, Public", 0, alice.Principal, true, "state named shown", "named shown"},
		{"everybody's, Public, to nobody", 0, limiter.Principal{}, true, "state named shown",
			"named shown"},
		{"the caller's", own, alice.Principal, false, "state named shown", "named shown"},
		{"the caller's by route", own | limiter.ByRoute, alice.Principal, false, "state named shown",
			"named shown"},
		{"its tenant's", tenants, alice.Principal, false, "state named shown", "named shown"},
		{"an address's", own, address, false, "state named shown", "named shown"},
		{"a lone address's, as a tenant", tenants, lone, false, "state named shown", "named shown"},
		{"a network's", tenants, address, false, "named ", "named "},
		{"a network's, Public", tenants, address, true, "state named shown", "named shown"},
		{"all unauthenticated callers'", own, shared, false, "named ", "named "},
		{"all unauthenticated callers', as a tenant", tenants, shared, false, "named ", "named "},
		{"all unauthenticated callers', Public", own, shared, true, "state named shown", "named shown"},
	} {
		t.Run(test.name, func(t *testing.T) {
			l, _ := newLimiter(t, limiter.Budget{Name: "b", Scope: test.scope, Public: test.public,
				Limit: limiter.PerHour(3)})
			c := limiter.Caller{Principal: test.who, Route: "/"}
			r := takeWithState(t, l, c, 2)
			assert.Equal(t, test.want, visible(&r))
			if r.State.Budget != "" {
				assert.Equal(t, r.Decision, r.State)
			}
			r = takeWithState(t, l, c, 2)
			assert.Equal(t, test.denied, visible(&r), "denied")
			r = takeWithState(t, l, c, 4)
			assert.Equal(t, test.denied, visible(&r), "never")
		})
	}
}

func TestAdapter_ShowsNobodyAnOverflowAccount(t *testing.T) {
	for public, want := range map[bool]string{false: "named ", true: "state named shown"} {
		l := limiter.Must(limiter.New(limiter.Must(memstore.New(memstore.Config{MaxAccounts: 1})),
			[]limiter.Budget{{Name: "b", Scope: limiter.ByPrincipal, Limit: limiter.PerDay(1_000_000),
				Public: public}}, limiter.Config{}))
		r := takeWithState(t, l, alice, 1)
		assert.Equal(t, "state named shown", visible(&r), "it has the only account")
		r = takeWithState(t, l, bob, 1)
		assert.Equal(t, want, visible(&r))
	}
}

// If a caller sees several accounts, State is that of the account with the least left
// relative to its capacity. If two are equal, it is the one that takes longer to fill.
func TestAdapter_StateIsThatOfTheAccountWithTheLeastLeft(t *testing.T) {
	own := func(name string, l limiter.Limit) limiter.Budget {
		return limiter.Budget{Name: name, Scope: limiter.ByPrincipal, Limit: l}
	}
	hidden := limiter.Budget{Name: "all", Limit: limiter.PerHour(10)}
	shadow := own("shadow", limiter.PerHour(10))
	shadow.Shadow = true
	for _, test := range []struct {
		name    string
		budgets []limiter.Budget
		want    string
	}{
		{"least left", []limiter.Budget{own("a", limiter.PerHour(100)), own("b", limiter.PerHour(20))},
			"b"},
		{"relative", []limiter.Budget{own("a", limiter.PerHour(30)), own("b", limiter.PerHour(20))}, "b"},
		{"relative, of large capacities", []limiter.Budget{own("a", limiter.PerHour(1<<62)),
			own("b", limiter.PerHour(20)), own("c", limiter.PerHour(1<<61))}, "b"},
		{"not everybody's, not a shadow", []limiter.Budget{hidden, shadow,
			own("a", limiter.PerHour(100))}, "a"},
		{"for longer", []limiter.Budget{own("a", limiter.PerHour(20)), own("b", limiter.PerDay(20))}, "b"},
		{"the first of equals", []limiter.Budget{own("a", limiter.PerHour(20)),
			own("b", limiter.PerHour(20))}, "a"},
		{"none", []limiter.Budget{hidden, shadow}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			l, _ := newLimiter(t, test.budgets...)
			r := takeWithState(t, l, alice, 10)
			assert.Equal(t, test.want, r.State.Budget)
			r = limiter.Request{Caller: bob, Cost: 0}
			_, err := l.Adapter().Take(background, &r)
			require.NoError(t, err)
			assert.Zero(t, r.State, "it did not ask")
		})
	}
}

// Next is not a nanosecond too short, nor one too long.
func TestAdapter_NextIsTheWaitForTheNextToken(t *testing.T) {
	for _, test := range []struct {
		limit limiter.Limit
		cost  int64
		want  time.Duration
	}{
		{limiter.PerHour(60), 0, 0},
		{limiter.PerHour(60), 1, time.Minute},
		{limiter.PerHour(60), 30, time.Minute},
		{limiter.Limit{Tokens: 3, Per: time.Second, Burst: 5}, 2, 333_333_334},
		{limiter.Limit{Algorithm: limiter.FixedWindow, Tokens: 5, Per: time.Minute}, 2, time.Minute},
		{limiter.Limit{Algorithm: limiter.FixedWindow, Tokens: 5, Per: time.Minute}, 0, 0},
		{limiter.Limit{Algorithm: limiter.RollingLog, Tokens: 5, Per: time.Minute}, 2, time.Minute},
	} {
		l, clock := newLimiter(t, limiter.Budget{Name: "b", Scope: limiter.ByPrincipal,
			Limit: test.limit})
		r := takeWithState(t, l, alice, test.cost)
		require.Equal(t, test.want, r.Next, "%v", test.limit)
		if r.Next > 0 {
			clock.add(r.Next - 1)
			d := limiter.Must(l.Peek(background, alice, 0))
			assert.Equal(t, r.State.Remaining, d.Remaining, "%v", test.limit)
			clock.add(1)
			d = limiter.Must(l.Peek(background, alice, 0))
			assert.Greater(t, d.Remaining, r.State.Remaining, "%v", test.limit)
		}
	}
	l, clock := newLimiter(t, limiter.Budget{Name: "b", Limit: limiter.PerHour(60)})
	takeWithState(t, l, alice, 58)
	clock.add(15 * time.Second)
	r := takeWithState(t, l, alice, 10)
	assert.Equal(t, "deny", r.Outcome)
	assert.Equal(t, 45*time.Second, r.Next, "also of a refused request")
	assert.Equal(t, 7*time.Minute+45*time.Second, r.Decision.RetryAfter)
}

func TestAdapter_ABlockedCallerSeesTheBudgetThatBlocksIt(t *testing.T) {
	for scope, want := range map[limiter.Scope]string{0: "", limiter.ByPrincipal: "named shown"} {
		l, _ := newLimiter(t, limiter.Budget{Name: "b", Scope: scope, Limit: limiter.PerHour(3),
			LimitFor: answer(limiter.Blocked)})
		r := takeWithState(t, l, alice, 1)
		assert.Equal(t, "never", r.Outcome)
		assert.Equal(t, want, visible(&r))
		assert.Zero(t, r.Next)
	}
}

func TestAdapter_UnavailableIsThatOfTheBudgetThatRefuses(t *testing.T) {
	l, _ := newLimiter(t,
		limiter.Budget{Name: "all", Limit: limiter.PerHour(5), Unavailable: true},
		limiter.Budget{Name: "own", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(3)})
	r := takeWithState(t, l, alice, 3)
	assert.False(t, r.Unavailable)
	r = takeWithState(t, l, alice, 3)
	assert.Equal(t, "own", r.Decision.Budget)
	assert.False(t, r.Unavailable)
	r = takeWithState(t, l, bob, 3)
	assert.Equal(t, "all", r.Decision.Budget)
	assert.True(t, r.Unavailable)
	r = takeWithState(t, l, bob, 6)
	assert.Equal(t, "all", r.Decision.Budget)
	assert.False(t, r.Unavailable, "what can never be paid is not used up")
}

func TestNew_UnavailableIsForAccountsThatAllCallersShare(t *testing.T) {
	for scope, ok := range map[limiter.Scope]bool{0: true, limiter.ByRoute: true,
		limiter.ByTenant: false, limiter.ByPrincipal: false,
		limiter.ByPrincipal | limiter.ByRoute: false} {
		_, err := limiter.New(newStore(t, new(manual)), []limiter.Budget{{Name: "b", Scope: scope,
			Limit: limiter.PerHour(5), Unavailable: true}}, limiter.Config{})
		if ok {
			require.NoError(t, err)
			continue
		}
		requireConfigError(t, err, `Budgets[0] ("b").Unavailable`, true)
	}
}

// If the store fails and a policy decides, no account is shown.
func TestAdapter_ShowsNoAccountIfTheStoreFails(t *testing.T) {
	for i, policy := range []limiter.FailurePolicy{limiter.Open, limiter.Closed} {
		l := limiter.Must(limiter.New(&failing{err: assert.AnError}, []limiter.Budget{{
			Name: "b" + strconv.Itoa(i), Scope: limiter.ByPrincipal, Limit: limiter.PerHour(5),
			OnError: policy}}, limiter.Config{}))
		r := limiter.Request{Caller: alice, Cost: 1, WantState: true}
		_, err := l.Adapter().Take(context.Background(), &r)
		require.Error(t, err)
		assert.Empty(t, visible(&r))
		assert.Zero(t, r.Next)
	}
}
