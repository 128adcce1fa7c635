package resilient_test

import (
	"context"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/resilient"
)

// The strictest policy of the enforced budgets that apply answers, and only the charges
// of enforced Local budgets reach the local store, in one step.
func TestTake_TheStrictestPolicyAnswers(t *testing.T) {
	budget := func(name string, policy limiter.FailurePolicy) limiter.Budget {
		return limiter.Budget{Name: name, Limit: limiter.PerHour(8), OnError: policy}
	}
	shadow := func(name string, policy limiter.FailurePolicy) limiter.Budget {
		b := budget(name, policy)
		b.Shadow = true
		return b
	}
	elsewhere := func(name string, policy limiter.FailurePolicy) limiter.Budget {
		b := budget(name, policy)
		b.Routes = []string{"GET /elsewhere"}
		return b
	}
	unlimited := func(name string, policy limiter.FailurePolicy) limiter.Budget {
		b := budget(name, policy)
		b.LimitFor = func(context.Context, limiter.Caller) limiter.Limit { return limiter.Unlimited }
		return b
	}
	const open, local, closed = limiter.Open, limiter.Local, limiter.Closed
	for name, test := range map[string]struct {
		budgets []limiter.Budget
		policy  limiter.FailurePolicy
		outcome limiter.Outcome
		charged string // in the local store
	}{
		"open":                    {[]limiter.Budget{budget("a", open)}, open, limiter.Allow, ""},
		"local":                   {[]limiter.Budget{budget("a", local)}, local, limiter.Allow, "a"},
		"closed":                  {[]limiter.Budget{budget("a", closed)}, closed, limiter.Deny, ""},
		"local and open":          {[]limiter.Budget{budget("a", open), budget("b", local)}, local, limiter.Allow, "b"},
		"local and closed":        {[]limiter.Budget{budget("a", local), budget("b", closed)}, closed, limiter.Deny, ""},
		"several local":           {[]limiter.Budget{budget("a", local), budget("b", open), budget("c", local)}, local, limiter.Allow, "a c"},
		"shadow local":            {[]limiter.Budget{shadow("a", local), budget("b", local)}, local, limiter.Allow, "b"},
		"shadow closed":           {[]limiter.Budget{shadow("a", closed), budget("b", local)}, local, limiter.Allow, "b"},
		"only shadow local":       {[]limiter.Budget{shadow("a", local)}, open, limiter.Allow, ""},
		"closed does not apply":   {[]limiter.Budget{elsewhere("a", closed), budget("b", local)}, local, limiter.Allow, "b"},
		"closed is unlimited":     {[]limiter.Budget{unlimited("a", closed), budget("b", local)}, local, limiter.Allow, "b"},
		"shadow local and closed": {[]limiter.Budget{shadow("a", local), budget("b", closed)}, closed, limiter.Deny, ""},
	} {
		p := newProcess(t, 4, test.budgets...)
		p.shared.down.Store(true)
		d, policy := p.take(t, 1)
		assert.Equal(t, test.outcome, d.Outcome, name)
		assert.Equal(t, test.policy, policy, name)
		var charged []string
		for _, request := range p.local.taken {
			for _, c := range request {
				charged = append(charged, c.Key.Budget)
			}
		}
		assert.LessOrEqual(t, len(p.local.taken), 1, name)
		assert.Equal(t, test.charged, strings.Join(charged, " "), name)
	}
}

// The share is the limit divided by the replicas, and the decision states the limit.
func TestTake_EachProcessHasItsShare(t *testing.T) {
	limit := func(l limiter.Limit) limiter.Budget {
		return limiter.Budget{Name: "a", Limit: l, OnError: limiter.Local}
	}
	perRequest := limit(limiter.PerHour(10))
	perRequest.PerRequest = true
	bucket := func(tokens int64, per time.Duration, burst int64) limiter.Limit {
		return limiter.Limit{Tokens: tokens, Per: per, Burst: burst}
	}
	window := limiter.Limit{Algorithm: limiter.FixedWindow, Tokens: 10, Per: time.Hour}
	log := limiter.Limit{Algorithm: limiter.RollingLog, Tokens: 10, Per: time.Hour}
	for _, test := range []struct {
		budget   limiter.Budget
		replicas int
		maxCost  int64
		want     limiter.Limit
	}{
		{limit(limiter.PerHour(10)), 1, 0, bucket(10, time.Hour, 10)},
		{limit(limiter.PerHour(10)), 3, 0, bucket(10, 3*time.Hour, 4)},
		{limit(limiter.PerHour(10)), 4, 0, bucket(5, 2*time.Hour, 3)},
		{limit(limiter.PerHour(10)), 10, 0, bucket(1, time.Hour, 1)},
		{limit(limiter.PerHour(10)), 100, 0, bucket(1, 10*time.Hour, 1)},
		{limit(limiter.PerHour(10)), 100, 7, bucket(1, 10*time.Hour, 7)},
		{limit(limiter.PerHour(10)), 100, 700, bucket(1, 10*time.Hour, 10)},
		{perRequest, 100, 7, bucket(1, 10*time.Hour, 1)},
		{limit(bucket(10, time.Minute, 50)), 4, 0, bucket(5, 2*time.Minute, 13)},
		{limit(window), 4, 5, limiter.Limit{Algorithm: limiter.FixedWindow, Tokens: 3, Per: time.Hour}},
		{limit(log), 10, 5, limiter.Limit{Algorithm: limiter.RollingLog, Tokens: 1, Per: time.Hour}},
	} {
		p := newProcessWith(t, newShared(t), limiter.Config{Logger: quiet}, resilient.Config{
			Replicas: func() int { return test.replicas }, MaxCost: test.maxCost,
		}, test.budget)
		p.shared.down.Store(true)
		d, policy := p.take(t, 1)
		require.Equal(t, limiter.Local, policy, "%+v", test)
		assert.Equal(t, test.want, p.local.taken[0][0].Limit, "%+v", test)
		assert.Equal(t, limiter.Allow, d.Outcome)
		assert.Equal(t, test.budget.Limit, d.Limit)
	}
}

// Never is decided by the limit; what only the share is too small for is refused as by
// Closed.
func TestTake_CostsAboveTheShare(t *testing.T) {
	p := newProcess(t, 4,
		limiter.Budget{Name: "b", Limit: limiter.PerHour(8), OnError: limiter.Local},
		limiter.Budget{Name: "a", Limit: limiter.PerHour(12), OnError: limiter.Local})
	p.shared.down.Store(true)
	for _, test := range []struct {
		cost    int64
		outcome limiter.Outcome
		policy  limiter.FailurePolicy
		budget  string
	}{
		{13, limiter.Never, limiter.Local, "a"},
		{9, limiter.Never, limiter.Local, "b"},
		{4, limiter.Deny, limiter.Closed, "a"},
		{3, limiter.Deny, limiter.Closed, "b"},
		{2, limiter.Allow, limiter.Local, "b"},
		{1, limiter.Deny, limiter.Local, "b"},
	} {
		d, policy := p.take(t, test.cost)
		assert.Equal(t, test.outcome, d.Outcome, "%+v", test)
		assert.Equal(t, test.policy, policy, "%+v", test)
		assert.Equal(t, test.budget, d.Budget, "%+v", test)
		wantWait := map[limiter.FailurePolicy]time.Duration{
			// 1 of 8 an hour; the share alone would need half an hour.
			limiter.Local: time.Hour / 8, limiter.Closed: time.Second,
		}[test.policy]
		if test.outcome != limiter.Deny {
			wantWait = 0
		}
		assert.Equal(t, wantWait, d.RetryAfter, "%+v", test)
	}
}

// A wait is at most the time in which the whole limit gives the cost back.
func TestTake_WaitsForTheWholeLimit(t *testing.T) {
	for _, l := range []limiter.Limit{
		limiter.PerHour(7), {Tokens: 7, Per: time.Hour, Burst: 100},
		{Algorithm: limiter.FixedWindow, Tokens: 7, Per: time.Hour},
		{Algorithm: limiter.RollingLog, Tokens: 7, Per: time.Hour},
		{Tokens: math.MaxInt32, Per: 9 * 365 * 24 * time.Hour},
	} {
		p := newProcess(t, 7, limiter.Budget{Name: "a", Limit: l, OnError: limiter.Local})
		p.shared.down.Store(true)
		d, _ := p.take(t, (l.Capacity()-1)/7+1)
		require.Equal(t, limiter.Allow, d.Outcome)
		d, policy := p.take(t, 1)
		require.Equal(t, limiter.Deny, d.Outcome)
		assert.Equal(t, limiter.Local, policy)
		assert.Positive(t, d.RetryAfter)
		assert.LessOrEqual(t, d.RetryAfter, l.Per/time.Duration(l.Tokens)+1)
	}
}

// A denial of the shared store is final, and the limits that it holds are not asked
// again of the local one.
func TestTake_ADenialIsNotAskedAgain(t *testing.T) {
	p := newProcess(t, 1, limiter.Budget{Name: "a", Limit: limiter.PerHour(1), OnError: limiter.Local})
	for _, want := range []limiter.Outcome{limiter.Allow, limiter.Deny, limiter.Deny} {
		d, policy := p.take(t, 1)
		assert.Equal(t, want, d.Outcome)
		assert.Zero(t, policy)
	}
	assert.Empty(t, p.local.taken)
}

func TestPeek_AsksTheLocalStoreToo(t *testing.T) {
	p := newProcess(t, 2, limiter.Budget{Name: "a", Limit: limiter.PerHour(4), OnError: limiter.Local})
	p.shared.down.Store(true)
	for range 3 {
		d, policy := answeredBy(t)(p.Peek(background, alice, 2))
		assert.Equal(t, limiter.Allow, d.Outcome)
		assert.Equal(t, limiter.Local, policy)
	}
	p.take(t, 2)
	d, _ := answeredBy(t)(p.Peek(background, alice, 2))
	assert.Equal(t, limiter.Deny, d.Outcome)
	assert.Len(t, p.local.taken, 1)
}

// What was reserved locally is corrected locally, before and after the shared store is
// back, and what was reserved there, there.
func TestReserve_IsSettledInTheStoreThatTookIt(t *testing.T) {
	p := newProcess(t, 2,
		limiter.Budget{Name: "a", Limit: limiter.PerHour(20), OnError: limiter.Local},
		limiter.Budget{Name: "b", Limit: limiter.PerHour(200), OnError: limiter.Open})
	left := func(down bool) int64 {
		p.shared.down.Store(down)
		d, _ := p.Peek(background, alice, 0)
		return d.Remaining
	}
	p.shared.down.Store(true)
	r, err := p.Reserve(background, alice, 8)
	var failed *limiter.StoreError
	require.ErrorAs(t, err, &failed)
	assert.EqualValues(t, 2, left(true))
	require.NoError(t, r.Settle(background, 5))
	assert.EqualValues(t, 5, left(true))
	assert.ErrorIs(t, r.Cancel(background), limiter.ErrReceipt)

	late, _ := p.Reserve(background, alice, 5)
	p.shared.down.Store(false)
	early, err := p.Reserve(background, alice, 7)
	require.NoError(t, err)
	require.NoError(t, late.Cancel(background))
	assert.EqualValues(t, 13, left(false))
	assert.EqualValues(t, 5, left(true))

	p.shared.down.Store(true)
	require.ErrorAs(t, early.Settle(background, 1), &failed, "it stays open")
	p.shared.down.Store(false)
	require.NoError(t, early.Settle(background, 1))
	assert.EqualValues(t, 19, left(false))
}

// An answer by Open or Closed leaves nothing to settle.
func TestReserve_OpenHoldsNothing(t *testing.T) {
	p := newProcess(t, 2, limiter.Budget{Name: "a", Limit: limiter.PerHour(20), OnError: limiter.Open})
	p.shared.down.Store(true)
	r, _ := p.Reserve(background, alice, 8)
	p.shared.down.Store(false)
	require.NoError(t, r.Cancel(background))
	d, _ := p.Peek(background, alice, 20)
	assert.Equal(t, limiter.Allow, d.Outcome)
}

func TestReset_ReachesTheLocalStoreFirst(t *testing.T) {
	p := newProcess(t, 1, limiter.Budget{Name: "a", Scope: limiter.ByPrincipal,
		Limit: limiter.PerHour(2), OnError: limiter.Local})
	p.take(t, 2)
	p.shared.down.Store(true)
	p.take(t, 2)
	var failed *limiter.StoreError
	require.ErrorAs(t, p.Reset(background, alice), &failed)
	d, policy := p.take(t, 2)
	assert.Equal(t, limiter.Allow, d.Outcome)
	assert.Equal(t, limiter.Local, policy)
	p.shared.down.Store(false)
	d, _ = p.take(t, 2)
	assert.Equal(t, limiter.Deny, d.Outcome, "the shared account is not reset")
	require.NoError(t, p.Reset(background, alice))
	d, _ = p.take(t, 2)
	assert.Equal(t, limiter.Allow, d.Outcome)
}

// The share is that of the limit that LimitFor answers.
func TestTake_SharesTheLimitOfTheCaller(t *testing.T) {
	p := newProcess(t, 2, limiter.Budget{Name: "a", Scope: limiter.ByPrincipal,
		Limit: limiter.PerHour(2), OnError: limiter.Local,
		LimitFor: func(_ context.Context, c limiter.Caller) limiter.Limit {
			if c.Principal.ID == "alice" {
				return limiter.PerHour(20)
			}
			return limiter.Limit{}
		}})
	p.shared.down.Store(true)
	d, _ := p.take(t, 10)
	assert.Equal(t, limiter.Allow, d.Outcome)
	assert.Equal(t, limiter.PerHour(20), d.Limit)
	d, _ = p.take(t, 1)
	assert.Equal(t, limiter.Deny, d.Outcome)
	assert.Equal(t, limiter.PerHour(20), d.Limit)
	assert.Equal(t, time.Hour/20, d.RetryAfter)
}

// Replicas is asked at most once a second, and only a good value counts.
func TestReplicas_IsReadOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls, answer atomic.Int64
		p := newProcessWith(t, newShared(t), limiter.Config{Logger: quiet}, resilient.Config{
			Replicas: func() int {
				calls.Add(1)
				if answer.Load() == 13 {
					panic("no idea")
				}
				return int(answer.Load())
			},
		}, limiter.Budget{Name: "a", Limit: limiter.PerHour(12), OnError: limiter.Local})
		p.shared.down.Store(true)
		assert.EqualValues(t, 1, calls.Load(), "by New")
		share := func() int64 {
			p.local.taken = nil
			if _, policy := p.take(t, 0); policy == limiter.Closed {
				return 0
			}
			return p.local.taken[0][0].Limit.Capacity()
		}
		for _, test := range []struct{ answer, share int64 }{
			{0, 0}, {13, 0}, {-1, 0}, {3, 4}, {0, 4}, {13, 4}, {math.MinInt64, 4}, {4, 3}, {1, 12},
			{math.MaxInt64, 1},
		} {
			answer.Store(test.answer)
			time.Sleep(time.Second - 1)
			before := calls.Load()
			for range 100 {
				share()
			}
			assert.Equal(t, before, calls.Load())
			time.Sleep(time.Nanosecond)
			for range 100 {
				if test.answer == math.MaxInt64 {
					_, policy := p.take(t, 0)
					assert.Equal(t, limiter.Closed, policy, "the local store refuses such a share")
					continue
				}
				assert.Equal(t, test.share, share(), "%+v", test)
			}
			assert.Equal(t, before+1, calls.Load())
		}
	})
}

// A hook that takes long holds one request up, not one each second, and what it returns
// late does not replace what it returned after that.
func TestReplicas_OnlyOneCallAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		store := limiter.Must(resilient.New(newShared(t), newMemory(t, nil), resilient.Config{
			Replicas: func() int {
				n := calls.Add(1)
				if n == 2 {
					time.Sleep(time.Minute)
				}
				return int(n)
			},
		}))
		capacity := func() int64 {
			share, err := store.Capabilities().Share(limiter.PerHour(10), false)
			assert.NoError(t, err)
			return share.Capacity()
		}
		time.Sleep(time.Second)
		go capacity()
		synctest.Wait()
		for range 30 {
			start := time.Now()
			assert.EqualValues(t, 10, capacity())
			assert.Zero(t, time.Since(start))
			time.Sleep(time.Second)
		}
		assert.EqualValues(t, 2, calls.Load())
		time.Sleep(time.Minute)
		assert.EqualValues(t, 4, capacity(), "it is called again")
	})
}

// Hooks run with no lock held.
func TestReplicas_MayCallTheLimiter(t *testing.T) {
	var p *process
	p = newProcessWith(t, newShared(t), limiter.Config{Logger: quiet}, resilient.Config{
		Replicas: func() int {
			if p != nil {
				_, _ = p.Peek(background, alice, 1)
			}
			return 1
		},
	}, limiter.Budget{Name: "a", Limit: limiter.PerHour(12), OnError: limiter.Local})
	p.shared.down.Store(true)
	d, _ := p.take(t, 12)
	assert.Equal(t, limiter.Allow, d.Outcome)
}

// fussy is a local store that holds no limit with a burst.
type fussy struct{ limiter.Store }

func (f fussy) Check(l limiter.Limit) error {
	if l.Burst > 3 {
		return &limiter.ConfigError{Field: "Limit.Burst", Value: l.Burst, Reason: "want at most 3"}
	}
	return f.Store.Check(l)
}

// failing is a local store that fails.
type failing struct{ limiter.Store }

func (failing) Take(context.Context, []limiter.Charge) (limiter.Decision, error) {
	return limiter.Decision{}, errDown
}

// silent is a local store that returns neither a decision nor an error.
type silent struct{ limiter.Store }

func (silent) Take(context.Context, []limiter.Charge) (limiter.Decision, error) {
	return limiter.Decision{}, nil
}

func TestTake_ALocalStoreThatCannotDecideIsAsClosed(t *testing.T) {
	for name, local := range map[string]limiter.Store{
		"it refuses the share": fussy{newMemory(t, nil)}, "it fails": failing{newMemory(t, nil)},
		"it says nothing": silent{newMemory(t, nil)},
	} {
		s := newShared(t)
		store, err := resilient.New(s, local, resilient.Config{Replicas: func() int { return 1 }})
		require.NoError(t, err)
		l, err := limiter.New(store, []limiter.Budget{
			{Name: "b", Limit: limiter.PerHour(5), OnError: limiter.Local},
			{Name: "a", Limit: limiter.PerHour(5), OnError: limiter.Local},
		}, limiter.Config{Logger: quiet})
		require.NoError(t, err, name)
		s.down.Store(true)
		d, policy := answeredBy(t)(l.Take(background, alice, 1))
		assert.Equal(t, limiter.Decision{Outcome: limiter.Deny, Budget: "a",
			Limit: limiter.PerHour(5), RetryAfter: time.Second}, d, name)
		assert.Equal(t, limiter.Closed, policy)
	}
}

// leaving is a local store whose callers leave while it is asked.
type leaving struct {
	limiter.Store
	leave func()
}

func (l leaving) Take(ctx context.Context, _ []limiter.Charge) (limiter.Decision, error) {
	l.leave()
	return limiter.Decision{}, ctx.Err()
}

// A caller that leaves while the local store is asked gets its own error, and its request
// counts as canceled.
func TestTake_ACallerMayLeaveWhileTheLocalStoreIsAsked(t *testing.T) {
	s := newShared(t)
	s.down.Store(true)
	ctx, cancel := context.WithCancel(background)
	l := limiter.Must(limiter.New(limiter.Must(resilient.New(s, leaving{newMemory(t, nil), cancel},
		resilient.Config{Replicas: func() int { return 1 }})), []limiter.Budget{
		{Name: "a", Limit: limiter.PerHour(5), OnError: limiter.Local},
	}, limiter.Config{Logger: quiet}))
	r := limiter.Request{Caller: alice, Cost: 1}
	_, err := l.Adapter().Take(ctx, &r)
	require.Equal(t, context.Canceled, err)
	assert.Equal(t, "canceled", r.Outcome)
	assert.Zero(t, r.Decision)
}

// An Observer receives the charges that the local side has decided.
func TestObserver_GetsTheLocalCharges(t *testing.T) {
	var events []limiter.DecisionEvent
	var names []string
	p := newProcessWith(t, newShared(t), limiter.Config{Logger: quiet, Observer: limiter.Observer{
		Decided: func(_ context.Context, e limiter.DecisionEvent) {
			events = append(events, e)
			for _, c := range e.Charges {
				names = append(names, c.Key.Budget+" "+c.Result.Outcome.String())
			}
		},
	}}, resilient.Config{Replicas: func() int { return 2 }},
		limiter.Budget{Name: "a", Limit: limiter.PerHour(4), OnError: limiter.Local},
		limiter.Budget{Name: "b", Limit: limiter.PerHour(2), OnError: limiter.Local},
		limiter.Budget{Name: "c", Limit: limiter.PerHour(2), OnError: limiter.Local, Shadow: true},
		limiter.Budget{Name: "d", Limit: limiter.PerHour(2), OnError: limiter.Local, Shadow: true,
			LimitFor: func(context.Context, limiter.Caller) limiter.Limit { return limiter.Blocked }})
	p.shared.down.Store(true)
	p.take(t, 1)
	p.take(t, 1)
	assert.Equal(t, []string{"a allow", "b allow", "a allow", "b deny"}, names)
	require.Len(t, events, 2)
	assert.Equal(t, "b", events[1].Decision.Budget)
	var failed *limiter.StoreError
	require.ErrorAs(t, events[1].Err, &failed)
	assert.Equal(t, limiter.Local, failed.Policy)
	assert.ErrorIs(t, events[1].Err, errDown)
}
