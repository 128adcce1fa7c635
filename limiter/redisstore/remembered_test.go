package redisstore

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/breaker"
	"github.com/ration-go/ration/limiter"
)

// This file explores, as interleavings_test.go does, what the memory of denials does
// while replies overtake each other or get lost, and settles, resets and changed limits
// are in flight. The server is a model of buckets that gain in a tick: those of a fast
// limit are full after one, the others gain nothing. It runs nothing after a call's deadline.

// step is one request of the model: a take unless verb says otherwise.
type step struct {
	verb verb
	cost int64
	fast bool  // under the limit that gains in a tick
	with *step // a charge on the other account, or nil
}

// balance is an account of the model.
type balance struct {
	used, at int64 // used in tokens at a tick
	fast     bool
}

// memoryWorld is one run of the model.
type memoryWorld struct {
	*Store
	steps    []step
	arrived  int
	now      int64
	tick     int64
	ticks    bool // there is a tick, and no timeout
	late     bool // the timeout has passed
	failed   bool // a call has had no reply
	clock    int64
	calls    []*memoryCall
	accounts map[string]balance
	waiters  []*waiter
	denied   int
	wrong    error
}

// memoryCall is a call on its way.
type memoryCall struct {
	*call
	ran, over bool
	reply     string
	clock     int64
}

// newMemoryWorld returns the beginning of a run, with a memory that is used again.
func newMemoryWorld(steps []step, slots int, d *denials) *memoryWorld {
	for _, name := range []string{"a", "ab"} {
		m := d.mark(&limiter.Key{Budget: name})
		d.forget(d.find(m))
		d.inFlight[m[0]%sets].late = 0
	}
	w := &memoryWorld{
		Store: &Store{keys: newKeys("p:", nil), timeout: time.Second}, steps: steps,
		accounts: map[string]balance{}, now: 1,
	}
	w.Store.clock.start = time.Now()
	w.combiner = combiner{
		breaker: breaker.New(time.Hour), crowded: func() bool { return false },
		denials: d, rtt: 1,
		epoch: w.Store.clock.start, timeout: int64(w.timeout), maxSlots: slots, queue: newQueue(),
		timer: time.NewTimer(time.Hour),
	}
	w.combiner.timer.Stop()
	return w
}

const memoryCapacity = 2

func (s *step) limit() limiter.Limit {
	l := limiter.Limit{Tokens: memoryCapacity, Per: 1000 * time.Hour}
	if s.fast {
		l.Per = time.Microsecond
	}
	return l
}

func (s *step) charges() (all []limiter.Charge) {
	for name := "a"; s != nil; s, name = s.with, name+"b" {
		c := limiter.Charge{Key: limiter.Key{Budget: name}, Cost: s.cost, Limit: s.limit()}
		if s.verb == settle {
			c.Receipt = limiter.Receipt{Taken: -min(s.cost, 0), Valid: true}
		}
		all = append(all, c)
	}
	return all
}

// look returns an account as it is now, under a limit.
func (w *memoryWorld) look(name string, fast bool) balance {
	b := w.accounts[name]
	if b.fast && w.tick > b.at {
		b.used = 0
	}
	return balance{b.used, w.tick, fast}
}

// arrive is the arrival of the next request, as [Store.decide] has it.
func (w *memoryWorld) arrive() {
	s := &w.steps[w.arrived]
	w.arrived++
	w.now++
	charges := s.charges()
	if s.verb == take && w.denies(s) {
		return
	}
	wait := &waiter{done: make(chan struct{}, 1), ends: w.now + w.combiner.timeout, leaves: math.MaxInt64}
	w.waiters = append(w.waiters, wait)
	hash := hashOf(s.verb, 0, charges)
	if s.verb != settle && w.combiner.join(wait, hash, s.verb, 0, charges) {
		return
	}
	l := limiter.Must(w.newLine(s.verb, 0, charges))
	l.hash = hash
	own, others := w.combiner.enter(wait, l, charges, w.now)
	if own != nil {
		w.start([]*call{own})
	}
	w.start(others)
}

func (w *memoryWorld) name(k limiter.Key) string { return w.keys.namer().text(k) }

func (w *memoryWorld) start(calls []*call) {
	for _, b := range calls {
		w.calls = append(w.calls, &memoryCall{call: b})
		w.combiner.encode(b, w.now)
	}
}

// run runs a call on the server.
func (w *memoryWorld) run(c *memoryCall) {
	c.ran = true
	w.clock++
	c.clock = w.clock
	if w.now > c.ends {
		return // too late
	}
	reply := number(nil, c.clock)
	for _, l := range c.lines {
		reply = append(reply, 0)
		var before []balance
		for j := range l.draws {
			d := &l.draws[j]
			b := w.look(d.name, d.pending.limit.Per == time.Microsecond)
			before = append(before, b)
			if l.verb <= take {
				reply = number(number(reply, b.used*d.rule.p), c.clock)
			}
		}
		for _, r := range l.runs {
			for range r.count {
				w.decide1(l, r, before)
			}
		}
	}
	c.reply = string(number(reply, 0))
}

// decide1 decides one request of a run.
func (w *memoryWorld) decide1(l *line, r *run, now []balance) {
	pays := true
	for j := range r.draws {
		pays = pays && now[j].used+r.draws[j].cost <= memoryCapacity
	}
	for j := range r.draws {
		cost, name := r.draws[j].cost, l.draws[j].name
		switch {
		case l.verb == settle:
			b := w.accounts[name]
			w.accounts[name] = balance{max(w.look(name, b.fast).used+cost, 0), w.tick, b.fast}
		case l.verb == reset:
			delete(w.accounts, name)
		case l.verb == take && pays:
			now[j].used += cost
			w.accounts[name] = now[j]
		case l.verb == take && now[j].used+cost > memoryCapacity:
			w.accounts[name] = now[j] // carried over to the limit of the request
		}
	}
}

// end ends a call for the client: with the server's reply, or without.
func (w *memoryWorld) end(c *memoryCall, answered bool) {
	c.over = true
	w.failed = w.failed || !answered
	w.now++
	o := outcome{err: errLost}
	switch {
	case answered && c.reply == "":
		o.err = errLate
	case answered:
		o = outcome{reply: c.reply[8:], clock: c.clock, took: w.now - c.written}
	}
	next := w.combiner.finished(c.call, o, w.now)
	w.start(next)
	w.deliver(c.call, o)
}

func (w *memoryWorld) events() (all []event) {
	if w.arrived < len(w.steps) {
		all = append(all, event{"arrive", w.arrive})
	}
	open := false
	for n, c := range w.calls {
		if !c.ran {
			all = append(all, event{fmt.Sprint("run ", n), func() { w.run(c) }})
		}
		if c.over {
			continue
		}
		open = true
		if c.ran {
			all = append(all, event{fmt.Sprint("reply ", n), func() { w.end(c, true) }})
		}
		if !w.failed {
			all = append(all, event{fmt.Sprint("fail ", n), func() { w.end(c, false) }})
		}
	}
	if w.ticks && w.tick == 0 && w.arrived > 1 {
		all = append(all, event{"tick", func() {
			w.tick++
			w.now += int64(10 * time.Microsecond)
			w.clock += 10
		}})
	}
	if open && !w.ticks && !w.late && !w.failed {
		all = append(all, event{"timeout", func() {
			w.late = true
			w.now += w.combiner.timeout
			w.start(w.combiner.passed(w.now))
		}})
	}
	return all
}

// denies reports whether the memory denies a request, and notes whether that is wrong.
func (w *memoryWorld) denies(s *step) bool {
	charges := s.charges()
	d, ok := w.combiner.denials.deny(charges, w.now)
	if !ok {
		return false
	}
	w.denied++
	pays := true
	for i := range charges {
		pays = pays && w.look(w.name(charges[i].Key), s.fast).used+charges[i].Cost <= memoryCapacity
	}
	if pays || d.Allowed() {
		w.wrong = fmt.Errorf("a request could have paid: %+v", d)
	}
	return true
}

// collect tries after each event what the memory says.
func (w *memoryWorld) collect() error {
	for _, s := range w.steps {
		if s.verb == take {
			w.denies(&s)
		}
	}
	return w.wrong
}

func (w *memoryWorld) check() error {
	d := w.combiner.denials
	if d.inFlight[d.mark(&limiter.Key{Budget: "a"})[0]%sets].first != nil {
		return errors.New("a call that has ended is still in flight")
	}
	return nil
}

func TestDenials_NothingThatCouldPayIsDeniedFromMemory(t *testing.T) {
	t.Parallel()
	all := step{verb: take, cost: 2}
	one := step{verb: take, cost: 1}
	both, few := all, one
	both.with, few.with = &step{verb: take, cost: 2}, &step{verb: take, cost: 1}
	other := step{verb: take, cost: 0, with: &step{verb: take, cost: 2}}
	fast, quick := step{verb: take, cost: 2, fast: true}, step{verb: take, cost: 1, fast: true}
	credit, clear := step{verb: settle, cost: -2}, step{verb: reset}
	half := step{verb: settle, cost: -1}
	look := step{verb: peek, cost: 1}
	mixed := step{verb: take, cost: 1, with: &step{verb: take, cost: 3}} // the other is denied
	for name, test := range map[string]struct {
		steps []step
		slots int
		ticks bool
	}{
		"replies-overtake":    {[]step{all, one}, 2, false},
		"one-slot":            {[]step{all, all, one}, 1, false},
		"a-settle":            {[]step{all, one, credit}, 2, false},
		"a-settle-before":     {[]step{all, half, all}, 1, false},
		"a-reset":             {[]step{all, one, clear}, 2, false},
		"a-peek":              {[]step{all, look, one}, 1, false},
		"a-changed-limit":     {[]step{all, one, quick}, 2, true},
		"there-and-back":      {[]step{all, fast, all}, 1, true},
		"two-accounts":        {[]step{both, other, few}, 1, false},
		"two-and-a-settle":    {[]step{both, half, both}, 1, false},
		"one-account-is-fast": {[]step{fast, mixed, one}, 1, true},
	} {
		if testing.Short() && test.slots > 1 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runs, denied, err := exploreMemory(test.steps, test.slots, test.ticks)
			require.NoError(t, err)
			t.Logf("%d interleavings, %d denials from memory", runs, denied)
			require.Greater(t, bits.Len(uint(runs)), 5)
			require.NotZero(t, denied)
		})
	}
}

func exploreMemory(steps []step, slots int, ticks bool) (runs, denied int, err error) {
	var worlds *memoryWorld
	d := newDenials(longestMemory, time.Second)
	d.lead = 0
	runs, err = exploreAll(func() explorable {
		if worlds != nil {
			denied += worlds.denied
		}
		worlds = newMemoryWorld(steps, slots, d)
		worlds.ticks = ticks
		return worlds
	})
	return runs, denied, err
}
