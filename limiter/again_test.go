package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
)

// scribbler is a store that answers by chance, writes all over its charges, fails
// and panics. It notes what it was asked.
type scribbler struct {
	random *rand.Rand
	asked  []limiter.Charge
}

func (s *scribbler) Check(l limiter.Limit) error { return l.Validate() }

func (s *scribbler) Take(_ context.Context, charges []limiter.Charge) (limiter.Decision, error) {
	s.asked = append(s.asked, charges...)
	outcome := func() limiter.Outcome { return limiter.Allow + limiter.Outcome(s.random.IntN(3)) }
	d := limiter.Decision{Outcome: outcome(), Budget: charges[0].Key.Budget, Limit: charges[0].Limit}
	for i := range charges {
		c := &charges[i]
		c.Result = limiter.Result{Outcome: outcome(), Remaining: 7, RetryAfter: 8, ResetAfter: 9}
		if s.random.IntN(3) > 0 {
			c.Receipt = limiter.Receipt{At: 5, Taken: c.Cost, Place: 6, Valid: true}
		}
		c.Cost, c.Shadow, c.Key.Workload = 77, !c.Shadow, "scribbled"
	}
	switch s.random.IntN(8) {
	case 0:
		return limiter.Decision{}, errors.New("no")
	case 1:
		panic("no")
	}
	return d, nil
}

func (s *scribbler) Peek(ctx context.Context, charges []limiter.Charge) (limiter.Decision, error) {
	return s.Take(ctx, charges)
}

func (s *scribbler) Settle(_ context.Context, charges []limiter.Charge) error {
	s.asked = append(s.asked, charges...)
	return nil
}

// attempt is one request by any method.
type attempt struct {
	method int
	caller limiter.Caller
	cost   int64
	seed   uint64 // of what the store does
}

func anyAttempt(random *rand.Rand) attempt {
	one := func(of ...string) string { return of[random.IntN(len(of))] }
	return attempt{random.IntN(4), limiter.Caller{
		Principal: limiter.Principal{Kind: one("user", "user", "address", ""),
			Tenant: one("", "t"), ID: one("free", "banned", "broken", "exempt", "a", "b")},
		Route: one("", "here", "there"), Workload: one("", "w"),
	}, random.Int64N(4) - 1, random.Uint64()}
}

// scribbled is a limiter over a scribbler.
type scribbled struct {
	limiter   *limiter.Limiter
	store     scribbler
	seen      recorder
	decisions charges
}

func newScribbled() *scribbled {
	plan := func(_ context.Context, c limiter.Caller) limiter.Limit {
		switch c.Principal.ID {
		case "free":
			return limiter.Unlimited
		case "banned":
			return limiter.Blocked
		case "broken":
			panic("no plan")
		}
		return limiter.PerHour(3)
	}
	s := new(scribbled)
	s.limiter = limiter.Must(limiter.New(&s.store, []limiter.Budget{
		{Name: "all", Limit: limiter.PerHour(1), OnError: limiter.Open},
		{Name: "plan", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(2), LimitFor: plan,
			OnError: limiter.Open},
		{Name: "trial", Scope: limiter.ByPrincipal | limiter.ByRoute, Limit: limiter.PerHour(4),
			LimitFor: plan, Shadow: true, OnError: limiter.Closed},
		{Name: "requests", Scope: limiter.ByTenant, Limit: limiter.PerHour(5), PerRequest: true,
			OnError: limiter.Open},
		{Name: "here", Limit: limiter.PerHour(6), Routes: []string{"here"}, OnError: limiter.Closed},
		{Name: "label", Scope: limiter.ByPrincipal | limiter.ByWorkload, Limit: limiter.PerHour(7),
			OnError: limiter.Open},
	}, limiter.Config{Observer: s.seen.observer().And(s.decisions.observer()),
		Gate: func(_ context.Context, c limiter.Caller) limiter.GateResult {
			return limiter.GateResult{Exempt: c.Principal.ID == "exempt"}
		}}))
	return s
}

// try returns all that anybody sees of a request.
func (s *scribbled) try(a attempt) (results []any) {
	s.store.random, s.store.asked = rand.New(rand.NewPCG(a.seed, 0)), nil
	s.seen.take()
	s.decisions.events = nil
	defer func() {
		results = append(results, recover(), slices.Clone(s.store.asked), s.seen.take(), s.decisions.events)
	}()
	record := func(values ...any) { results = append(results, values...) }
	request := limiter.Request{Transport: "mq", Caller: a.caller, Cost: a.cost, WantState: true,
		Settles: a.method > 1}
	ctx := context.Context(background)
	switch a.method {
	case 0:
		d, err := s.limiter.Peek(ctx, a.caller, a.cost)
		record(d, fmt.Sprint(err))
		return results
	case 2: // the rest of a request that has paid nothing
		open := limiter.Request{Caller: a.caller, Settles: true}
		ctx, _ = s.limiter.Adapter().Take(ctx, &open)
		request.Message = 1
	}
	_, err := s.limiter.Adapter().Take(ctx, &request)
	held := request.Reservation
	request.Reservation = nil
	record(request, fmt.Sprint(err))
	if held != nil {
		record(held.Decision, fmt.Sprint(held.Settle(background, 9)))
	}
	return results
}

// The memory that requests work with is used again, and brings nothing of the last
// one along, whatever became of that.
func TestLimiter_KnowsNothingOfEarlierRequests(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	used := newScribbled()
	for range 2000 {
		a := anyAttempt(random)
		want := newScribbled().try(a)
		require.Equal(t, want, used.try(a), "%+v", a)
	}
}
