package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/storekit"
)

// recorder writes down what its observer receives.
type recorder struct {
	hook func()

	mu     sync.Mutex // guards what follows
	events []string
}

func (r *recorder) add(parts ...string) {
	if r.hook != nil {
		r.hook()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, strings.Join(parts, " "))
}

func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	events := r.events
	r.events = nil
	return events
}

func (r *recorder) observer() limiter.Observer {
	return limiter.Observer{
		Configured: func(l string, budgets []limiter.Budget, _ limiter.Store, _ limiter.Capabilities) {
			r.add("configured", l, budgetNames(budgets))
		},
		Routes: func(l, transport string, routes []string) {
			r.add("routes", l, transport, strings.Join(routes, ","))
		},
		Decided: r.decided,
		Answered: func(e limiter.RequestEvent) {
			r.add(e.Limiter, e.Transport, e.Route, e.Outcome)
		},
		StoreCalled: func(l, store string, _ time.Duration, reason string) {
			r.add("asked", l, store, reason)
		},
	}
}

// decided adds the budget that decided, and one event for each shadow budget. The
// decision of a failure policy is no budget's.
func (r *recorder) decided(_ context.Context, e limiter.DecisionEvent) {
	if e.Decision.Budget != "" && e.Err == nil {
		r.add(e.Limiter, e.Decision.Budget, e.Decision.Outcome.String())
	}
	for _, charge := range e.Charges {
		switch {
		case !charge.Shadow || e.Err != nil:
		case charge.Result.Outcome == limiter.Allow:
			r.add(e.Limiter, charge.Key.Budget, "shadow_allow")
		default:
			r.add(e.Limiter, charge.Key.Budget, "shadow_deny")
		}
	}
}

func budgetNames(budgets []limiter.Budget) string {
	names := make([]string, len(budgets))
	for i, b := range budgets {
		names[i] = b.Name
	}
	return strings.Join(names, ",")
}

// remaining returns what is left in each budget of c, by a request of no cost.
func remaining(t *testing.T, l *limiter.Limiter, events *charges, c limiter.Caller) map[string]int64 {
	t.Helper()
	_, err := l.Take(background, c, 0)
	require.NoError(t, err)
	left := map[string]int64{}
	for _, charge := range events.last().Charges {
		left[charge.Key.Budget] = charge.Result.Remaining
	}
	return left
}

// charges keeps the events of decisions, with their charges copied.
type charges struct{ events []limiter.DecisionEvent }

func (c *charges) observer() limiter.Observer {
	return limiter.Observer{Decided: func(_ context.Context, e limiter.DecisionEvent) {
		e.Charges = append([]limiter.Charge(nil), e.Charges...)
		c.events = append(c.events, e)
	}}
}

func (c *charges) last() limiter.DecisionEvent { return c.events[len(c.events)-1] }

// Each hook calls the limiter, which would never return if a lock were held.
func TestLimiter_HooksMayCallTheLimiter(t *testing.T) {
	clock, seen := new(manual), new(recorder)
	var l *limiter.Limiter
	depth := 0
	budgets := []limiter.Budget{{Name: "b", Limit: limiter.PerHour(1000)}}
	again := func() {
		if depth++; depth == 1 && l != nil {
			_, _ = l.Peek(background, bob, 1)
			_, _ = l.Take(background, bob, 1)
			_, _ = l.Adapter().Setup("mq", false, nil)
			_ = l.Adapter().Check()
			_ = l.Reload(budgets)
		}
		depth--
	}
	seen.hook = again
	budgets[0].LimitFor = func(context.Context, limiter.Caller) limiter.Limit {
		again()
		return limiter.PerHour(1000)
	}
	s := storeWithNow(t, func() time.Time { again(); return clock.now() })
	l = limiter.Must(limiter.New(s, budgets, limiter.Config{Observer: seen.observer(),
		Gate: func(context.Context, limiter.Caller) limiter.GateResult {
			again()
			return limiter.GateResult{}
		}}))
	_, err := l.Adapter().Setup("http", false,
		func([]limiter.Budget, limiter.Capabilities, []string) error { again(); return nil })
	require.NoError(t, err)
	for range 10 {
		take(t, l, alice, 1)
		_, err := l.Adapter().Take(background, &limiter.Request{Caller: alice, Cost: 1})
		require.NoError(t, err)
	}
	l.Adapter().Routes("http", "GET /")
	require.NoError(t, l.Adapter().Check())
	require.NoError(t, l.Reload(budgets))
	d, err := l.Peek(background, alice, 0)
	require.NoError(t, err)
	assert.Less(t, d.Remaining, int64(980))
}

func TestLimiter_ReportsToItsObserver(t *testing.T) {
	seen := new(recorder)
	budgets := []limiter.Budget{{Name: "b", Limit: limiter.PerHour(10)}}
	l := limiter.Must(limiter.New(newStore(t, new(manual)), budgets,
		limiter.Config{Name: "api", Observer: seen.observer()}))
	assert.Equal(t, "api", l.Name())
	for _, cost := range []int64{8, 1, 2, 11} {
		take(t, l, alice, cost)
	}
	_, err := l.Adapter().Take(background,
		&limiter.Request{Transport: "http", Caller: on(alice, "GET /"), Cost: 1})
	require.NoError(t, err)
	l.Adapter().Routes("http", "GET /", "GET /a")
	require.NoError(t, l.Reload(append(budgets, limiter.Budget{Name: "a", Limit: budgets[0].Limit})))
	assert.Equal(t, []string{"configured api b", "api b allow", "api b allow", "api b deny",
		"api b never", "api b allow", "api http GET / allow", "routes api http GET /,GET /a",
		"configured api a,b"}, seen.take())
}

func TestObserver_ConfiguredHasTheStoreAndWhatItCanDo(t *testing.T) {
	store := newStore(t, new(manual))
	var given []limiter.Store
	var can limiter.Capabilities
	budgets := []limiter.Budget{{Name: "b", Limit: limiter.PerHour(10), Routes: []string{"GET /"}}}
	var got []limiter.Budget
	limiter.Must(limiter.New(store, budgets, limiter.Config{Observer: limiter.Observer{
		Configured: func(_ string, b []limiter.Budget, s limiter.Store, c limiter.Capabilities) {
			got, given, can = b, append(given, s), c
		}}}))
	assert.Equal(t, []limiter.Store{store}, given)
	assert.Equal(t, budgets, got)
	assert.Equal(t, "memory", can.Name)
	assert.True(t, can.NeverFails)
	live, _ := can.Accounts()
	assert.Zero(t, live)
}

func TestObserver_ADecisionHasAllThatItWasMadeFrom(t *testing.T) {
	type mark struct{}
	var contexts []context.Context
	events := new(charges)
	keep := limiter.Observer{Decided: func(ctx context.Context, _ limiter.DecisionEvent) {
		contexts = append(contexts, ctx)
	}}
	banned := func(_ context.Context, c limiter.Caller) limiter.Limit {
		if c.Principal.ID == "bob" {
			return limiter.Blocked
		}
		return limiter.Limit{}
	}
	l := limiter.Must(limiter.New(newStore(t, new(manual)), []limiter.Budget{
		{Name: "a", Limit: limiter.PerHour(10)},
		{Name: "n", PerRequest: true, Scope: limiter.ByPrincipal, Limit: limiter.PerHour(20)},
		{Name: "t", Shadow: true, Scope: limiter.ByPrincipal, Limit: limiter.PerHour(5),
			LimitFor: banned},
	}, limiter.Config{Name: "api", Observer: events.observer().And(keep)}))
	ctx := context.WithValue(background, mark{}, true)
	caller := on(alice, "GET /")
	d, err := l.Take(ctx, caller, 7)
	require.NoError(t, err)
	e := events.last()
	assert.Equal(t, limiter.DecisionEvent{Limiter: "api", Store: "memory", Caller: caller, Cost: 7, Decision: d,
		Charges: e.Charges}, e)
	require.Len(t, e.Charges, 3)
	for i, want := range []struct {
		budget  string
		id      string
		cost    int64
		outcome limiter.Outcome
		left    int64
	}{{"a", "", 7, limiter.Allow, 3}, {"n", "alice", 1, limiter.Allow, 19},
		{"t", "alice", 7, limiter.Never, 5}} {
		charge := e.Charges[i]
		assert.Equal(t, want.budget, charge.Key.Budget)
		assert.Equal(t, want.id, charge.Key.Principal.ID)
		assert.Equal(t, want.cost, charge.Cost)
		assert.Equal(t, want.outcome, charge.Result.Outcome)
		assert.Equal(t, want.left, charge.Result.Remaining)
	}

	r, err := l.Reserve(ctx, bob, 2)
	require.NoError(t, err)
	e = events.last()
	assert.Equal(t, r.Decision, e.Decision)
	require.Len(t, e.Charges, 3)
	blocked := e.Charges[2]
	assert.Equal(t, limiter.Blocked, blocked.Limit, "a shadow budget that blocks")
	assert.Equal(t, limiter.Key{Budget: "t", Principal: bob.Principal}, blocked.Key)
	assert.True(t, blocked.Shadow)
	assert.EqualValues(t, 2, blocked.Cost)
	require.Len(t, contexts, 2)
	assert.Equal(t, true, contexts[1].Value(mark{}))

	_, err = l.Peek(ctx, alice, 1)
	require.NoError(t, err)
	_, err = l.Take(ctx, alice, -1)
	require.Error(t, err)
	_, err = l.Take(ctx, limiter.Caller{}, 1)
	require.Error(t, err)
	assert.Len(t, events.events, 2, "Peek is no decision, and errors have none")
}

func TestObserver_ABlockedCallerHasNoCharges(t *testing.T) {
	events := new(charges)
	l := limiter.Must(limiter.New(newStore(t, new(manual)), []limiter.Budget{
		{Name: "a", Limit: limiter.PerHour(10)},
		{Name: "b", Limit: limiter.PerHour(10), LimitFor: answer(limiter.Blocked)},
	}, limiter.Config{Observer: events.observer()}))
	assert.Equal(t, "b never", take(t, l, alice, 1))
	assert.Empty(t, events.last().Charges)
	assert.Equal(t, "b", events.last().Decision.Budget)
}

func TestObserver_ADecisionOfAPolicyHasTheError(t *testing.T) {
	events := new(charges)
	cause := errors.New("down")
	for _, policy := range []limiter.FailurePolicy{limiter.Open, limiter.Closed} {
		l := limiter.Must(limiter.New(&failing{err: cause}, []limiter.Budget{{Name: "b",
			Limit: limiter.PerHour(1), OnError: policy}}, limiter.Config{Observer: events.observer()}))
		d, err := l.Take(background, alice, 1)
		e := events.last()
		assert.Equal(t, d, e.Decision)
		assert.Equal(t, err, e.Err)
		var failed *limiter.StoreError
		require.ErrorAs(t, e.Err, &failed)
		require.ErrorIs(t, e.Err, cause)
	}
	require.Len(t, events.events, 2)
}

func TestObserver_TheZeroObserverReceivesNothing(t *testing.T) {
	l := limiter.Must(limiter.New(&failing{err: errors.New("down")}, failClosed,
		limiter.Config{}))
	_, err := l.Take(background, alice, 1)
	require.Error(t, err)
	require.NoError(t, l.Reload(failClosed))
	l.Adapter().Routes("http", "GET /")
	_, err = l.Adapter().Take(background, &limiter.Request{Caller: alice, Cost: 1})
	require.Error(t, err)
}

// Each function of either observer is called, the first one's first.
func TestObserver_AndCallsBoth(t *testing.T) {
	first, second := new(recorder), new(recorder)
	var order []string
	first.hook = func() { order = append(order, "first") }
	second.hook = func() { order = append(order, "second") }
	call := func(o limiter.Observer) {
		o.Configured("api", []limiter.Budget{{Name: "b"}}, nil, limiter.Capabilities{})
		o.Routes("api", "http", []string{"/"})
		o.Decided(background, limiter.DecisionEvent{Limiter: "api",
			Decision: limiter.Decision{Outcome: limiter.Allow, Budget: "b"}})
		o.Answered(limiter.RequestEvent{Limiter: "api", Transport: "http", Route: "/",
			Outcome: "allow"})
		o.StoreCalled("api", "redis", time.Second, storekit.Other)
	}
	want := []string{"configured api b", "routes api http /", "api b allow", "api http / allow",
		"asked api redis other"}
	call(first.observer().And(second.observer()))
	assert.Equal(t, want, first.take())
	assert.Equal(t, want, second.take())
	assert.Equal(t, strings.Fields(strings.Repeat("first second ", len(want))), order)

	for name, joined := range map[string]limiter.Observer{
		"left": first.observer().And(limiter.Observer{}), "right": limiter.Observer{}.And(first.observer()),
	} {
		call(joined)
		assert.Equal(t, want, first.take(), name)
	}
	none := limiter.Observer{}.And(limiter.Observer{})
	assert.True(t, none.Configured == nil && none.Routes == nil && none.Decided == nil &&
		none.Answered == nil && none.StoreCalled == nil, "nothing to call stays nil")
}

func TestReload_MayBeCalledByAnObserver(t *testing.T) {
	budgets := []limiter.Budget{{Name: "b", Limit: limiter.PerHour(1)}}
	var l *limiter.Limiter
	again := true
	l = limiter.Must(limiter.New(newStore(t, new(manual)), budgets, limiter.Config{
		Observer: limiter.Observer{
			Configured: func(string, []limiter.Budget, limiter.Store, limiter.Capabilities) {
				if l != nil && again {
					again = false
					assert.NoError(t, l.Reload(budgets))
				}
			}}}))
	require.NoError(t, l.Reload(budgets))
	assert.False(t, again)
}

func TestLimiter_ReportsHowAStoreThatCanFailAnswers(t *testing.T) {
	budgets := []limiter.Budget{{Name: "a", Limit: limiter.PerHour(5), OnError: limiter.Open}}
	var asked []string
	observer := limiter.Observer{
		StoreCalled: func(l, store string, took time.Duration, reason string) {
			assert.GreaterOrEqual(t, took, time.Duration(0))
			asked = append(asked, fmt.Sprint(l, " ", store, " ", reason))
		}}
	open := func(s limiter.Store) *limiter.Limiter {
		return limiter.Must(limiter.New(s, budgets, limiter.Config{Name: "api", Observer: observer}))
	}
	store := &fallible{name: "tape", can: true}
	l := open(store)
	for _, reply := range []error{
		nil, storeError(storekit.Ambiguous), &limiter.CostError{Cost: -1}, errors.New("foreign"),
	} {
		store.err = reply
		_, _ = l.Take(background, alice, 1)
		_, _ = l.Peek(background, alice, 1)
	}
	gone, leave := context.WithCancel(background)
	budgets[0].LimitFor = func(context.Context, limiter.Caller) limiter.Limit {
		leave()
		return limiter.Limit{}
	}
	require.NoError(t, l.Reload(budgets))
	store.err = context.Canceled
	_, err := l.Take(gone, alice, 1)
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, []string{"api tape ", "api tape ", "api tape ambiguous", "api tape ambiguous",
		"api tape other", "api tape other"}, asked, "callers that are gone, or wrong, are no answer")
	budgets[0].LimitFor = nil

	asked = nil
	_, _ = open(&fallible{}).Take(background, alice, 1)
	assert.Empty(t, asked, "a store that never fails")
	_, _ = open(&fallible{can: true}).Take(background, alice, 1)
	assert.Equal(t, []string{"api store "}, asked, "a store without a name")
}
