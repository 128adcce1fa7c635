package storetest

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ration-go/ration/internal/lab/oracle"
	"github.com/ration-go/ration/limiter"
)

// stream is a random sequence of requests, the same in every run, that the store
// must answer as the oracle does.
type stream struct {
	limits  []limiter.Limit // one account each
	changes []limiter.Limit // the first account changes among these
	steps   int
	peeks   bool
	settles bool
}

// run stops the rule at the first answer that differs from the oracle's.
func (s stream) run(p *probe) {
	for _, l := range append(s.limits, s.changes...) {
		if !p.holds(l) {
			return
		}
	}
	r := &running{stream: s, probe: p, oracle: newOracle(p.step)}
	r.rand = rand.New(rand.NewPCG(uint64(s.steps), uint64(s.limits[0].Tokens)))
	for r.n = 0; r.n < s.steps && r.elapsed() < 20*365*24*time.Hour; r.n++ {
		r.idle()
		r.request()
	}
}

type running struct {
	stream
	*probe
	oracle *oracle.Store
	rand   *rand.Rand
	n      int
	open   []twin // taken and not settled
}

// twin is one charge with the receipts of both, the store and the oracle.
type twin struct{ store, oracle limiter.Charge }

// newOracle returns an oracle that counts in steps.
func newOracle(step time.Duration) *oracle.Store {
	return oracle.NewAs(oracle.Rules{
		Step: step, Unit: func(l limiter.Limit) int64 { return int64(l.Per / step) },
	})
}

// idle moves the clock: often not at all, mostly by the time of a few tokens,
// now and then by whole periods.
func (r *running) idle() {
	l := r.pick(r.limits)
	token := max(int64(l.Per)/l.Tokens, int64(r.step))
	var d int64
	switch r.rand.IntN(8) {
	case 0, 1:
	case 2:
		d = int64(r.step)
	case 3:
		d = min(int64(l.Per), math.MaxInt64/8) * (1 + r.rand.Int64N(3))
	case 4:
		d = r.rand.Int64N(int64(l.Per)) + 1
	default:
		d = r.rand.Int64N(4*token) + 1
	}
	r.after(time.Duration(d).Truncate(r.step))
}

func (r *running) pick(limits []limiter.Limit) limiter.Limit {
	return limits[r.rand.IntN(len(limits))]
}

func (r *running) request() {
	switch {
	case r.settles && len(r.open) > 0 && r.rand.IntN(2) == 0:
		r.settleOne()
	case r.peeks && r.rand.IntN(4) == 0:
		r.compare("Peek", r.charges())
	default:
		d, charges := r.compare("Take", r.charges())
		if d.Allowed() && r.settles {
			r.open = append(r.open, charges...)
		}
	}
}

// charges returns one charge on a single account, or on some of several, one
// of them perhaps twice.
func (r *running) charges() []limiter.Charge {
	if len(r.changes) > 0 {
		l := r.pick(r.changes)
		return []limiter.Charge{in("a", l, 1+r.rand.Int64N(smallest(r.changes)))}
	}
	var charges []limiter.Charge
	for range 1 + r.rand.IntN(len(r.limits)) {
		i := r.rand.IntN(len(r.limits))
		c := in(string(rune('a'+i)), r.limits[i], r.cost(r.limits[i]))
		c.Shadow = i == 3
		charges = append(charges, c)
	}
	return charges
}

func smallest(limits []limiter.Limit) int64 {
	least := int64(math.MaxInt64)
	for _, l := range limits {
		least = min(least, l.Capacity())
	}
	return least
}

// cost returns 0 to capacity + 1, mostly what a few requests can pay.
func (r *running) cost(l limiter.Limit) int64 {
	capacity := l.Capacity()
	switch r.rand.IntN(16) {
	case 0:
		return 0
	case 1:
		return capacity
	case 2:
		return min(capacity, math.MaxInt64-1) + 1
	case 3, 4:
		return 1
	case 5, 6:
		return 1 + r.rand.Int64N(capacity)
	default:
		return 1 + r.rand.Int64N(capacity/4+1)
	}
}

type call func(context.Context, []limiter.Charge) (limiter.Decision, error)

// compare asks the store and the oracle.
func (r *running) compare(verb string, charges []limiter.Charge) (limiter.Decision, []twin) {
	ask, expect := call(r.store.Peek), r.oracle.Peek
	if verb == "Take" {
		ask, expect = r.store.Take, r.oracle.Take
	}
	expected := slices.Clone(charges)
	want, wantErr := expect(r.clock.ns.Load(), expected)
	got, err := ask(context.Background(), charges)
	if wantErr != nil {
		violated("step %d: the oracle cannot decide %s: %v", r.n, describe(charges), wantErr)
	}
	if err != nil || got != want {
		violated("step %d, at %v: %s(%s) = %+v, %v; want %+v",
			r.n, r.elapsed(), verb, describe(charges), got, err, want)
	}
	twins := make([]twin, len(charges))
	for i := range charges {
		if charges[i].Result != expected[i].Result {
			violated("step %d, at %v: the result of %s after %s(%s): %+v, want %+v", r.n,
				r.elapsed(), name(charges[i].Key), verb, describe(charges),
				charges[i].Result, expected[i].Result)
		}
		twins[i] = twin{charges[i], expected[i]}
	}
	return got, twins
}

// settleOne settles one of the charges that are open, then compares its account.
func (r *running) settleOne() {
	i := r.rand.IntN(len(r.open))
	c := r.open[i]
	r.open = slices.Delete(r.open, i, i+1)
	if !c.oracle.Receipt.Valid {
		return // a shadow budget that could not pay
	}
	delta := int64(0)
	if taken := c.oracle.Receipt.Taken; taken > 0 {
		delta = r.rand.Int64N(2*taken+2) - taken
	}
	r.correct(&c.store, delta)
	c.oracle.Cost = delta
	if err := r.oracle.Settle(r.clock.ns.Load(), []limiter.Charge{c.oracle}); err != nil {
		violated("step %d, at %v: the oracle cannot settle: %v", r.n, r.elapsed(), err)
	}
	c.store.Cost = 0
	r.compare("Peek", []limiter.Charge{c.store})
}
