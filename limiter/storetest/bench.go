package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ration-go/ration/limiter"
)

// Bench runs the workload by which stores are compared, as sub-benchmarks whose
// names are key=value parts for benchstat:
//
//   - budgets: the charges of one request, at one account each;
//   - keys: the accounts that requests are spread over at random;
//   - outcome: allow (nothing ever runs out) or deny (everything has);
//   - par: whether goroutines on all processors share the store.
//
// Allocations are reported.
func Bench(b *testing.B, h Harness) {
	for _, w := range []workload{
		{budgets: 1, keys: 1, outcome: limiter.Allow},
		{budgets: 1, keys: 100_000, outcome: limiter.Allow},
		{budgets: 1, keys: 1, outcome: limiter.Deny},
		{budgets: 3, keys: 100_000, outcome: limiter.Allow},
		{budgets: 3, keys: 1, outcome: limiter.Deny},
	} {
		for _, par := range []bool{false, true} {
			name := fmt.Sprintf("budgets=%d/keys=%.0g/outcome=%v/par=%t",
				w.budgets, float64(w.keys), w.outcome, par)
			b.Run(name, func(b *testing.B) { w.run(b, h.New(b, nil), par) })
		}
	}
}

// workload is one shape of requests.
type workload struct {
	budgets, keys int
	outcome       limiter.Outcome
}

func (w workload) run(b *testing.B, store limiter.Store, par bool) {
	users := make([]string, w.keys)
	for i := range users {
		users[i] = fmt.Sprintf("user-%08d", i)
		w.take(b, store, w.charges(), users[i]) // so that every account is there
	}
	b.ReportAllocs()
	if !par {
		charges, r := w.charges(), rand.New(rand.NewPCG(1, 1))
		for b.Loop() {
			w.take(b, store, charges, users[r.IntN(len(users))])
		}
		return
	}
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		charges, r := w.charges(), rand.New(rand.NewPCG(1, rand.Uint64()))
		for pb.Next() {
			w.take(b, store, charges, users[r.IntN(len(users))])
		}
	})
}

// charges returns the charges of one request; take fills in whose they are. An
// account that always denies has paid its only token for a hundred years.
func (w workload) charges() []limiter.Charge {
	limit := limiter.Limit{Tokens: 1_000_000, Per: time.Second, Burst: 1_000_000_000}
	if w.outcome == limiter.Deny {
		limit = limiter.Limit{Tokens: 1, Per: 36_500 * day}
	}
	charges := make([]limiter.Charge, w.budgets)
	for i := range charges {
		charges[i] = in(string(rune('a'+i)), limit, 1)
	}
	return charges
}

func (w workload) take(b *testing.B, store limiter.Store, charges []limiter.Charge, user string) {
	for i := range charges {
		charges[i].Key.Principal.ID = user
	}
	if _, err := store.Take(context.Background(), charges); err != nil {
		b.Error(err)
	}
}
