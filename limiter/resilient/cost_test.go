package resilient_test

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/resilient"
)

// node is one of several processes in a trace of outages, with what the formula in the
// package comment says about it.
type node struct {
	*process
	limit    limiter.Limit
	replicas atomic.Int64 // what Config.Replicas returns
	read     int64        // what it returned last, when it was read
	share    int64        // c, under read; 0: it has never decided locally
	local    bool         // it decides locally now
	first    time.Time    // of its local decisions
	last     time.Time
	windows  map[int64]int64 // window of a local decision: the largest share in it
	largest  int64           // of the shares
	cost     *big.Rat        // c + integrals + gaps + growth
	gap      *big.Rat        // r*gap/R since it has last been local
}

// world is all processes, and the shared store.
type world struct {
	limit    limiter.Limit
	start    time.Time
	nodes    []*node
	forgot   int64
	admitted int64
	windows  map[int64]bool // of the server, touched
}

func newWorld(t *testing.T, limit limiter.Limit, processes int) *world {
	w := &world{limit: limit, start: time.Now(), windows: map[int64]bool{}}
	memory := newMemory(t, nil)
	for range processes {
		n := &node{limit: limit, cost: new(big.Rat), gap: new(big.Rat), windows: map[int64]int64{}}
		n.replicas.Store(int64(processes))
		n.process = newProcessWith(t, &shared{Store: memory}, limiter.Config{Logger: quiet},
			resilient.Config{Replicas: n.readReplicas},
			limiter.Budget{Name: "a", Limit: limit, OnError: limiter.Local})
		w.nodes = append(w.nodes, n)
	}
	return w
}

// readReplicas is Config.Replicas. If the share grows, so does what the process can
// admit.
func (n *node) readReplicas() int {
	n.read = n.replicas.Load()
	if n.share > 0 {
		n.setShare()
	}
	return int(n.read)
}

func (n *node) setShare() {
	share := (n.limit.Capacity()-1)/n.read + 1
	if share > n.share {
		n.cost.Add(n.cost, big.NewRat(share-n.share, 1))
	}
	n.share = share
	n.largest = max(n.largest, share)
}

// refill returns what a limit gives back in d, divided by the replicas.
func refill(l limiter.Limit, d time.Duration, replicas int64) *big.Rat {
	gives := big.NewRat(l.Tokens, int64(l.Per))
	gives.Mul(gives, big.NewRat(int64(d), 1))
	return gives.Mul(gives, big.NewRat(1, replicas))
}

// sleep lets time pass: to the local accounts of processes that decide locally, and to
// the gaps of the others.
func (w *world) sleep(d time.Duration) {
	time.Sleep(d)
	for _, n := range w.nodes {
		if n.share == 0 {
			continue
		}
		to := n.gap
		if n.local {
			to = n.cost
		}
		to.Add(to, refill(w.limit, d, n.read))
	}
}

// fail lets the shared store fail for a process, or not.
func (n *node) fail(down bool) {
	if down && !n.local {
		n.cost.Add(n.cost, least(n.gap, big.NewRat(n.share, 1)))
		n.gap.SetInt64(0)
	}
	n.local = down
	n.shared.down.Store(down)
}

func least(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) < 0 {
		return a
	}
	return b
}

// take makes one request, and holds what has been admitted against the formula.
func (w *world) take(t *testing.T, n *node, cost int64) {
	d, policy := n.process.take(t, cost)
	now := time.Now()
	if policy == limiter.Local {
		if n.share == 0 {
			n.setShare()
			n.first = now
		}
		n.last = now
		window := now.UnixNano() / int64(w.limit.Per)
		n.windows[window] = max(n.windows[window], n.share)
	} else if policy == 0 {
		w.windows[now.UnixNano()/int64(w.limit.Per)] = true
	}
	if !d.Allowed() {
		return
	}
	w.admitted += cost
	ceiling := w.ceiling()
	require.LessOrEqual(t, big.NewRat(w.admitted, 1).Cmp(ceiling), 0,
		"%v: %d admitted, the formula allows %s", w.limit, w.admitted, ceiling.FloatString(3))
}

// forget loses all accounts of the shared store, as a restart without persistence does.
func (w *world) forget(t *testing.T) {
	memory := newMemory(t, nil)
	for _, n := range w.nodes {
		n.shared.Store = memory
	}
	w.forgot++
}

// ceiling is the formula.
func (w *world) ceiling() *big.Rat {
	capacity, elapsed := w.limit.Capacity(), time.Since(w.start)
	spans := func(d time.Duration) int64 { return int64(d/w.limit.Per) + 1 }
	sum := int64(0)
	switch w.limit.Algorithm {
	case limiter.TokenBucket:
		total := refill(w.limit, elapsed, 1)
		total.Add(total, big.NewRat((1+w.forgot)*capacity, 1))
		for _, n := range w.nodes {
			total.Add(total, n.cost)
		}
		return total
	case limiter.FixedWindow:
		sum = (1 + w.forgot) * capacity * int64(len(w.windows))
		for _, n := range w.nodes {
			for _, share := range n.windows {
				sum += share
			}
		}
	case limiter.RollingLog:
		sum = (1 + w.forgot) * capacity * spans(elapsed)
		for _, n := range w.nodes {
			if n.share > 0 {
				sum += n.largest * spans(n.last.Sub(n.first))
			}
		}
	}
	return big.NewRat(sum, 1)
}

// outageLimits are limits whose share does not come out even.
var outageLimits = []limiter.Limit{
	{Tokens: 10, Per: 10 * time.Second},
	{Tokens: 100, Per: 7 * time.Second, Burst: 33},
	{Tokens: 7, Per: 20 * time.Second, Burst: 50},
	{Algorithm: limiter.FixedWindow, Tokens: 20, Per: 5 * time.Second},
	{Algorithm: limiter.RollingLog, Tokens: 20, Per: 5 * time.Second},
}

// Ten outages, of all processes or of some, with replicas that change between them and
// sometimes a shared store that has forgotten: greedy callers are admitted no more than
// the formula of the package comment.
func TestOutages_CostNoMoreThanTheFormula(t *testing.T) {
	for i, limit := range outageLimits {
		for seed := range uint64(8) {
			t.Run(fmt.Sprintf("%v/%d", limit, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { outages(t, limit, rand.New(rand.NewPCG(seed, uint64(i)))) })
			})
		}
	}
}

func outages(t *testing.T, limit limiter.Limit, random *rand.Rand) {
	w := newWorld(t, limit, 1+random.IntN(4))
	for cycle := range 20 { // every other one is an outage
		for _, n := range w.nodes {
			n.fail(cycle%2 == 1 && random.IntN(3) > 0)
			n.replicas.Store(1 + random.Int64N(6))
		}
		if random.IntN(6) == 0 {
			w.forget(t)
		}
		for range 1 + random.IntN(15) {
			w.sleep(time.Duration(random.Int64N(int64(limit.Per) / 4)))
			for range random.IntN(3 * int(limit.Capacity())) {
				w.take(t, w.nodes[random.IntN(len(w.nodes))], 1+random.Int64N(2))
			}
		}
	}
	require.NotZero(t, w.admitted)
}

// With replicas that are right and a shared store that forgets nothing, flapping costs
// at most one more capacity and one more refill, however often it happens, and the
// ceiling is nearly reached.
func TestOutages_FlappingCostsAtMostTwice(t *testing.T) {
	for _, limit := range outageLimits[:3] {
		for _, processes := range []int{1, 3, 7} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, limit, processes)
				for cycle := range 100 {
					for _, n := range w.nodes {
						n.fail(cycle%2 == 1)
						for range 2 * int(limit.Capacity()) {
							w.take(t, n, 1)
						}
					}
					w.sleep(limit.Per / 50)
				}
				most := refill(limit, 2*time.Since(w.start), 1)
				most.Add(most, big.NewRat(2*limit.Capacity()+int64(processes)-1, 1))
				admitted := big.NewRat(w.admitted, 1)
				require.LessOrEqual(t, admitted.Cmp(most), 0)
				most.Mul(most, big.NewRat(3, 4))
				require.GreaterOrEqual(t, admitted.Cmp(most), 0, "%v: a test of nothing", limit)
			})
		}
	}
}

// Config.MaxCost makes each share larger: an outage then costs R*c, which can be as much
// as R*C, and not C + R - 1.
func TestOutages_MaxCostAddsToTheCost(t *testing.T) {
	const processes, capacity = 4, 8
	for maxCost, most := range map[int64]int64{1: 16, 2: 16, 3: 8 + 12, 8: 40, 100: 40} {
		memory := newMemory(t, nil)
		admitted := int64(0)
		for range processes {
			p := newProcessWith(t, &shared{Store: memory}, limiter.Config{Logger: quiet}, resilient.Config{
				Replicas: func() int { return processes }, MaxCost: maxCost,
			}, limiter.Budget{Name: "a", Limit: limiter.PerDay(capacity), OnError: limiter.Local})
			for _, down := range []bool{false, true} {
				p.shared.down.Store(down)
				for range 2 * capacity {
					if d, _ := p.take(t, 1); d.Allowed() {
						admitted++
					}
				}
			}
		}
		require.Equal(t, most, admitted, "MaxCost %d", maxCost)
	}
}

// An account refills by the share of the latest decision that it made, also if R has
// changed since then: R in the formula is what it was at that decision.
func TestOutages_AShareHoldsUntilTheNextDecisionOfTheAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := 1
		p := newProcessWith(t, newShared(t), limiter.Config{Logger: quiet}, resilient.Config{
			Replicas: func() int { return replicas },
		}, limiter.Budget{Name: "a", Scope: limiter.ByPrincipal, OnError: limiter.Local,
			Limit: limiter.Limit{Tokens: 1, Per: time.Second, Burst: 100}})
		p.shared.down.Store(true)
		p.take(t, 100)
		replicas = 10
		time.Sleep(time.Second)
		bob := limiter.Caller{Principal: limiter.Principal{Kind: "user", ID: "bob"}}
		_, _ = p.Take(background, bob, 1) // this reads R
		require.EqualValues(t, 10, p.local.taken[1][0].Limit.Capacity())
		time.Sleep(9 * time.Second)
		d, _ := p.take(t, 10)
		require.Equal(t, limiter.Allow, d.Outcome, "10 s of 1 a second, not of 1 in ten seconds")
	})
}
