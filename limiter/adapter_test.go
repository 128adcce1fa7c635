package limiter_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/storekit"
)

// mounted returns the adapter of a limiter with as many handlers.
func mounted(t *testing.T, l *limiter.Limiter, handlers int, settles bool) *limiter.Adapter {
	t.Helper()
	a := l.Adapter()
	for range handlers {
		_, err := a.Setup("http", settles, nil)
		require.NoError(t, err)
	}
	return a
}

// admit takes a request that is allowed, and returns the context to handle it in.
func admit(
	t *testing.T, a *limiter.Adapter, ctx context.Context, r *limiter.Request,
) context.Context {
	t.Helper()
	ctx, err := a.Take(ctx, r)
	require.NoError(t, err)
	require.True(t, r.Decision.Allowed(), "%+v", r.Decision)
	return ctx
}

// ofAlice is a request of alice's.
func ofAlice(cost int64) *limiter.Request { return &limiter.Request{Caller: alice, Cost: cost} }

// allocations returns what f allocates at the least: under the race detector pools
// forget at times.
func allocations(f func()) float64 {
	least := testing.AllocsPerRun(1, f)
	for range 100 {
		least = min(least, testing.AllocsPerRun(1, f))
	}
	return least
}

func TestAdapter_TakeSaysWhatBecameOfARequest(t *testing.T) {
	gone, leave := context.WithCancel(background)
	leave()
	late, cancel := context.WithDeadline(background, time.Unix(0, 0))
	defer cancel()
	own := limiter.Budget{Name: "own", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(3)}
	free := func(context.Context, limiter.Caller) limiter.GateResult {
		return limiter.GateResult{Exempt: true}
	}
	down := &failing{err: storeError(storekit.Timeout)}
	tests := []struct {
		name    string
		ctx     context.Context
		store   limiter.Store
		onError limiter.FailurePolicy
		gate    func(context.Context, limiter.Caller) limiter.GateResult
		request limiter.Request
		want    string
		err     error
		allowed bool
	}{
		{name: "allow", request: limiter.Request{Cost: 1}, want: "allow", allowed: true},
		{name: "deny", request: limiter.Request{Cost: 3}, want: "deny"},
		{name: "never", request: limiter.Request{Cost: 4}, want: "never"},
		{name: "nobody found", request: limiter.Request{Err: limiter.ErrNobody},
			want: "unauthenticated", err: limiter.ErrNobody},
		{name: "nobody given", request: limiter.Request{Caller: limiter.Caller{Route: "q"}},
			want: "unauthenticated", err: limiter.ErrNobody},
		{name: "gone", ctx: gone, want: "canceled", err: context.Canceled},
		{name: "late", ctx: late, want: "canceled", err: context.DeadlineExceeded},
		{name: "gone before", request: limiter.Request{Err: context.Canceled}, want: "canceled",
			err: context.Canceled},
		{name: "any error", request: limiter.Request{Err: assert.AnError}, want: "error_closed",
			err: assert.AnError},
		{name: "negative", request: limiter.Request{Cost: -1}, want: "error_closed",
			err: &limiter.CostError{}},
		{name: "open", store: down, onError: limiter.Open, want: "error_open", err: down.err,
			allowed: true},
		{name: "closed", store: down, onError: limiter.Closed, want: "error_closed", err: down.err},
		{name: "skipped", request: limiter.Request{Cost: 9, Skip: true}, want: "skipped", allowed: true},
		{name: "exempt", request: limiter.Request{Cost: 9}, gate: free, want: "skipped", allowed: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			seen, own := new(recorder), own
			if own.OnError = test.onError; test.store == nil {
				test.store = newStore(t, new(manual))
			}
			l := limiter.Must(limiter.New(test.store, []limiter.Budget{own}, limiter.Config{
				Name: "api", Observer: seen.observer(), Gate: test.gate}))
			if test.ctx == nil {
				test.ctx = background
			}
			if test.onError == 0 && test.gate == nil {
				require.Equal(t, "own allow 2", take(t, l, on(alice, "q"), 1))
			}
			seen.take()
			r := test.request
			if r.Transport = "mq"; r.Caller.Route == "" {
				r.Caller = on(alice, "q")
			}
			_, err := l.Adapter().Take(test.ctx, &r)
			var cost *limiter.CostError
			if errors.As(test.err, &cost) {
				require.ErrorAs(t, err, &cost)
			} else {
				require.ErrorIs(t, err, test.err)
			}
			assert.Equal(t, test.want, r.Outcome)
			assert.Equal(t, test.allowed, r.Decision.Allowed())
			assert.Equal(t, test.want == "skipped", r.Skip)
			events := seen.take()
			require.NotEmpty(t, events)
			assert.Equal(t, "api mq q "+test.want, events[len(events)-1])
		})
	}
}

// A request is the same under another label and by another transport.
func TestAdapter_OnePrincipalIsChargedOnce(t *testing.T) {
	seen := new(recorder)
	l := limiter.Must(limiter.New(newStore(t, new(manual)), []limiter.Budget{
		{Name: "b", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(10)},
		{Name: "c", Scope: limiter.ByPrincipal | limiter.ByRoute, Limit: limiter.PerHour(20)},
		{Name: "n", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(30), PerRequest: true},
	}, limiter.Config{Observer: seen.observer()}))
	a := mounted(t, l, 2, false)
	outer := limiter.Request{Transport: "http", Cost: 3,
		Caller: limiter.Caller{Principal: alice.Principal, Route: "/", Workload: "a"}}
	ctx := admit(t, a, background, &outer)
	require.Equal(t, "allow", outer.Outcome)
	seen.take()
	for name, change := range map[string]func(*limiter.Request){
		"the same":          func(*limiter.Request) {},
		"another label":     func(r *limiter.Request) { r.Caller.Workload = "b" },
		"another transport": func(r *limiter.Request) { r.Transport = "grpc" },
		"a smaller cost":    func(r *limiter.Request) { r.Cost = 0 },
	} {
		inner := outer
		inner.Outcome, inner.Decision = "", limiter.Decision{}
		change(&inner)
		further := admit(t, a, ctx, &inner)
		assert.Empty(t, inner.Outcome, name)
		admit(t, a, further, &inner)
		assert.Empty(t, seen.take(), "%s is no request and no decision", name)
	}
	assert.Equal(t, "b allow 7", peek(t, l, on(alice, "GET /a"), 0))

	// On another route the account of that route has not been charged.
	inner := limiter.Request{Transport: "http", Caller: on(alice, "GET /a"), Cost: 3}
	admit(t, a, ctx, &inner)
	assert.Equal(t, "allow", inner.Outcome)
	assert.Equal(t, []string{"default c allow"}, seen.take(), "the request is counted already")
	assert.Equal(t, "b allow 7", peek(t, l, on(alice, "GET /a"), 0), "the account of all routes")

	other := limiter.Request{Caller: bob, Cost: 3}
	admit(t, a, ctx, &other)
	assert.Equal(t, "allow", other.Outcome, "another principal")
	assert.Equal(t, "b allow 7", peek(t, l, bob, 0))
	admit(t, mounted(t, limiter.Must(limiter.New(newStore(t, new(manual)),
		alike(limiter.Budget{Limit: limiter.PerHour(9)}, "z"), limiter.Config{})), 2, false), ctx, &other)
	assert.Equal(t, "z", other.Decision.Budget, "another limiter")
}

func TestAdapter_OneHandlerAloneChargesEachTake(t *testing.T) {
	l, _ := newLimiter(t, limiter.Budget{Name: "b", Limit: limiter.PerHour(10)})
	a := mounted(t, l, 1, false)
	ctx := admit(t, a, background, &limiter.Request{Caller: alice, Cost: 2, KnowsCaller: true})
	admit(t, a, ctx, ofAlice(2))
	assert.Equal(t, "b allow 6", peek(t, l, alice, 0))
}

func TestAdapter_ALaterMountPaysTheRest(t *testing.T) {
	l, _ := newLimiter(t, limiter.Budget{Name: "b", Limit: limiter.PerHour(20)},
		limiter.Budget{Name: "n", Limit: limiter.PerHour(100), PerRequest: true})
	a := mounted(t, l, 3, false)
	outer := admit(t, a, background, ofAlice(1))
	for range 2 { // the second time nothing is left to pay
		r := ofAlice(5)
		inner := admit(t, a, outer, r)
		assert.Equal(t, "b allow 15", peek(t, l, alice, 0))
		admit(t, a, inner, ofAlice(4))
		assert.Equal(t, "b allow 15", peek(t, l, alice, 0), "the outer two have paid 5")
	}
	admit(t, a, outer, ofAlice(7))
	assert.Equal(t, "b allow 13", peek(t, l, alice, 0))
	require.Equal(t, "b allow 0", take(t, l, alice, 13))
	require.NoError(t, l.Reload([]limiter.Budget{
		{Name: "n", Limit: limiter.PerHour(100), PerRequest: true}}))
	assert.Equal(t, "n allow 97", peek(t, l, alice, 0), "two requests and this one")
}

// The rest would fit, the whole never.
func TestAdapter_ALaterMountIsNeverAllowedWhatNoAccountCanPay(t *testing.T) {
	l, clock := newLimiter(t, limiter.Budget{Name: "b", Limit: limiter.PerHour(10)})
	a := mounted(t, l, 2, false)
	ctx := admit(t, a, background, ofAlice(5))
	clock.add(time.Hour)
	r := ofAlice(11)
	_, err := a.Take(ctx, r)
	require.NoError(t, err)
	assert.Equal(t, "never", r.Outcome)
	assert.Equal(t, "b allow 10", peek(t, l, alice, 0))
}

func TestAdapter_ADeniedRestWaitsForTheWhole(t *testing.T) {
	l, clock := newLimiter(t, limiter.Budget{Name: "b", Limit: limiter.PerHour(10)})
	a := mounted(t, l, 2, false)
	ctx := admit(t, a, background, ofAlice(4))
	take(t, l, bob, 3)
	r := ofAlice(10)
	_, err := a.Take(ctx, r)
	require.NoError(t, err)
	assert.Equal(t, "deny", r.Outcome)
	assert.Equal(t, 42*time.Minute, r.Decision.RetryAfter, "the rest would wait 18 min")
	assert.EqualValues(t, 3, r.Decision.Remaining)
	clock.add(42*time.Minute - 1)
	assert.Equal(t, "b deny 1ns", take(t, l, alice, 10))
	clock.add(1)
	admit(t, a, background, ofAlice(10))
}

// A budget PerRequest has counted the request, and would not take another one.
func TestAdapter_ADeniedRestNamesWhatDeniesTheWhole(t *testing.T) {
	budgets := []limiter.Budget{{Name: "b", Limit: limiter.PerMinute(10)},
		{Name: "n", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(1), PerRequest: true}}
	l, _ := newLimiter(t, budgets...)
	a := mounted(t, l, 2, false)
	ctx := admit(t, a, background, ofAlice(6))
	r := ofAlice(10)
	admit(t, a, ctx, r)
	assert.EqualValues(t, 0, r.Decision.Remaining)
	r = ofAlice(10)
	r.ID = "another request"
	_, err := a.Take(ctx, r)
	require.NoError(t, err)
	assert.Equal(t, "n", r.Decision.Budget)

	l, _ = newLimiter(t, budgets...)
	a = mounted(t, l, 2, false)
	ctx = admit(t, a, background, ofAlice(6))
	take(t, l, bob, 4)
	r = ofAlice(7)
	_, err = a.Take(ctx, r)
	require.NoError(t, err)
	assert.Equal(t, limiter.Decision{Outcome: limiter.Deny, Budget: "n", Limit: limiter.PerHour(1),
		RetryAfter: time.Hour, ResetAfter: time.Hour}, r.Decision)
	assert.True(t, r.Named)
	assert.True(t, r.Shown)
	assert.Equal(t, time.Hour, r.Next)
}

func TestAdapter_TheFirstMessagePaysTheRestAndEachLaterOneItself(t *testing.T) {
	const budget = 100
	l, _ := newLimiter(t, limiter.Budget{Name: "b", Limit: limiter.PerHour(budget)})
	requests, _ := newLimiter(t,
		limiter.Budget{Name: "n", Limit: limiter.PerHour(budget), PerRequest: true})
	for _, l := range []*limiter.Limiter{l, requests} {
		a := mounted(t, l, 1, false)
		ctx := admit(t, a, background, &limiter.Request{Caller: alice, Cost: 1, KnowsCaller: true})
		message := func(n int, cost int64) string {
			r := limiter.Request{Caller: alice, Cost: cost, Message: n, KnowsCaller: true}
			assert.Equal(t, ctx, admit(t, a, ctx, &r), "a message has no context of its own")
			return r.Outcome
		}
		if l == requests {
			assert.Empty(t, message(1, 3), "the open was the request")
		} else {
			assert.Equal(t, "allow", message(1, 3))
		}
		assert.Equal(t, "allow", message(2, 3))
		assert.Equal(t, "allow", message(3, 1))
	}
	assert.Equal(t, "b allow 93", peek(t, l, alice, 0))
	assert.Equal(t, "n allow 96", peek(t, requests, alice, 0), "the open, two messages and this")

	a := l.Adapter()
	ctx := admit(t, a, background, &limiter.Request{Caller: alice, Cost: 1, KnowsCaller: true})
	first := limiter.Request{Caller: alice, Cost: 1, Message: 1}
	admit(t, a, ctx, &first)
	assert.Empty(t, first.Outcome, "the open has paid all of it")
	assert.Equal(t, "b allow 92", peek(t, l, alice, 0))
}

// Settle corrects the message received last; before any, the open, which then pays
// nothing of the first one.
func TestAdapter_MessagesAreSettledOneByOne(t *testing.T) {
	l, _ := newLimiter(t, limiter.Budget{Name: "b", Limit: limiter.PerHour(100)})
	a := mounted(t, l, 1, true)
	open := func() context.Context {
		return admit(t, a, background, &limiter.Request{Caller: alice, Cost: 1, Settles: true})
	}
	message := func(ctx context.Context, n int, cost int64) {
		admit(t, a, ctx, &limiter.Request{Caller: alice, Cost: cost, Message: n, Settles: true})
	}
	ctx := open()
	message(ctx, 1, 5)
	assert.Equal(t, "b allow 95", peek(t, l, alice, 0))
	require.NoError(t, limiter.Settle(ctx, 3))
	assert.Equal(t, "b allow 97", peek(t, l, alice, 0))
	message(ctx, 2, 5)
	require.NoError(t, limiter.Settle(ctx, 0))
	assert.Equal(t, "b allow 97", peek(t, l, alice, 0))
	require.ErrorIs(t, limiter.Settle(ctx, 0), limiter.ErrReceipt)

	ctx = open()
	require.NoError(t, limiter.Settle(ctx, 2))
	assert.Equal(t, "b allow 95", peek(t, l, alice, 0))
	message(ctx, 1, 5)
	assert.Equal(t, "b allow 90", peek(t, l, alice, 0), "the open stands for itself")
}

// The messages of a stream are charged where it was opened, further out than the
// handler that settles them.
func TestAdapter_AHandlerSettlesTheMessageWhoseverMountCharged(t *testing.T) {
	l, _ := newLimiter(t, limiter.Budget{Name: "b", Limit: limiter.PerHour(100)})
	a := mounted(t, l, 2, true)
	outer := admit(t, a, background, &limiter.Request{Caller: alice, Cost: 1, Settles: true})
	inner := admit(t, a, outer, &limiter.Request{Caller: alice, Cost: 1, Settles: true})
	admit(t, a, outer, &limiter.Request{Caller: alice, Cost: 5, Message: 1, Settles: true})
	require.NoError(t, limiter.Settle(inner, 3))
	assert.Equal(t, "b allow 97", peek(t, l, alice, 0))
}

// What a message has paid is not the request's.
func TestAdapter_ALaterMountPaysWhatTheOpenHasNotPaid(t *testing.T) {
	l, _ := newLimiter(t, limiter.Budget{Name: "b", Limit: limiter.PerHour(100)})
	a := mounted(t, l, 2, false)
	ctx := admit(t, a, background, ofAlice(1))
	admit(t, a, ctx, &limiter.Request{Caller: alice, Cost: 5, Message: 1})
	admit(t, a, ctx, ofAlice(3))
	assert.Equal(t, "b allow 93", peek(t, l, alice, 0))
}

func TestAdapter_ASkippedRequestIsFreeAndCountedOnce(t *testing.T) {
	seen := new(recorder)
	l := limiter.Must(limiter.New(newStore(t, new(manual)), alike(limiter.Budget{
		Limit: limiter.PerHour(10)}, "b"), limiter.Config{Observer: seen.observer()}))
	a := mounted(t, l, 3, false)
	seen.take()
	skipped := func(ctx context.Context, want string) context.Context {
		r := limiter.Request{Transport: "http", Caller: on(alice, "/"), Cost: 99, Skip: true,
			KnowsCaller: true}
		ctx = admit(t, a, ctx, &r)
		assert.Equal(t, want, r.Outcome)
		return ctx
	}
	ctx := skipped(skipped(background, "skipped"), "")
	assert.Equal(t, []string{"default http / skipped"}, seen.take())
	c, ok := keying.CallerFrom(ctx)
	assert.True(t, ok)
	assert.Equal(t, on(alice, "/"), c)

	r := ofAlice(4)
	admit(t, a, ctx, r)
	assert.Equal(t, "allow", r.Outcome, "a mount that does not skip charges")
	assert.Equal(t, "b allow 6", peek(t, l, alice, 0))
}

func TestAdapter_ErrRefusesWithoutACharge(t *testing.T) {
	l, _ := newLimiter(t, limiter.Budget{Name: "b", Limit: limiter.PerHour(10)})
	r := ofAlice(1)
	r.Err = limiter.ErrNobody
	ctx, err := l.Adapter().Take(background, r)
	require.ErrorIs(t, err, limiter.ErrNobody)
	assert.Equal(t, background, ctx)
	assert.Zero(t, r.Decision)
	assert.Equal(t, "b allow 10", peek(t, l, alice, 0))
}

func TestAdapter_IDsTellRequestsApart(t *testing.T) {
	type identity struct{ method, url string }
	l, _ := newLimiter(t, limiter.Budget{Name: "b", Limit: limiter.PerHour(10)})
	a := mounted(t, l, 2, false)
	request := func(ctx context.Context, id any) (context.Context, string) {
		r := limiter.Request{Caller: alice, Cost: 1, ID: id}
		ctx = admit(t, a, ctx, &r)
		return ctx, r.Outcome
	}
	first, outcome := request(background, identity{"GET", "/a"})
	assert.Equal(t, "allow", outcome)
	_, outcome = request(first, identity{"GET", "/a"})
	assert.Empty(t, outcome)
	_, outcome = request(first, nil)
	assert.Empty(t, outcome, "the request that the context belongs to")
	madeUp, outcome := request(first, identity{"GET", "/b"})
	assert.Equal(t, "allow", outcome)
	_, outcome = request(madeUp, nil)
	assert.Empty(t, outcome)
	_, outcome = request(madeUp, identity{"GET", "/a"})
	assert.Equal(t, "allow", outcome, "made up by one that was made up")
	assert.Equal(t, "b allow 7", peek(t, l, alice, 0))
}

// The made-up request has met only the other limiter.
func TestAdapter_WithoutAnIDARequestIsThatOfTheInnermostContext(t *testing.T) {
	l, _ := newLimiter(t, limiter.Budget{Name: "b", Limit: limiter.PerHour(10)})
	other, _ := newLimiter(t, limiter.Budget{Name: "o", Limit: limiter.PerHour(10)})
	a, b := mounted(t, l, 2, false), mounted(t, other, 2, false)
	ctx := admit(t, a, background, &limiter.Request{Caller: alice, Cost: 1, ID: "outer"})
	ctx = admit(t, b, ctx, &limiter.Request{Caller: alice, Cost: 1, ID: "made up"})
	r := ofAlice(1)
	ctx = admit(t, a, ctx, r)
	assert.Equal(t, "allow", r.Outcome)
	admit(t, a, ctx, &limiter.Request{Caller: alice, Cost: 1, ID: "made up"})
	assert.Equal(t, "b allow 8", peek(t, l, alice, 0))
}

func TestSettle_ReachesAllPartsAndSettlesOnce(t *testing.T) {
	for actual, want := range map[int64]int64{0: 20, 1: 19, 3: 17, 6: 14, 9: 11, 15: 5} {
		events := new(charges)
		l := limiter.Must(limiter.New(newStore(t, new(manual)), []limiter.Budget{
			{Name: "b", Limit: limiter.PerHour(20)},
			{Name: "n", Limit: limiter.PerHour(100), PerRequest: true},
		}, limiter.Config{Observer: events.observer()}))
		a := mounted(t, l, 3, true)
		ctx := background
		for _, cost := range []int64{1, 5, 9} {
			ctx = admit(t, a, ctx, &limiter.Request{Caller: alice, Cost: cost, Settles: true})
		}
		assert.Equal(t, map[string]int64{"b": 11, "n": 98}, remaining(t, l, events, alice),
			"the request and this one")
		var cost *limiter.CostError
		require.ErrorAs(t, limiter.Settle(ctx, -1), &cost)
		require.NoError(t, limiter.Settle(ctx, actual))
		assert.Equal(t, map[string]int64{"b": want, "n": 97}, remaining(t, l, events, alice),
			"%d of 9", actual)
		require.ErrorIs(t, limiter.Settle(ctx, 0), limiter.ErrReceipt)
		assert.Equal(t, want, remaining(t, l, events, alice)["b"])
	}
}

// Whoever corrects, in whichever handler: the inner, the outer or the one between.
func TestSettle_ReachesAllPartsFromEachHandler(t *testing.T) {
	for depth := range 3 {
		l, _ := newLimiter(t, limiter.Budget{Name: "b", Limit: limiter.PerHour(20)})
		a := mounted(t, l, 3, true)
		contexts := []context.Context{background}
		for i, cost := range []int64{1, 5, 9} {
			r := limiter.Request{Caller: alice, Cost: cost, Settles: true}
			contexts = append(contexts, admit(t, a, contexts[i], &r))
		}
		require.NoError(t, limiter.Settle(contexts[depth+1], 2))
		assert.Equal(t, "b allow 18", peek(t, l, alice, 0), "handler %d", depth)
		require.ErrorIs(t, limiter.Settle(contexts[3], 2), limiter.ErrReceipt)
	}
}

// Each mount has a route of its own, whose account pays what the request really cost.
func TestSettle_CorrectsTheAccountsOfAllParts(t *testing.T) {
	var budgets []limiter.Budget
	routes := []string{"first", "second", "third"}
	for _, route := range routes {
		budgets = append(budgets, limiter.Budget{Name: route, Limit: limiter.PerHour(20),
			Routes: []string{route}})
	}
	l, _ := newLimiter(t, budgets...)
	a := mounted(t, l, 3, true)
	ctx := background
	for i, cost := range []int64{1, 5, 9} {
		ctx = admit(t, a, ctx,
			&limiter.Request{Caller: on(alice, routes[i]), Cost: cost, Settles: true})
	}
	require.NoError(t, limiter.Settle(ctx, 3))
	for i, want := range []string{"first allow 17", "second allow 17", "third allow 17"} {
		assert.Equal(t, want, peek(t, l, on(alice, routes[i]), 0))
	}
}

// The outer mount's own route has paid 1, and the request did cost more.
func TestSettle_DebitsAnEarlierPartThatWasTooLittle(t *testing.T) {
	l, _ := newLimiter(t,
		limiter.Budget{Name: "in", Limit: limiter.PerHour(20), Routes: []string{"inner"}},
		limiter.Budget{Name: "out", Limit: limiter.PerHour(20), Routes: []string{"outer"}})
	a := mounted(t, l, 2, true)
	ctx := admit(t, a, background,
		&limiter.Request{Caller: on(alice, "outer"), Cost: 1, Settles: true})
	ctx = admit(t, a, ctx, &limiter.Request{Caller: on(alice, "inner"), Cost: 5, Settles: true})
	require.NoError(t, limiter.Settle(ctx, 3))
	assert.Equal(t, "out allow 17", peek(t, l, on(alice, "outer"), 0))
	assert.Equal(t, "in allow 17", peek(t, l, on(alice, "inner"), 0))
}

func TestReservation_OfAnAdapterCorrectsAllPartsThatCameBefore(t *testing.T) {
	l, _ := newLimiter(t, limiter.Budget{Name: "b", Limit: limiter.PerHour(20)})
	a := mounted(t, l, 2, true)
	outer := limiter.Request{Caller: alice, Cost: 1, Reserve: true}
	ctx := admit(t, a, background, &outer)
	inner := limiter.Request{Caller: alice, Cost: 5, Reserve: true}
	admit(t, a, ctx, &inner)
	require.NoError(t, inner.Reservation.Settle(ctx, 2))
	assert.Equal(t, "b allow 18", peek(t, l, alice, 0))
	require.ErrorIs(t, outer.Reservation.Settle(ctx, 0), limiter.ErrReceipt, "the inner one was first")

	outer.Reservation, inner.Reservation = nil, nil
	ctx = admit(t, a, background, &outer)
	same := limiter.Request{Caller: alice, Cost: 1, Reserve: true}
	admit(t, a, ctx, &same)
	assert.Same(t, outer.Reservation, same.Reservation)
	inner = limiter.Request{Caller: alice, Cost: 5, Reserve: true}
	admit(t, a, ctx, &inner)
	require.NoError(t, inner.Reservation.Cancel(ctx))
	assert.Equal(t, "b allow 18", peek(t, l, alice, 0))
}

// Even if only an adapter further in lets handlers settle.
func TestSettle_ReachesWhatAnAdapterPaidThatDoesNotSettle(t *testing.T) {
	l, _ := newLimiter(t, limiter.Budget{Name: "b", Limit: limiter.PerHour(20)})
	a := mounted(t, l, 1, false)
	mounted(t, l, 1, true)
	outer := ofAlice(5)
	ctx := admit(t, a, background, outer)
	assert.Nil(t, outer.Reservation)
	require.ErrorIs(t, limiter.Settle(ctx, 1), limiter.ErrReceipt, "it does not let handlers settle")
	ctx = admit(t, a, ctx, &limiter.Request{Caller: alice, Cost: 5, Settles: true})
	require.NoError(t, limiter.Settle(ctx, 1))
	assert.Equal(t, "b allow 19", peek(t, l, alice, 0))
}

func TestSettle_OfARequestThatAHandlerMakesUpIsItsOwn(t *testing.T) {
	l, _ := newLimiter(t, limiter.Budget{Name: "b", Limit: limiter.PerHour(20)})
	a := mounted(t, l, 2, true)
	ctx := admit(t, a, background,
		&limiter.Request{Caller: alice, Cost: 5, Settles: true, ID: "outer"})
	madeUp := admit(t, a, ctx, &limiter.Request{Caller: alice, Cost: 6, Settles: true, ID: "made up"})
	require.NoError(t, limiter.Settle(madeUp, 1))
	assert.Equal(t, "b allow 14", peek(t, l, alice, 0), "of 11 reserved, 5 came back")
	require.ErrorIs(t, limiter.Settle(madeUp, 1), limiter.ErrReceipt)
	require.NoError(t, limiter.Settle(ctx, 2))
	assert.Equal(t, "b allow 17", peek(t, l, alice, 0))
}

func TestSettle_OfSeveralLimitersIsOneCall(t *testing.T) {
	store, failing := newSettleFails(t, storeError(storekit.Unavailable))
	sound, _ := newLimiter(t, limiter.Budget{Name: "b", Limit: limiter.PerHour(20)})
	var ctx context.Context = background
	for _, l := range []*limiter.Limiter{failing, sound} {
		ctx = admit(t, mounted(t, l, 1, true), ctx,
			&limiter.Request{Caller: alice, Cost: 5, Settles: true})
	}
	var failed *limiter.StoreError
	require.ErrorAs(t, limiter.Settle(ctx, 2), &failed)
	assert.Equal(t, "b allow 18", peek(t, sound, alice, 0), "the inner one is settled all the same")
	require.ErrorIs(t, limiter.Settle(ctx, 2), limiter.ErrReceipt, "of the inner one")
	assert.Equal(t, "b allow 3", peek(t, failing, alice, 0), "the second call has settled the other")
	assert.Equal(t, 2, store.calls)
	require.ErrorIs(t, limiter.Settle(background, 1), limiter.ErrReceipt)
}

func TestSettle_WorksOnceTheRequestHasEnded(t *testing.T) {
	l, _ := newLimiter(t, limiter.Budget{Name: "b", Limit: limiter.PerHour(20)})
	ctx, cancel := context.WithCancel(background)
	a := mounted(t, l, 1, true)
	ctx = admit(t, a, ctx, &limiter.Request{Caller: alice, Cost: 5, Settles: true})
	cancel()
	require.NoError(t, limiter.Settle(ctx, 2))
	assert.Equal(t, "b allow 18", peek(t, l, alice, 0))
}

func TestAdapter_KnowsCallerLetsTheHandlerFindIt(t *testing.T) {
	l, _ := newLimiter(t, limiter.Budget{Name: "b", Limit: limiter.PerHour(20)})
	a := mounted(t, l, 1, false)
	ctx := admit(t, a, background, ofAlice(1))
	_, ok := keying.CallerFrom(ctx)
	assert.False(t, ok)
	want := limiter.Caller{Principal: alice.Principal, Route: "GET /", Workload: "w"}
	r := limiter.Request{Caller: want, Cost: 1, KnowsCaller: true}
	type mark struct{}
	ctx = admit(t, a, context.WithValue(ctx, mark{}, 7), &r)
	c, ok := keying.CallerFrom(ctx)
	assert.True(t, ok)
	assert.Equal(t, want, c)
	assert.Equal(t, 7, ctx.Value(mark{}))
}

func TestAdapter_TakeDoesNotAllocateWhatItDoesNotNeed(t *testing.T) {
	budgets := []limiter.Budget{
		{Name: "a", Limit: limiter.PerHour(1 << 30)},
		{Name: "b", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(1 << 30)},
		{Name: "gone", Limit: limiter.PerHour(1), Routes: []string{"used up"}}}
	l := limiter.Must(limiter.New(newStore(t, new(manual)), budgets, limiter.Config{
		Observer: limiter.Observer{Answered: func(limiter.RequestEvent) {},
			Decided: func(context.Context, limiter.DecisionEvent) {}},
		Gate: func(context.Context, limiter.Caller) limiter.GateResult { return limiter.GateResult{} },
	}))
	a := mounted(t, l, 1, false)
	takes := func(ctx context.Context, r limiter.Request) func() {
		return func() {
			again := r
			_, _ = a.Take(ctx, &again)
		}
	}
	request := limiter.Request{Transport: "http", Caller: alice, Cost: 1, WantState: true}
	denied := request
	denied.Caller.Route = "used up"
	free := request
	free.Skip = true
	for name, r := range map[string]limiter.Request{"allow": request, "deny": denied, "skip": free} {
		assert.Zero(t, allocations(takes(background, r)), name)
	}
	mounted(t, l, 1, false)
	assert.LessOrEqual(t, allocations(takes(background, request)), 1.0, "the context")
	inner := admit(t, a, background, &request)
	assert.LessOrEqual(t, allocations(takes(inner, request)), 1.0, "the context")
	assert.Zero(t, allocations(takes(background, denied)), "a denied request has no context")
}

func TestAdapter_WarnSaysWhereTheCodeIsExplained(t *testing.T) {
	var log strings.Builder
	l, err := limiter.New(newStore(t, new(manual)),
		alike(limiter.Budget{Limit: limiter.PerSecond(1)}, "a"), limiter.Config{
			Name: "edge", Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
	require.NoError(t, err)
	l.Adapter().Warn(t.Context(), "some-code", "what is wrong", slog.Int("requests", 3))
	assert.Regexp(t, `level=WARN msg="what is wrong" code=some-code `+
		`see=https://github.com/ration-go/ration#\S+ limiter=edge requests=3`, log.String())
}
