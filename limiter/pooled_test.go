package limiter_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
)

// lastCharges is a store that keeps the charges of its last call as it got them.
type lastCharges struct {
	limiter.Store
	charges []limiter.Charge
}

func (s *lastCharges) Take(ctx context.Context, c []limiter.Charge) (limiter.Decision, error) {
	s.charges = slices.Clone(c)
	return s.Store.Take(ctx, c)
}

func (s *lastCharges) Peek(ctx context.Context, c []limiter.Charge) (limiter.Decision, error) {
	s.charges = slices.Clone(c)
	return s.Store.Peek(ctx, c)
}

// Requests are pooled. The store gets the same charges as from a limiter that has had no
// other request, whatever came before, also panics of hooks.
func TestLimiter_NoPartOfAnotherRequestSurvives(t *testing.T) {
	type panics struct{}
	hook := func(ctx context.Context, name string) {
		if ctx.Value(panics{}) == name {
			panic(name)
		}
	}
	open := func() (*limiter.Limiter, *lastCharges) {
		store := &lastCharges{Store: newStore(t, new(manual))}
		budgets := []limiter.Budget{
			{Name: "all", Limit: limiter.PerHour(1000)},
			{Name: "caller", Limit: limiter.PerHour(20), Scope: limiter.ByPrincipal | limiter.ByRoute,
				LimitFor: func(ctx context.Context, c limiter.Caller) limiter.Limit {
					hook(ctx, "LimitFor")
					return map[string]limiter.Limit{"u": limiter.Unlimited, "b": limiter.Blocked,
						"p": limiter.PerSecond(5)}[c.Principal.ID]
				}},
			{Name: "label", Limit: limiter.PerHour(10), PerRequest: true,
				Scope: limiter.ByPrincipal | limiter.ByRoute | limiter.ByWorkload},
			{Name: "shadow", Limit: limiter.PerMinute(3), Scope: limiter.ByTenant, Shadow: true},
			{Name: "some", Limit: limiter.PerMinute(9), Routes: []string{"/r"}, Scope: limiter.ByRoute},
		}
		for i := range budgets {
			budgets[i].OnError = limiter.Closed
		}
		l := limiter.Must(limiter.New(store, budgets, limiter.Config{
			Gate: func(ctx context.Context, c limiter.Caller) limiter.GateResult {
				hook(ctx, "Gate")
				return limiter.GateResult{Exempt: c.Principal.ID == "x"}
			},
			Observer: limiter.Observer{Decided: func(ctx context.Context, _ limiter.DecisionEvent) {
				hook(ctx, "Decided")
			}},
		}))
		return l, store
	}
	pooled, got := open()
	random := rand.New(rand.NewPCG(1, 2))
	one := func(of ...string) string { return of[random.IntN(len(of))] }
	for range 3000 {
		c := limiter.Caller{Route: one("", "/", "/r"), Workload: one("", "w", "v"),
			Principal: limiter.Principal{Kind: "user", Tenant: one("", "t"), ID: one("", "a", "u", "b", "p", "x")}}
		ctx := context.WithValue(background, panics{}, one("", "", "Gate", "LimitFor", "Decided"))
		cost := random.Int64N(4)
		call := (*limiter.Limiter).Take
		if random.IntN(3) == 0 {
			call = (*limiter.Limiter).Peek
		}
		ask := func(l *limiter.Limiter, s *lastCharges) (panicked any, err error) {
			defer func() { panicked = recover() }()
			s.charges = nil
			_, err = call(l, ctx, c, cost)
			return nil, err
		}
		fresh, want := open()
		wantPanic, wantErr := ask(fresh, want)
		panicked, err := ask(pooled, got)
		require.Equal(t, wantErr, err)
		require.Equal(t, wantPanic, panicked)
		require.Equal(t, want.charges, got.charges, "%+v", c)
	}
}
