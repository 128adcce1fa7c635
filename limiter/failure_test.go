package limiter_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/storekit"
)

// failing is a store that answers with an error, or allows if that is nil.
type failing struct {
	err   error
	calls int
}

func (f *failing) Check(limiter.Limit) error { return nil }

func (f *failing) Take(context.Context, []limiter.Charge) (limiter.Decision, error) {
	f.calls++
	return limiter.Decision{Outcome: limiter.Allow}, f.err
}

func (f *failing) Peek(context.Context, []limiter.Charge) (limiter.Decision, error) {
	return limiter.Decision{Outcome: limiter.Allow}, f.err
}

func (f *failing) Settle(context.Context, []limiter.Charge) error { return f.err }

func TestLimiter_AStoreThatFailsIsAnsweredByTheStrictestPolicy(t *testing.T) {
	open := limiter.Budget{Name: "open", Limit: limiter.PerHour(5), OnError: limiter.Open}
	closed := limiter.Budget{Name: "closed", Limit: limiter.PerHour(6), OnError: limiter.Closed}
	closed2 := closed
	closed2.Name = "also-closed"
	shadow := limiter.Budget{Name: "trial", Limit: limiter.PerHour(7), OnError: limiter.Closed,
		Shadow: true}
	elsewhere := closed
	elsewhere.Routes = []string{"GET /elsewhere"}
	tests := []struct {
		name    string
		budgets []limiter.Budget
		want    limiter.Decision
	}{
		{"open", []limiter.Budget{open}, limiter.Decision{Outcome: limiter.Allow}},
		{"closed", []limiter.Budget{closed}, limiter.Decision{Outcome: limiter.Deny,
			Budget: "closed", Limit: closed.Limit, RetryAfter: time.Second}},
		{"closed-and-open", []limiter.Budget{open, closed, closed2}, limiter.Decision{
			Outcome: limiter.Deny, Budget: "also-closed", Limit: closed.Limit, RetryAfter: time.Second}},
		{"shadow-never-refuses", []limiter.Budget{open, shadow},
			limiter.Decision{Outcome: limiter.Allow}},
		{"only-what-applies", []limiter.Budget{open, elsewhere},
			limiter.Decision{Outcome: limiter.Allow}},
	}
	causes := map[string]error{
		"store-error": &limiter.StoreError{Reason: storekit.Timeout, Err: errors.New("no answer")},
		"any-error":   errors.New("something else"),
	}
	for _, test := range tests {
		for name, cause := range causes {
			t.Run(test.name+"/"+name, func(t *testing.T) {
				seen := new(recorder)
				l := limiter.Must(limiter.New(&failing{err: cause}, test.budgets,
					limiter.Config{Observer: seen.observer()}))
				seen.take()
				d, err := l.Take(background, alice, 1)
				var failed *limiter.StoreError
				require.ErrorAs(t, err, &failed)
				require.ErrorIs(t, err, cause)
				assert.Equal(t, test.want, d)
				d, err = l.Peek(background, alice, 1)
				require.ErrorAs(t, err, &failed)
				assert.Equal(t, test.want, d)
				for _, event := range seen.take() {
					assert.Contains(t, event, "asked", "no budget has decided")
				}
			})
		}
	}
}

func TestLimiter_AnErrorOfTheCallerFallsUnderNoPolicy(t *testing.T) {
	s := new(failing)
	l := limiter.Must(limiter.New(s, []limiter.Budget{{Name: "b", Scope: limiter.ByPrincipal,
		Limit: limiter.PerHour(1), OnError: limiter.Open}}, limiter.Config{}))
	var cost *limiter.CostError
	d, err := l.Take(background, alice, -1)
	require.ErrorAs(t, err, &cost)
	assert.Zero(t, d)
	d, err = l.Take(background, limiter.Caller{}, 1)
	require.ErrorIs(t, err, limiter.ErrNobody)
	assert.Zero(t, d)
	assert.Zero(t, s.calls, "the store was not asked")

	for _, caller := range []error{&limiter.CostError{Cost: 7}, &limiter.ConfigError{Field: "f"}} {
		s.err = caller
		d, err = l.Take(background, alice, 1)
		require.Equal(t, caller, err)
		assert.Zero(t, d)
	}
}

func TestLimiter_ACallerThatLeavesMeanwhileFallsUnderNoPolicy(t *testing.T) {
	ctx, cancel := context.WithCancel(background)
	leaving := func(context.Context, limiter.Caller) limiter.Limit {
		cancel()
		return limiter.PerHour(1)
	}
	l := limiter.Must(limiter.New(&failing{err: context.Canceled}, []limiter.Budget{{Name: "b",
		Limit: limiter.PerHour(1), OnError: limiter.Open, LimitFor: leaving}}, limiter.Config{}))
	d, err := l.Take(ctx, alice, 1)
	require.ErrorIs(t, err, context.Canceled)
	var failed *limiter.StoreError
	assert.False(t, errors.As(err, &failed))
	assert.Zero(t, d)
}

func TestReserve_WithAnOpenPolicyHasNothingToSettle(t *testing.T) {
	s := &failing{err: errors.New("down")}
	l := limiter.Must(limiter.New(s, []limiter.Budget{{Name: "b", Limit: limiter.PerHour(1),
		OnError: limiter.Open}}, limiter.Config{}))
	r, err := l.Reserve(background, alice, 1)
	var failed *limiter.StoreError
	require.ErrorAs(t, err, &failed)
	require.NotNil(t, r)
	assert.True(t, r.Decision.Allowed())
	require.NoError(t, r.Settle(background, 5), "nothing was taken, so nothing is corrected")
}

func TestStoreError_NamesReasonAndCause(t *testing.T) {
	cause := errors.New("connection refused")
	err := &limiter.StoreError{Reason: storekit.Unavailable, Err: cause}
	require.ErrorIs(t, err, cause)
	assert.EqualError(t, err, "limiter: store unavailable: connection refused")
}

func TestOutcome_String(t *testing.T) {
	assert.Equal(t, []string{"none", "allow", "deny", "never", "none"}, []string{
		limiter.Outcome(0).String(), limiter.Allow.String(), limiter.Deny.String(),
		limiter.Never.String(), limiter.Outcome(9).String()})
	assert.False(t, limiter.Decision{}.Allowed(), "the zero decision allows nothing")
}

// fallible is a store that says whether it can fail.
type fallible struct {
	failing
	name string
	can  bool
}

func (f *fallible) Capabilities() limiter.Capabilities {
	return limiter.Capabilities{Name: f.name, NeverFails: !f.can}
}

func TestNew_WantsAPolicyForAStoreThatCanFail(t *testing.T) {
	budgets := []limiter.Budget{{Name: "a", Limit: limiter.PerHour(5), OnError: limiter.Open},
		{Name: "b", Limit: limiter.PerHour(5)}}
	_, err := limiter.New(&fallible{can: true}, budgets, limiter.Config{})
	var config *limiter.ConfigError
	require.ErrorAs(t, err, &config)
	assert.Equal(t, `Budgets[1] ("b").OnError`, config.Field)
	assert.ErrorContains(t, err, "unset")

	_, err = limiter.New(&fallible{can: false}, budgets, limiter.Config{})
	require.NoError(t, err)
	budgets[1].OnError = limiter.Closed
	l, err := limiter.New(&fallible{can: true}, budgets, limiter.Config{})
	require.NoError(t, err)
	for _, policy := range []limiter.FailurePolicy{0, limiter.Local} {
		budgets[1].OnError = policy
		require.ErrorAs(t, l.Reload(budgets), &config, "and so at a reload")
	}
	assert.ErrorContains(t, config, "resilient.New")
}

// halfLocal is a store whose author has set Capabilities.Local, and forgotten Share.
type halfLocal struct{ failing }

func (s *halfLocal) Capabilities() limiter.Capabilities {
	return limiter.Capabilities{Local: &s.failing}
}

// Otherwise the first request of an outage would panic.
func TestNew_WantsAShareForALocalSide(t *testing.T) {
	_, err := limiter.New(new(halfLocal), []limiter.Budget{
		{Name: "a", Limit: limiter.PerHour(5), OnError: limiter.Local}}, limiter.Config{})
	assert.ErrorContains(t, err, "Capabilities.Share")
}

// A store that said it never fails may still do so: then a budget is Closed whose policy
// is not set, and one with Local, since there is no local side.
func TestLimiter_TheFirstClosedBudgetIsNamed(t *testing.T) {
	const unset = limiter.FailurePolicy(0)
	for _, test := range []struct {
		a, b, c limiter.FailurePolicy
		want    string
	}{
		{limiter.Closed, limiter.Closed, limiter.Closed, "a"},
		{limiter.Open, limiter.Closed, limiter.Closed, "b"},
		{limiter.Open, limiter.Closed, unset, "b"},
		{limiter.Open, unset, limiter.Closed, "b"},
		{limiter.Open, limiter.Open, limiter.Local, "c"},
	} {
		store := &fallible{failing: failing{err: errors.New("down")}}
		l := limiter.Must(limiter.New(store, []limiter.Budget{
			{Name: "c", Limit: limiter.PerHour(3), OnError: test.c},
			{Name: "b", Limit: limiter.PerHour(2), OnError: test.b},
			{Name: "a", Limit: limiter.PerHour(1), OnError: test.a},
		}, limiter.Config{}))
		d, err := l.Take(background, alice, 1)
		var failed *limiter.StoreError
		require.ErrorAs(t, err, &failed)
		assert.Equal(t, limiter.Closed, failed.Policy)
		assert.Equal(t, limiter.Deny, d.Outcome)
		assert.Equal(t, test.want, d.Budget, "%+v", test)
	}
}

// lying is a store that answers, but not as it should.
type lying struct {
	failing
	decision limiter.Decision
}

func (s *lying) Take(context.Context, []limiter.Charge) (limiter.Decision, error) {
	return s.decision, s.err
}

func (s *lying) Peek(context.Context, []limiter.Charge) (limiter.Decision, error) {
	return s.decision, s.err
}

// A store that returns neither a decision nor an error has not decided, and a *StoreError
// without a reason is one all the same. Every request is counted.
func TestLimiter_AStoreThatHasNotDecidedHasFailed(t *testing.T) {
	for name, store := range map[string]*lying{
		"no decision": {},
		"no outcome":  {decision: limiter.Decision{Budget: "a", Outcome: limiter.Never + 1}},
		"no reason":   {failing: failing{err: &limiter.StoreError{Err: errors.New("down")}}},
	} {
		seen := new(recorder)
		l := limiter.Must(limiter.New(store, []limiter.Budget{
			{Name: "a", Limit: limiter.PerHour(5), OnError: limiter.Open},
		}, limiter.Config{Observer: seen.observer()}))
		seen.take()
		var failed *limiter.StoreError
		d, err := l.Peek(background, alice, 1)
		require.ErrorAs(t, err, &failed, name)
		assert.Equal(t, limiter.Decision{Outcome: limiter.Allow}, d, name)
		assert.Equal(t, "other", failed.Reason, name)
		assert.Equal(t, limiter.Open, failed.Policy, name)
		r := limiter.Request{Transport: "test", Caller: alice, Cost: 1}
		_, err = l.Adapter().Take(background, &r)
		require.ErrorAs(t, err, &failed, name)
		assert.True(t, r.Decision.Allowed(), name)
		assert.Equal(t, []string{"asked default store other", "asked default store other",
			"default test  error_open"}, seen.take(), name)
	}
}

// panicky is a store whose Check panics once.
type panicky struct {
	failing
	done bool
}

func (p *panicky) Check(limiter.Limit) error {
	if !p.done {
		p.done = true
		panic("a bug in a store")
	}
	return nil
}

func TestReload_GoesOnAfterAStoreHasPanicked(t *testing.T) {
	store := &panicky{done: true}
	budgets := []limiter.Budget{{Name: "b", Limit: limiter.PerHour(1), OnError: limiter.Closed}}
	l := limiter.Must(limiter.New(store, budgets, limiter.Config{}))
	store.done = false
	assert.Panics(t, func() { _ = l.Reload(budgets) })
	assert.NoError(t, l.Reload(budgets))
}
