package limiter_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
)

// ledger is the books of one budget: a token a millisecond, so that at whole
// milliseconds the balance is whole, and in debt a wait tells it.
type ledger struct {
	audit    *limiter.Limiter // the budget alone, on the same store
	capacity int64
	admitted int64 // paid, less what was given back, plus what was debited later
	refilled int64
}

func (g *ledger) balance(t *testing.T) int64 {
	t.Helper()
	d, err := g.audit.Peek(background, alice, 1)
	require.NoError(t, err)
	if d.Allowed() {
		return d.Remaining + 1
	}
	return 1 - int64(d.RetryAfter/time.Millisecond)
}

// check is the law of conservation.
func (g *ledger) check(t *testing.T) {
	t.Helper()
	require.Equal(t, g.capacity, g.admitted+g.balance(t)-g.refilled)
}

// move books a correction, of which the clamps may cut a part.
func (g *ledger) move(delta, before int64) {
	g.admitted += min(max(delta, before-g.capacity), before+g.capacity)
}

func (g *ledger) refill(t *testing.T, ms int64) {
	g.refilled += min(ms, g.capacity-g.balance(t))
}

func TestLimiter_NoTokenIsMintedOrLost(t *testing.T) {
	const perMS = 1000
	clock := new(manual)
	store := newStore(t, clock)
	budgets := []limiter.Budget{
		{Name: "own", Scope: limiter.ByPrincipal, Limit: bucketOf(perMS, time.Second, 50)},
		{Name: "all", Limit: bucketOf(perMS, time.Second, 80)},
	}
	l := limiter.Must(limiter.New(store, budgets, limiter.Config{}))
	var books []*ledger
	for _, b := range budgets {
		audit := limiter.Must(limiter.New(store, []limiter.Budget{b}, limiter.Config{}))
		books = append(books, &ledger{audit: audit, capacity: b.Limit.Burst})
	}
	r := rand.New(rand.NewPCG(5, 5))
	var open []*limiter.Reservation
	var costs []int64
	for range 20_000 {
		switch r.IntN(9) {
		case 0, 1, 2: // a request, which is refused, or panics, or is settled later
			cost := r.Int64N(53)
			reservation := reserve(t, l, cost)
			if !reservation.Decision.Allowed() {
				break
			}
			for _, g := range books {
				g.admitted += cost
			}
			if r.IntN(3) > 0 {
				open, costs = append(open, reservation), append(costs, cost)
			}
		case 3, 4: // correct one
			if len(open) == 0 {
				break
			}
			i := r.IntN(len(open))
			actual := r.Int64N(150)
			for _, g := range books {
				g.move(actual-costs[i], g.balance(t))
			}
			require.NoError(t, open[i].Settle(background, actual))
			last := len(open) - 1
			open[i], costs[i] = open[last], costs[last]
			open, costs = open[:last], costs[:last]
		case 5, 6: // time passes
			ms := r.Int64N(60)
			for _, g := range books {
				g.refill(t, ms)
			}
			clock.add(time.Duration(ms) * time.Millisecond)
		case 7: // a stale reading of the clock
			clock.add(-time.Hour)
			take(t, l, alice, 0)
			clock.add(time.Hour)
		case 8: // accounts that are full are dropped, and equal limits reloaded
			store.Stats()
			require.NoError(t, l.Reload(budgets))
		}
		for _, g := range books {
			g.check(t)
		}
	}
}

func TestLimiter_NoTokenIsMintedOrLostByManyAtOnce(t *testing.T) {
	const capacity = 1_000_000
	l, _ := newLimiter(t,
		limiter.Budget{Name: "a", Limit: limiter.PerHour(capacity)},
		limiter.Budget{Name: "b", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(capacity)})
	var used atomic.Int64
	var group sync.WaitGroup
	for worker := range uint64(16) {
		group.Go(func() {
			r := rand.New(rand.NewPCG(worker, 1))
			for range 500 {
				cost, actual := r.Int64N(100), r.Int64N(120)
				reservation, err := l.Reserve(background, alice, cost)
				if err != nil || !reservation.Decision.Allowed() {
					continue
				}
				switch r.IntN(3) {
				case 0:
					_ = reservation.Cancel(background)
				case 1:
					_ = reservation.Settle(background, actual)
					used.Add(actual)
				default:
					used.Add(cost)
				}
			}
		})
	}
	group.Wait()
	d, err := l.Peek(background, alice, 0)
	require.NoError(t, err)
	assert.Equal(t, capacity-used.Load(), d.Remaining)
}

// Whoever disconnects at once still pays.
func TestLimiter_RequestsThatDisconnectAtOnceGetTheBurstAndNoMore(t *testing.T) {
	l, _ := newLimiter(t, limiter.Budget{Name: "b", Limit: limiter.PerHour(5)})
	started := 0
	for range 10_000 {
		ctx, cancel := context.WithCancel(background)
		r, err := l.Reserve(ctx, alice, 1)
		require.NoError(t, err)
		if r.Decision.Allowed() {
			started++
		}
		cancel() // and nobody settles
	}
	assert.Equal(t, 5, started)
}
