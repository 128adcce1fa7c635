package storetest

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	"github.com/ration-go/ration/limiter"
)

// stream is a random run of requests, the same in every run, that the store
// must answer as the model does.
type stream struct {
	limits  []limiter.Limit // one account each
	changes []limiter.Limit // the first account changes among these
	steps   int
	peeks   bool
	settles bool
}

// run stops the rule at the first answer that differs from the model's.
func (s stream) run(p *probe) {
	for _, l := range append(s.limits, s.changes...) {
		if !p.holds(l) {
			return
		}
	}
	r := &running{stream: s, probe: p, model: newModel(p.step)}
	r.rand = rand.New(rand.NewPCG(uint64(s.steps), uint64(s.limits[0].Tokens)))
	for r.n = 0; r.n < s.steps && r.elapsed() < 20*365*24*time.Hour; r.n++ {
		r.idle()
		r.request()
	}
}

type running struct {
	stream
	*probe
	model *model
	rand  *rand.Rand
	n     int
	open  []limiter.Charge // taken and not settled
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
		r.compare("Peek", r.charges(), r.store.Peek, false)
	default:
		charges := r.charges()
		if r.compare("Take", charges, r.store.Take, true).Allowed() && r.settles {
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

// compare makes the call and asks the model.
func (r *running) compare(
	verb string, charges []limiter.Charge, call call, take bool,
) limiter.Decision {
	asked := append([]limiter.Charge(nil), charges...)
	want := r.model.decide(r.clock.ns.Load(), asked, take)
	got, err := call(context.Background(), charges)
	if err != nil || got != want {
		violated("step %d, at %v: %s(%s) = %+v, %v; want %+v",
			r.n, r.elapsed(), verb, describe(charges), got, err, want)
	}
	for i := range charges {
		if charges[i].Result != asked[i].Result {
			violated("step %d, at %v: the result of %s after %s(%s): %+v, want %+v", r.n,
				r.elapsed(), name(asked[i].Key), verb, describe(charges),
				charges[i].Result, asked[i].Result)
		}
	}
	return got
}

// settleOne settles one of the charges that are open, then compares its account.
func (r *running) settleOne() {
	i := r.rand.IntN(len(r.open))
	c := r.open[i]
	r.open = append(r.open[:i], r.open[i+1:]...)
	at, taken, _, ok := c.Receipt.Taken()
	if !ok {
		return // a shadow budget that could not pay
	}
	delta := r.rand.Int64N(2*taken+2) - taken
	if taken == 0 {
		delta = 0
	}
	r.correct(&c, delta)
	if b := r.model.accounts[c.Key]; b != nil {
		b.settle(r.clock.ns.Load(), at, delta)
	}
	c.Cost = 0
	r.compare("Peek", []limiter.Charge{c}, r.store.Peek, false)
}
