package memstore_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
)

// Peek says what Take would say (R8), also if a share is used up and full accounts are
// dropped to make room.
func TestPeek_SearchesAsTakeDoes(t *testing.T) {
	limits := []limiter.Limit{
		{Tokens: 10, Per: time.Hour}, {Tokens: 100, Per: time.Minute},
		{Tokens: 5, Per: time.Minute, Algorithm: limiter.RollingLog},
	}
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 8))
		now := time.Unix(1_800_000_000, 0)
		s := limiter.Must(memstore.New(memstore.Config{
			MaxAccounts: 8 << random.IntN(3), Now: func() time.Time { return now }}))
		budgets := []string{"a", "b", "c"}
		s.Capabilities().Plan(budgets, nil)
		for step := range 400 {
			if random.IntN(3) == 0 {
				now = now.Add(time.Duration(random.Int64N(int64(2 * time.Minute))))
			}
			principal := limiter.Principal{Kind: "user", ID: fmt.Sprint(random.IntN(30))}
			var peeked, taken []limiter.Charge
			for _, i := range random.Perm(len(budgets))[:1+random.IntN(len(budgets))] {
				peeked = append(peeked, limiter.Charge{
					Key:   limiter.Key{Budget: budgets[i], Principal: principal},
					Limit: limits[i], Cost: random.Int64N(3), Shadow: random.IntN(4) == 0})
			}
			taken = append(taken, peeked...)
			want, err := s.Peek(t.Context(), peeked)
			require.NoError(t, err)
			got, err := s.Take(t.Context(), taken)
			require.NoError(t, err)
			require.Equal(t, got, want, "seed %d, step %d", seed, step)
			for i := range taken {
				require.Equal(t, taken[i].Result, peeked[i].Result, "seed %d, step %d", seed, step)
			}
		}
	}
}

// peeker peeks and then takes from accounts that nobody else uses. They have records
// from the start and are never full.
type peeker struct {
	t        *testing.T
	store    *memstore.Store
	clock    *clock
	random   *rand.Rand
	outcomes map[limiter.Outcome]int
}

func newPeeker(t *testing.T, s *memstore.Store, now *clock) *peeker {
	p := &peeker{t, s, now, rand.New(rand.NewPCG(1, 2)), map[limiter.Outcome]int{}}
	for id := range 3 {
		charges := p.charges(id)
		for i := range charges {
			charges[i].Cost = 1000
		}
		d, err := s.Take(t.Context(), charges)
		require.NoError(t, err)
		require.True(t, d.Allowed())
		require.Zero(t, s.Stats().OverflowTakes)
	}
	return p
}

// charges returns a charge on each of three budgets, of which half is used at first.
func (p *peeker) charges(id int) []limiter.Charge {
	charges := make([]limiter.Charge, len(algorithms))
	for i, algorithm := range algorithms {
		charges[i] = limiter.Charge{
			Key: limiter.Key{Budget: fmt.Sprint("budget-", i),
				Principal: limiter.Principal{Kind: "user", ID: fmt.Sprint("own-", id)}},
			Limit: limiter.Limit{Algorithm: algorithm, Tokens: 2000, Per: time.Hour},
		}
	}
	return charges
}

// step peeks and takes, and gives most of what was taken back.
func (p *peeker) step() {
	p.clock.advance(time.Duration(p.random.IntN(200)) * time.Millisecond)
	charges := p.charges(p.random.IntN(3))
	p.random.Shuffle(len(charges), func(i, j int) { charges[i], charges[j] = charges[j], charges[i] })
	charges = charges[:1+p.random.IntN(len(charges))]
	for i := range charges {
		charges[i].Cost = p.random.Int64N([]int64{3, 1400, 2500}[p.random.IntN(3)])
	}
	peeked := slices.Clone(charges)
	want, err := p.store.Peek(p.t.Context(), peeked)
	require.NoError(p.t, err)
	got, err := p.store.Take(p.t.Context(), charges)
	require.NoError(p.t, err)
	require.Equal(p.t, want, got)
	for i := range charges {
		require.Equal(p.t, peeked[i].Result, charges[i].Result)
	}
	if p.outcomes[got.Outcome]++; !got.Allowed() {
		return
	}
	for i := range charges {
		charges[i].Cost = -charges[i].Cost / 3 * 3 // all but 2 at most
	}
	require.NoError(p.t, p.store.Settle(p.t.Context(), charges))
}

// Peek says what Take says while other goroutines use the same shards, even if they have
// used up the shares.
func TestPeek_SaysWhatTakeSaysWhileTheShardsAreBusy(t *testing.T) {
	for _, maxAccounts := range []int{200, 1_000_000} {
		t.Run(fmt.Sprintf("max=%d", maxAccounts), func(t *testing.T) {
			now := &clock{}
			s := memstore.NewSharded(memstore.Config{MaxAccounts: maxAccounts, Now: now.now}, 2)
			own := newPeeker(t, s, now)
			first := rand.New(rand.NewPCG(0, 9))
			for range 2000 {
				hammer(t, s, first)
			}
			require.Equal(t, maxAccounts == 200, s.Stats().OverflowTakes > 0)
			var done atomic.Bool
			var others sync.WaitGroup
			for worker := range uint64(4) {
				others.Go(func() {
					for r := rand.New(rand.NewPCG(worker, 9)); !done.Load(); {
						hammer(t, s, r)
					}
				})
			}
			stop := sync.OnceFunc(func() { done.Store(true); others.Wait() })
			defer stop()
			for range less(10_000) / slowdown {
				own.step()
			}
			stop()
			require.Len(t, own.outcomes, 3, "%v", own.outcomes)
		})
	}
}
