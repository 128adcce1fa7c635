package redisstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/breaker"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/storekit"
)

// This file explores all ways in which the events of a few requests can follow each
// other: arrivals, callers that leave, calls that the server runs at once, late or
// never, replies that arrive late or get lost, and timeouts. The combiner is the real
// one; the server is a model of the script for buckets that do not refill.

// asked is a request of the model.
type asked struct {
	verb   verb
	key    string
	cost   int64 // for a settle: the correction
	leaves bool  // its caller may leave
}

// world is one run of the model.
type world struct {
	*Store
	requests []asked
	slots    int
	apart    bool // a call is written some time after it was made
	now      int64

	waiters []*waiter
	lines   []*line
	calls   []*flight
	gone    []bool  // who has left without an answer
	sent    []bool  // whose request is in a call
	answers []error // of those that have an answer
	allowed []bool

	capacity int64
	used     map[string]int64 // on the server
	debits   map[string]int64 // requests that were debited
	credits  int64            // tokens that settles and resets have given back
	wrong    bool             // a request was sent though its caller had left
}

// flight is a call on its way.
type flight struct {
	*call
	written  bool // to a connection
	ran      bool // the server has run it
	reply    string
	over     bool  // it has ended for the client
	answered bool  // with the reply
	debits   int64 // of its lines
	takes    []int // the requests in it
}

var errLost = errors.New("the reply is lost")

func newWorld(requests []asked, capacity int64, slots int, apart bool) *world {
	w := &world{
		Store:    &Store{keys: newKeys("p:", nil), timeout: time.Second},
		requests: requests, capacity: capacity, slots: slots, apart: apart,
		waiters: make([]*waiter, len(requests)), lines: make([]*line, len(requests)),
		gone: make([]bool, len(requests)), sent: make([]bool, len(requests)),
		answers: make([]error, len(requests)), allowed: make([]bool, len(requests)),
		used: map[string]int64{}, debits: map[string]int64{},
	}
	w.clock.start = time.Now()
	w.combiner = combiner{
		breaker: breaker.New(time.Hour), crowded: func() bool { return false },
		epoch: w.clock.start, timeout: int64(w.timeout), maxSlots: slots, queue: newQueue(),
		timer: time.NewTimer(time.Hour),
	}
	w.combiner.timer.Stop()
	return w
}

func (w *world) charges(i int) []limiter.Charge {
	r := w.requests[i]
	c := limiter.Charge{Key: limiter.Key{Budget: r.key}, Cost: r.cost,
		Limit: limiter.Limit{Tokens: w.capacity, Per: 100 * 24 * time.Hour}}
	if r.verb == settle {
		c.Receipt = limiter.Receipt{Taken: -min(r.cost, 0), Valid: true}
	}
	return []limiter.Charge{c}
}

// arrive is the arrival of a request, as [Store.ask] has it.
func (w *world) arrive(i int) {
	r, charges := w.requests[i], w.charges(i)
	waiter := &waiter{done: make(chan struct{}, 1), ends: w.now + w.combiner.timeout, leaves: math.MaxInt64}
	w.waiters[i] = waiter
	hash := hashOf(r.verb, 0, charges)
	if r.verb != settle && w.combiner.join(waiter, hash, r.verb, 0, charges) {
		return
	}
	l, err := w.newLine(r.verb, 0, charges)
	if err != nil {
		panic(err)
	}
	l.hash = hash
	own, others := w.combiner.enter(waiter, l, charges, w.now)
	if own != nil {
		w.start([]*call{own})
	}
	w.start(others)
}

// start notes calls that are made.
func (w *world) start(calls []*call) {
	for _, b := range calls {
		f := &flight{call: b}
		w.calls = append(w.calls, f)
		if !w.apart {
			w.write(f)
		}
	}
}

// write is when the client writes a call. Who has left or has an answer is not in it.
func (w *world) write(f *flight) {
	if f.written {
		return
	}
	f.written = true
	w.combiner.encode(f.call, w.now)
	f.takes = nil
	for _, l := range f.lines {
		for _, r := range l.runs {
			for at := r.first; at != nil; at = at.next {
				i := slices.Index(w.waiters, at)
				w.sent[i], w.wrong = true, w.wrong || w.gone[i] || w.answers[i] != nil
				if l.verb == take {
					f.takes = append(f.takes, i)
				}
			}
		}
	}
}

// run runs a call on the server.
func (w *world) run(f *flight) {
	f.ran = true
	reply := number(nil, 1)
	for _, l := range f.lines {
		reply = append(reply, 0)
		d := &l.draws[0]
		used := w.used[d.name]
		if l.verb <= take {
			reply = number(number(reply, used*d.rule.p), 1)
		}
		for _, r := range l.runs {
			cost := r.draws[0].cost
			for range r.count {
				switch {
				case l.verb == take && used+cost <= w.capacity:
					used += cost
					w.debits[d.name]++
					f.debits++
				case l.verb == settle:
					w.credits += min(used, -cost)
					used = max(used+cost, 0)
				case l.verb == reset:
					w.credits += used
					used = 0
				}
			}
		}
		w.used[d.name] = used
	}
	f.reply = string(number(reply, 0))
}

func number(dst []byte, n int64) []byte {
	return binary.LittleEndian.AppendUint64(dst, math.Float64bits(float64(n)))
}

// end ends a call for the client: with the server's reply, or without.
func (w *world) end(f *flight, answered bool) {
	f.over = true
	o := outcome{err: errLost}
	f.answered = answered
	if answered {
		o = outcome{reply: f.reply[8:], clock: 1}
	}
	next := w.combiner.finished(f.call, o, w.now)
	w.start(next)
	w.deliver(f.call, o)
}

// event is something that can happen next.
type event struct {
	name string
	do   func()
}

// events returns what can happen, in a fixed order. Requests arrive in their order.
func (w *world) events() (all []event) {
	for i := range w.requests {
		if w.waiters[i] == nil {
			all = append(all, event{fmt.Sprint("arrive ", i), func() { w.arrive(i) }})
			break
		}
	}
	for i, r := range w.requests {
		if r.leaves && w.waiters[i] != nil && w.waiters[i].state.Load() == waiting {
			all = append(all, event{fmt.Sprint("leave ", i), func() { w.gone[i] = w.waiters[i].leave() }})
		}
	}
	open := false
	for n, f := range w.calls {
		if !f.written && !f.over {
			all = append(all, event{fmt.Sprint("write ", n), func() { w.write(f) }})
		}
		if f.written && !f.ran {
			all = append(all, event{fmt.Sprint("run ", n), func() { w.run(f) }})
		}
		if !f.over {
			open = true
			if f.ran {
				all = append(all, event{fmt.Sprint("reply ", n), func() { w.end(f, true) }})
			}
			all = append(all, event{fmt.Sprint("fail ", n), func() { w.end(f, false) }})
		}
	}
	if open && w.now == 0 {
		all = append(all, event{"timeout", func() {
			w.now = w.combiner.timeout + 1
			w.start(w.combiner.passed(w.now))
		}})
	}
	return all
}

// collect reads the answers that there are.
func (w *world) collect() error {
	for i, waiter := range w.waiters {
		if waiter == nil {
			continue
		}
		select {
		case <-waiter.done:
			if w.answers[i] != nil || w.allowed[i] || w.gone[i] {
				return fmt.Errorf("request %d has two answers", i)
			}
			w.answers[i] = errAnswered
			if waiter.err != nil {
				w.answers[i] = waiter.err
			} else if w.requests[i].verb <= take {
				d := waiter.line.answer(waiter.run, waiter.place, w.charges(i))
				w.allowed[i] = d.Allowed()
			}
		default:
		}
	}
	return nil
}

var errAnswered = errors.New("answered")

// check is what must hold when nothing can happen any more.
func (w *world) check() error {
	type sums struct{ admitted, tokens, sent int64 }
	keys := map[string]*sums{}
	for i, r := range w.requests {
		if w.gone[i] == (w.answers[i] != nil) {
			return fmt.Errorf("request %d: left %v, answer %v", i, w.gone[i], w.answers[i])
		}
		var store *limiter.StoreError
		if errors.As(w.answers[i], &store) && w.sent[i] != (store.Reason == storekit.Ambiguous) {
			return fmt.Errorf("request %d: sent %v, %w", i, w.sent[i], store)
		}
		if r.verb != take {
			continue
		}
		k := keys[w.name(i)]
		if k == nil {
			k = &sums{}
			keys[w.name(i)] = k
		}
		if w.sent[i] {
			k.sent++
		}
		if w.allowed[i] {
			k.admitted++
			k.tokens += r.cost
		}
	}
	for name, k := range keys {
		debits := w.debits[name]
		switch {
		case w.wrong:
			return errors.New("a request was sent after its caller had left")
		case debits > k.sent:
			return fmt.Errorf("%d debits for %d requests that were sent", debits, k.sent)
		case k.admitted > debits:
			return fmt.Errorf("%d admitted, %d debited", k.admitted, debits)
		case k.tokens > w.capacity+w.credits:
			return fmt.Errorf("%d tokens admitted of %d and %d credited", k.tokens, w.capacity, w.credits)
		}
	}
	for n, f := range w.calls {
		if err := w.checkPlaces(f); err != nil {
			return fmt.Errorf("call %d: %w", n, err)
		}
	}
	return nil
}

// checkPlaces requires that what a call has debited went to those who stayed, if they
// all cost the same.
func (w *world) checkPlaces(f *flight) error {
	var admitted, stayed int64
	for _, i := range f.takes {
		if w.requests[i] != (asked{take, w.requests[f.takes[0]].key, w.requests[f.takes[0]].cost, w.requests[i].leaves}) {
			return nil
		}
		if w.answers[i] == errAnswered {
			stayed++
		}
		if w.allowed[i] {
			admitted++
		}
	}
	if f.answered && admitted != min(f.debits, stayed) {
		return fmt.Errorf("%d admitted, %d debited, %d stayed", admitted, f.debits, stayed)
	}
	return nil
}

func (w *world) name(i int) string { return w.keys.namer().text(w.charges(i)[0].Key) }

// explorable is a run of a model.
type explorable interface {
	events() []event // in a fixed order
	collect() error  // what is wrong after an event
	check() error    // what is wrong at the end
}

// explore runs all interleavings, and returns how many there are.
func explore(requests []asked, capacity int64, slots int, apart bool) (runs int, err error) {
	return exploreAll(func() explorable { return newWorld(requests, capacity, slots, apart) })
}

// exploreAll runs all sequences of the events of a model.
func exploreAll(start func() explorable) (runs int, err error) {
	var choices []int // at each event so far, which of those possible
	for {
		w := start()
		var trace []string
		for depth := 0; ; depth++ {
			events := w.events()
			if len(events) == 0 {
				break
			}
			if depth == len(choices) {
				choices = append(choices, 0)
			}
			e := events[choices[depth]]
			trace = append(trace, e.name)
			e.do()
			if err := w.collect(); err != nil {
				return runs, fmt.Errorf("%w: %s", err, strings.Join(trace, ", "))
			}
			choices[depth] |= len(events) << 16
		}
		runs++
		if err := w.check(); err != nil {
			return runs, fmt.Errorf("%w: %s", err, strings.Join(trace, ", "))
		}
		for len(choices) > 0 { // the next in order
			last := choices[len(choices)-1]
			if at := last&0xffff + 1; at < last>>16 {
				choices[len(choices)-1] = at
				break
			}
			choices = choices[:len(choices)-1]
		}
		if len(choices) == 0 {
			return runs, nil
		}
		for i := range choices {
			choices[i] &= 0xffff
		}
	}
}

func TestCombiner_EveryInterleavingIsExact(t *testing.T) {
	t.Parallel()
	a, b := asked{verb: take, key: "a", cost: 1}, asked{verb: take, key: "b", cost: 1}
	leaving, double := a, asked{verb: take, key: "a", cost: 2}
	leaving.leaves = true
	credit := asked{verb: settle, key: "a", cost: -1}
	reset := asked{verb: reset, key: "a"}
	peeking := asked{verb: peek, key: "a", cost: 1, leaves: true}
	for name, test := range map[string]struct {
		requests []asked
		capacity int64
		slots    int
		apart    bool
	}{
		"the-same-one-slot":     {[]asked{a, a, a}, 2, 1, true},
		"the-same-two-slots":    {[]asked{a, a, a}, 1, 2, false},
		"one-leaves":            {[]asked{a, leaving, a}, 1, 1, false},
		"two-leave":             {[]asked{leaving, leaving, a}, 1, 1, false},
		"the-merged-leave":      {[]asked{b, leaving, leaving}, 1, 1, false},
		"different-costs":       {[]asked{b, double, a}, 2, 1, false},
		"two-keys":              {[]asked{a, b, a}, 1, 1, false},
		"a-settle-overtakes":    {[]asked{a, a, credit}, 1, 1, true},
		"a-settle-in-between":   {[]asked{a, credit, a}, 1, 2, false},
		"a-reset-in-between":    {[]asked{a, reset, a}, 1, 1, false},
		"a-peek-that-is-merged": {[]asked{a, peeking, a}, 1, 1, false},
	} {
		if testing.Short() && (test.slots > 1 || test.apart) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runs, err := explore(test.requests, test.capacity, test.slots, test.apart)
			require.NoError(t, err)
			t.Logf("%d interleavings", runs)
			require.Greater(t, bits.Len(uint(runs)), 7)
		})
	}
}
