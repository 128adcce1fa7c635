package limiter_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
)

// gated is a limiter of one budget, of 10 an hour, whose gate gives one answer and
// notes whom it was asked about.
type gated struct {
	*limiter.Limiter
	answer limiter.GateResult
	asked  []limiter.Caller
	seen   recorder
}

func newGated(t *testing.T, answer limiter.GateResult) *gated {
	g := &gated{answer: answer}
	g.Limiter = limiter.Must(limiter.New(newStore(t, new(manual)),
		alike(limiter.Budget{Limit: limiter.PerHour(10)}, "b"), limiter.Config{
			Observer: g.seen.observer(),
			Gate: func(_ context.Context, c limiter.Caller) limiter.GateResult {
				g.asked = append(g.asked, c)
				return g.answer
			}}))
	g.seen.take()
	return g
}

// times returns how often the gate was asked since the last call.
func (g *gated) times() int {
	n := len(g.asked)
	g.asked = nil
	return n
}

func TestGate_DecidesBeforeAnyBudget(t *testing.T) {
	for name, test := range map[string]struct {
		answer limiter.GateResult
		want   limiter.Decision
		left   string
	}{
		"pass": {limiter.GateResult{}, limiter.Decision{Outcome: limiter.Allow, Budget: "b",
			Limit: limiter.PerHour(10), Remaining: 9, ResetAfter: 6 * time.Minute}, "b allow 8"},
		"exempt": {limiter.GateResult{Exempt: true}, limiter.Decision{Outcome: limiter.Allow},
			"b allow 10"},
		"exempt with a wait": {limiter.GateResult{Exempt: true, RetryAfter: time.Hour},
			limiter.Decision{Outcome: limiter.Allow}, "b allow 10"},
		"blocked": {limiter.GateResult{Blocked: true},
			limiter.Decision{Outcome: limiter.Never, Limit: limiter.Blocked}, "b allow 10"},
		"blocked for a minute": {limiter.GateResult{Blocked: true, RetryAfter: time.Minute},
			limiter.Decision{Outcome: limiter.Deny, Limit: limiter.Blocked, RetryAfter: time.Minute},
			"b allow 10"},
		"blocked before exempt": {limiter.GateResult{Blocked: true, Exempt: true},
			limiter.Decision{Outcome: limiter.Never, Limit: limiter.Blocked}, "b allow 10"},
		"a wait of nothing": {limiter.GateResult{RetryAfter: time.Hour}, limiter.Decision{
			Outcome: limiter.Allow, Budget: "b", Limit: limiter.PerHour(10), Remaining: 9,
			ResetAfter: 6 * time.Minute}, "b allow 8"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGated(t, test.answer)
			caller := limiter.Caller{Principal: alice.Principal, Route: "GET /", Workload: "w"}
			d, err := g.Peek(background, caller, 1)
			require.NoError(t, err)
			assert.Equal(t, test.want, d)
			d, err = g.Take(background, caller, 1)
			require.NoError(t, err)
			assert.Equal(t, test.want, d)
			assert.Equal(t, []limiter.Caller{caller, caller}, g.asked, "once each, about all of it")
			r, err := g.Reserve(background, caller, 1)
			require.NoError(t, err)
			assert.Equal(t, test.want.Outcome, r.Decision.Outcome)
			assert.Equal(t, 3, g.times())
			g.answer = limiter.GateResult{}
			assert.Equal(t, test.left, peek(t, g.Limiter, caller, 0))
		})
	}
}

func TestGate_OfAnAdaptersRequest(t *testing.T) {
	for _, test := range []struct {
		answer  limiter.GateResult
		outcome string
		wait    time.Duration
	}{
		{limiter.GateResult{Exempt: true}, "skipped", 0},
		{limiter.GateResult{Blocked: true}, "never", 0},
		{limiter.GateResult{Blocked: true, Exempt: true}, "never", 0},
		{limiter.GateResult{Blocked: true, RetryAfter: time.Minute}, "deny", time.Minute},
	} {
		g := newGated(t, test.answer)
		r := limiter.Request{Transport: "mq", Caller: on(alice, "q"), Cost: 5, WantState: true, Settles: true}
		ctx, err := g.Adapter().Take(background, &r)
		require.NoError(t, err)
		assert.Equal(t, test.outcome, r.Outcome)
		assert.Equal(t, test.wait, r.Decision.RetryAfter)
		assert.Equal(t, test.outcome == "skipped", r.Skip)
		assert.Empty(t, visible(&r))
		assert.Equal(t, []string{"default mq q " + test.outcome}, g.seen.take(), "no budget has decided")
		if r.Skip {
			require.NoError(t, limiter.Settle(ctx, 3), "nothing was reserved, so nothing is corrected")
		}
		assert.Equal(t, 1, g.times())
		g.answer = limiter.GateResult{}
		assert.Equal(t, "b allow 10", peek(t, g.Limiter, alice, 0))
	}
}

// The rest of a request is the same request, and so is the Peek for its whole cost.
func TestGate_IsAskedOnceARequest(t *testing.T) {
	g := newGated(t, limiter.GateResult{})
	a := mounted(t, g.Limiter, 3, true)
	ctx := admit(t, a, background, ofAlice(1))
	assert.Equal(t, 1, g.times())
	ctx = admit(t, a, ctx, ofAlice(4))
	admit(t, a, ctx, ofAlice(4))
	r := ofAlice(12)
	_, err := a.Take(ctx, r)
	require.NoError(t, err)
	assert.Equal(t, "never", r.Outcome)
	r = ofAlice(10)
	take(t, g.Limiter, bob, 1)
	g.times()
	_, err = a.Take(ctx, r)
	require.NoError(t, err)
	assert.Equal(t, "deny", r.Outcome)
	admit(t, a, ctx, &limiter.Request{Caller: alice, Cost: 5, Message: 1})
	assert.Zero(t, g.times())
	admit(t, a, ctx, &limiter.Request{Caller: alice, Cost: 0, Message: 2})
	assert.Equal(t, 1, g.times(), "a later message is charged by itself")
	admit(t, a, ctx, &limiter.Request{Caller: alice, Cost: 0, ID: "another"})
	assert.Equal(t, 1, g.times(), "another request")
	admit(t, a, ctx, &limiter.Request{Caller: bob, Cost: 0})
	assert.Equal(t, 1, g.times(), "another principal")
}

// What the gate has exempted is exempt, counted and asked about once.
func TestGate_AnExemptRequestIsExemptForAllMounts(t *testing.T) {
	g := newGated(t, limiter.GateResult{Exempt: true})
	a := mounted(t, g.Limiter, 3, true)
	ctx := admit(t, a, background,
		&limiter.Request{Transport: "http", Caller: on(alice, "/"), Cost: 1})
	g.answer = limiter.GateResult{Blocked: true}
	for _, inner := range []limiter.Request{{Cost: 5}, {Cost: 1, Skip: true}, {Cost: 7, Message: 1},
		{Cost: 7, Message: 2}} {
		inner.Caller = on(alice, "GET /")
		ctx = admit(t, a, ctx, &inner)
		assert.Empty(t, inner.Outcome)
		assert.True(t, inner.Skip)
	}
	assert.Equal(t, 1, g.times())
	assert.Equal(t, []string{"default http / skipped"}, g.seen.take())
	g.answer = limiter.GateResult{}
	assert.Equal(t, "b allow 10", peek(t, g.Limiter, alice, 0))
}

func TestGate_IsNotAskedAboutWhatIsNoRequest(t *testing.T) {
	g := newGated(t, limiter.GateResult{Blocked: true})
	gone, leave := context.WithCancel(background)
	leave()
	_, err := g.Take(gone, alice, 1)
	require.ErrorIs(t, err, context.Canceled)
	_, err = g.Take(background, alice, -1)
	require.Error(t, err)
	_, err = g.Adapter().Take(background, &limiter.Request{Err: limiter.ErrNobody})
	require.ErrorIs(t, err, limiter.ErrNobody)
	admit(t, g.Adapter(), background, &limiter.Request{Caller: alice, Skip: true})
	require.NoError(t, g.Reset(background, alice))
	assert.Zero(t, g.times())
}
