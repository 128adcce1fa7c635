package main

import (
	"context"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
)

// probes is the number of callers whose decisions are timed, in turn.
const probes = 1024

// measureGrowth times decisions of some callers while another goroutine keeps the
// store busy: calmly, with accounts that are there, or with accounts that come
// and go. The garbage collector runs as it does in a service.
func measureGrowth(o options) section {
	l := load{keys: o.keys}
	l.shuffle()
	var calm, growth quantiles
	for range (o.rounds + 9) / 10 {
		for _, i := range rand.Perm(2) {
			runtime.GC()
			if i == 0 {
				calm.add(timed(&l, (*crowd).stay))
			} else {
				growth.add(timed(&l, (*crowd).comeAndGo))
			}
		}
	}
	s := section{
		title:  fmt.Sprintf("another caller's decision while %s accounts come and go", power(o.keys)),
		header: []string{"", "p50", "p99", "p99.9", "most", "decisions"},
	}
	s.row(calm.cells("none comes or goes")...)
	s.row(growth.cells("come and go")...)
	slow, steady := median(growth.all[2]), median(calm.all[2])
	s.goals = append(s.goals, goal{
		what:     s.title + ", p99.9",
		measured: fmt.Sprintf("%s, %.2f x", nanoseconds(slow), slow/steady),
		want:     "<= 50 µs, or <= 2 x", met: slow <= 50_000 || slow <= 2*steady,
	})
	return s
}

// crowd is a store with a clock of its own and the accounts that fill it.
type crowd struct {
	store *memstore.Store
	now   atomic.Int64 // nanoseconds since the epoch
	names []string
}

// brief is the limit of the crowd: an account is full again after a minute.
var brief = limiter.Limit{Tokens: 1, Per: time.Minute, Burst: 1}

// timed runs the crowd, and times decisions for the probes until it is done.
func timed(l *load, behave func(*crowd)) *histogram {
	c := &crowd{names: l.visit}
	c.now.Store(time.Now().UnixNano())
	clock := func() time.Time { return time.Unix(0, c.now.Load()) }
	c.store = newStore(4*l.keys, clock, budget, "probe")
	charges := []limiter.Charge{{Limit: allowing, Cost: allowing.Burst / 2}}
	charges[0].Key = accountKey(l.visit[0])
	charges[0].Key.Budget = "probe"
	take := func(i int) {
		charges[0].Key.Principal.ID = l.visit[i%probes][:idLength]
		_, err := c.store.Take(context.Background(), charges)
		check(err)
	}
	for i := range probes {
		take(i)
	}
	charges[0].Cost = 1
	c.wave("calm") // the accounts that stay, and after a minute are the first to go
	var done atomic.Bool
	go func() {
		behave(c)
		done.Store(true)
	}()
	h := new(histogram)
	for i := 0; !done.Load(); i++ {
		start := time.Now()
		take(i)
		h.add(time.Since(start))
	}
	if n := c.store.Stats().OverflowTakes; n > 0 {
		panic(fmt.Sprintf("growth: %d decisions on overflow accounts, want none", n))
	}
	return h
}

// wave makes one decision for each name in the tenant: the first makes an account
// and spends it, a second is denied.
func (c *crowd) wave(tenant string) {
	charges := []limiter.Charge{{Key: accountKey(c.names[0]), Limit: brief, Cost: 1}}
	charges[0].Key.Principal.Tenant = tenant
	for _, name := range c.names {
		charges[0].Key.Principal.ID = name[:idLength]
		_, err := c.store.Take(context.Background(), charges)
		check(err)
	}
}

// stay is as many decisions as comeAndGo makes, on accounts that are there.
func (c *crowd) stay() {
	for range 3 {
		c.wave("calm")
	}
}

// comeAndGo lets new accounts in: first beside those that are there, so that the
// store grows; then, a minute later, in the place of all before; then again,
// after all have been dropped and the store has shrunk.
func (c *crowd) comeAndGo() {
	c.wave("beside")
	c.now.Add(int64(brief.Per))
	c.wave("instead")
	c.now.Add(int64(brief.Per))
	c.store.Stats()
	c.wave("anew")
}

// quantiles are p50, p99, p99.9 and the most of some histograms.
type quantiles struct {
	all   [4][]float64
	count int
}

func (q *quantiles) add(h *histogram) {
	for i, part := range []float64{0.5, 0.99, 0.999, 1} {
		q.all[i] = append(q.all[i], h.quantile(part))
	}
	q.count += h.count
}

func (q *quantiles) cells(name string) []string {
	cells := []string{name}
	for _, numbers := range q.all {
		cells = append(cells, nanoseconds(median(numbers)))
	}
	return append(cells, fmt.Sprint(q.count))
}

func nanoseconds(x float64) string {
	if x < 1000 {
		return fmt.Sprintf("%.0f ns", x)
	}
	return fmt.Sprintf("%.1f µs", x/1000)
}

// histogram counts durations in buckets that are at most 1/32 wide.
type histogram struct {
	buckets [64 * 32]int
	count   int
}

func (h *histogram) add(d time.Duration) {
	ns := uint64(max(d, 0)) | 32 // below 32 ns there is nothing to tell apart
	shift := bits.Len64(ns) - 6
	h.buckets[shift*32+int(ns>>shift)-32]++
	h.count++
}

// quantile returns the lower end of the bucket in which the part of the durations
// is reached.
func (h *histogram) quantile(part float64) float64 {
	left := int(part * float64(h.count-1))
	for i, n := range h.buckets {
		if left -= n; left < 0 {
			return float64(uint64(i%32+32) << (i / 32))
		}
	}
	return 0
}
