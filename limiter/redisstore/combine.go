package redisstore

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/ration-go/ration/internal/breaker"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/storekit"
)

// combiner lets requests that arrive while others are in flight travel together in
// the next call. A request that finds a free slot starts at once, in its caller's
// goroutine.
type combiner struct {
	epoch    time.Time // of the store's clock
	timeout  int64     // nanoseconds, as all instants here
	maxSlots int       // how many calls the client has connections for
	breaker  *breaker.Breaker
	crowded  func() bool // whether all of the client's connections are in use

	mu      sync.Mutex
	queue   queue
	calls   []*call // in flight
	slots   int     // in use
	started int64   // when the last call was
	load    int64   // how many requests it has
	swept   int64   // when the queue was swept
	lost    int     // calls that have lost their slot and not ended
	rtt     int64   // the smoothed round trip
	doubted bool    // the last call has failed, so rtt may be wrong
	timer   *time.Timer
	rings   int64 // when the timer does; 0 if it is not set
}

const (
	minSlots = 2
	maxSlots = 8
	maxLost  = 8
	// grain is the shortest interval between two sweeps by the timer.
	grain = int64(time.Millisecond)
	// many is how many requests in a call are a load.
	many = 8
	// slotEvery is the round trip for which one slot more is worth it.
	slotEvery = int64(2500 * time.Microsecond)
)

// limit returns how many slots there are.
func (c *combiner) limit() int {
	n := int((c.rtt + slotEvery - 1) / slotEvery)
	return min(max(n, minSlots), maxSlots, c.maxSlots)
}

// free reports whether there is a slot for a call.
func (c *combiner) free() bool { return c.slots < c.limit() && c.lost < maxLost }

// turn returns when the next call may start. The first may at once, and the second if
// there is little to do, or enough for a call. Otherwise one call of many requests costs
// less than two of few: near a server the next waits for the one in flight, unless that
// takes twice as long as usual. Far from it calls start at equal distances: if they
// bunched, the first requests of a round trip would take all slots, and the others would
// wait for the rest of it.
func (c *combiner) turn() int64 {
	switch {
	case c.slots == 0,
		c.slots < minSlots && (c.load < many || c.queue.requests.count >= many):
		return 0
	case c.rtt < slotEvery:
		return c.started + 2*c.rtt
	default:
		return c.started + c.rtt/int64(c.limit())
	}
}

// margin returns how much time a request must have left to be worth sending: if
// nothing is in flight, any.
func (c *combiner) margin() int64 {
	if c.slots == 0 {
		return 0
	}
	rtt := c.roundTrip()
	return min(rtt+rtt/2+min(int64(5*time.Millisecond), c.timeout/10), c.timeout*3/4)
}

// roundTrip returns the estimate of the round trip. After a failure it may be wrong.
func (c *combiner) roundTrip() int64 {
	if c.doubted {
		return min(c.rtt, c.timeout/4)
	}
	return c.rtt
}

// saw learns from the round trip of a call.
func (c *combiner) saw(rtt int64, failed bool) {
	if c.doubted = failed; failed {
		c.queue.late = errNoAnswer
		return
	}
	c.queue.late = errOverload
	if c.rtt == 0 {
		c.rtt = rtt
	}
	c.rtt += (rtt - c.rtt) / 8
}

// elapsed returns the instant on the store's clock, in nanoseconds; it is monotonic.
func (s *Store) elapsed() int64 { return int64(time.Since(s.clock.start)) }

// ask sends a request and returns its answer: an error, or what the line says of it.
// The charges are not used after ask has returned.
func (s *Store) ask(
	ctx context.Context, v verb, charges []limiter.Charge,
) (*waiter, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if s.combiner.breaker.Open() {
		s.probe()
		return nil, errSilent
	}
	now := s.elapsed()
	w := s.waiters.Get().(*waiter)
	w.ends, w.leaves = now+s.combiner.timeout, math.MaxInt64
	if end, ok := ctx.Deadline(); ok {
		if left := time.Until(end); left < s.timeout { // else it does not matter
			w.leaves = now + int64(left)
		}
	}
	instant := s.instant()
	hash := hashOf(v, instant, charges)
	c := &s.combiner
	if v != settle && c.join(w, hash, v, instant, charges) {
		return s.wait(ctx, w)
	}
	l, err := s.newLine(v, instant, charges)
	if err != nil {
		return w, err
	}
	l.hash = hash
	started, others := c.enter(w, l, charges, now)
	s.follow(others)
	switch {
	case started == nil:
		return s.wait(ctx, w)
	case s.bounded && w.leaves >= w.ends:
		s.lead(started)
		<-w.done
		return w, w.err
	default:
		go s.run(started)
		return s.wait(ctx, w)
	}
}

// join adds the request to a line that waits, and reports whether there is one.
func (c *combiner) join(
	w *waiter, hash uint64, v verb, instant int64, charges []limiter.Charge,
) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.joinLocked(w, hash, v, instant, charges)
}

// joinLocked is join with the lock held.
func (c *combiner) joinLocked(
	w *waiter, hash uint64, v verb, instant int64, charges []limiter.Charge,
) bool {
	l := c.queue.line(hash, func(l *line) bool { return l.is(v, instant, charges) })
	if l == nil || !l.add(w, charges) {
		return false
	}
	c.ring(w.ends)
	return true
}

// enter returns the call that the caller is to make for its line, or lets the line
// wait, or answers. It also returns other calls to make.
func (c *combiner) enter(
	w *waiter, l *line, charges []limiter.Charge, now int64,
) (own *call, others []*call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.queue.empty() && c.free() && c.turn() <= now {
		l.add(w, charges)
		return c.start([]*line{l}, now), nil
	}
	if l.verb != settle && c.joinLocked(w, l.hash, l.verb, l.instant, charges) {
		return nil, nil
	}
	l.add(w, charges)
	if !c.queue.add(l) && !(c.sweep(now) && c.queue.add(l)) {
		w.failLate(c.queue.late)
		return nil, nil
	}
	c.ring(w.ends)
	return nil, c.next(now)
}

// sweep drops requests that have expired or whose callers have left, at most once in
// 5 ms because it visits all, and reports whether it did.
func (c *combiner) sweep(now int64) bool {
	if c.swept != 0 && now-c.swept < 5*grain {
		return false
	}
	c.swept = now
	c.queue.expire(now)
	return true
}

// start takes a slot for a call with these lines.
func (c *combiner) start(lines []*line, now int64) *call {
	c.started, c.load = now, 0
	b := &call{lines: lines, began: now}
	for _, l := range lines {
		for _, r := range l.runs {
			c.load += r.count
			b.ends = max(b.ends, r.last.ends)
		}
	}
	c.slots++
	c.calls = append(c.calls, b)
	c.ring(b.ends)
	return b
}

// next returns the calls that there are slots for.
func (c *combiner) next(now int64) (calls []*call) {
	for !c.queue.empty() && c.free() {
		if turn := c.turn(); turn > now {
			c.ring(turn)
			break
		}
		if lines := c.queue.batch(now, c.margin()); len(lines) > 0 {
			calls = append(calls, c.start(lines, now))
		}
	}
	return calls
}

// finished takes a call that has ended out of those in flight, and returns those that
// can follow.
func (c *combiner) finished(b *call, o outcome, now int64) (next []*call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.calls, b)
	c.calls = slices.Delete(c.calls, i, i+1)
	if b.lost {
		c.lost--
	} else {
		c.slots--
	}
	c.saw(o.took, o.err != nil)
	if o.replied() && now <= b.ends {
		c.breaker.Answered()
	} else if !o.replied() {
		c.miss(b, now)
	}
	return c.next(now)
}

// passed answers whose time has passed, takes the slots of calls that last too long,
// and returns those that can be made instead.
func (c *combiner) passed(now int64) (next []*call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rings = 0
	due := c.queue.expire(now)
	for _, b := range c.calls {
		due = sooner(due, b.expire(now, time.Duration(c.timeout)))
		if b.ends <= now {
			c.miss(b, now)
		}
		switch {
		case b.lost:
		case b.ends > now:
			due = sooner(due, b.ends)
		case c.lost < maxLost:
			b.lost = true
			c.lost++
			c.slots--
			if !b.sent && b.cancel != nil && c.crowded() {
				b.cancel() // it would only delay the next, which wait for a connection, too
			}
		}
	}
	if due != 0 {
		c.ring(max(due, now+grain))
	}
	return c.next(now)
}

// miss tells the breaker, once, that a call has had no answer in time. One that waits
// for a connection says nothing of the server.
func (c *combiner) miss(b *call, now int64) {
	if b.missed || !b.sent && c.crowded() {
		return
	}
	if b.missed = true; c.breaker.Missed(b.began, now) {
		c.giveUp(now)
	}
}

// giveUp answers all who wait, because the server does not.
func (c *combiner) giveUp(now int64) {
	c.queue.each(func(l *line) { l.fail(errSilent) })
	c.queue.expire(now)
	for _, b := range c.calls {
		for _, l := range b.lines {
			l.fail(storeError(errSilent.Err, b.sent))
		}
	}
}

// fail answers all who wait for the line.
func (l *line) fail(err error) {
	for w := range l.waiters() {
		w.fail(err)
	}
}

// encode returns the last two words of a call, when the client writes it to a
// connection: from then on the server may run it. It leaves out requests that have an
// answer, whose callers have left, or that have less than a round trip left while other
// calls are in flight, because making the connection has taken the rest.
func (c *combiner) encode(b *call, now int64) (limits, lines []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b.sent, b.written = true, now
	margin := int64(0)
	if c.slots > 1 {
		margin = min(c.roundTrip(), c.timeout/2)
	}
	for _, l := range b.lines {
		l.trim(now, margin, c.queue.late)
	}
	return b.encode()
}

// cancelable lets a call be given up while it waits for a connection.
func (c *combiner) cancelable(b *call, cancel context.CancelFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b.cancel = cancel
}

// unsent notes that a call that was sent has not run, and reports whether anybody
// waits for it still.
func (c *combiner) unsent(b *call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	b.sent = false
	for _, l := range b.lines {
		for w := range l.waiters() {
			if w.state.Load() == waiting {
				return true
			}
		}
	}
	return false
}

// lead makes a call in the goroutine of a caller.
func (s *Store) lead(b *call) {
	o := outcome{err: errPanicked}
	defer func() { // also if the client panics
		s.follow(s.finish(b, o))
		if o.err != nil && timedOut(o.err) {
			s.connect()
		}
	}()
	o = s.send(b, 0)
}

// run makes a call, and those that follow in its slot.
func (s *Store) run(b *call) {
	o := outcome{err: errPanicked}
	defer func() { // if the client ends the goroutine
		if b != nil {
			s.follow(s.finish(b, o))
		}
	}()
	for b != nil {
		o = guarded(func() outcome { return s.send(b, connectTimeout) })
		next := s.finish(b, o)
		if b = nil; len(next) > 0 {
			b, o = next[0], outcome{err: errPanicked}
			s.follow(next[1:])
		}
	}
}

// follow makes calls that nobody's goroutine makes.
func (s *Store) follow(calls []*call) {
	for _, b := range calls {
		go s.run(b)
	}
}

// watch is what the timer does.
func (s *Store) watch() { s.follow(s.combiner.passed(s.elapsed())) }

// finish answers the requests of a call, and returns the calls that can follow.
func (s *Store) finish(b *call, o outcome) []*call {
	next := s.combiner.finished(b, o, s.elapsed())
	s.deliver(b, o)
	return next
}

// deliver answers the requests of a call. If callers of a run have left, the requests
// that still wait get its allowed decisions first.
func (s *Store) deliver(b *call, o outcome) {
	errs := make([]error, len(b.lines))
	if o.err == nil {
		o.err = s.read(b, o, errs)
	} else {
		o.err = storeError(o.err, b.sent)
	}
	for i, l := range b.lines {
		err := o.err
		if err == nil {
			err = errs[i]
		}
		for _, r := range l.runs {
			place := int64(0)
			for w := r.first; w != nil; {
				next := w.next
				if w.state.CompareAndSwap(waiting, answered) {
					w.err, w.line, w.run, w.place, w.reuse = err, l, r, place, true
					place++
					w.done <- struct{}{}
				}
				w = next
			}
		}
	}
}

// read reads the reply to a call, with an error for each line.
func (s *Store) read(b *call, o outcome, errs []error) error {
	n, writes := numbers{text: o.reply}, 0
	for i, l := range b.lines {
		now := o.clock
		if s.now != nil {
			now = l.instant
		}
		errs[i] = l.read(&n, now, s.maxAhead)
		if l.verb == take || l.verb == settle {
			writes += len(l.draws)
		}
	}
	healed := n.within(0, int64(writes))
	if n.bad || n.text != "" {
		return garbled(o.reply)
	}
	s.reanchored.Add(healed)
	return nil
}

// garbled is the error for a reply that the script cannot have made.
func garbled(reply string) error {
	return &limiter.StoreError{Reason: storekit.Ambiguous,
		Err: fmt.Errorf("redisstore: the server replied %.200q, which is no answer", reply)}
}

// free gives a waiter back, if there is one that nobody else has.
func (s *Store) free(w *waiter) {
	if w == nil || !w.reuse {
		return
	}
	*w = waiter{done: w.done}
	s.waiters.Put(w)
}

// wait waits for the answer, or until ctx ends.
func (s *Store) wait(ctx context.Context, w *waiter) (*waiter, error) {
	select {
	case <-w.done:
	case <-ctx.Done():
		if w.leave() {
			return nil, ctx.Err()
		}
		<-w.done
	}
	return w, w.err
}

// ring sets the timer to fire at an instant or before. What waits for an instant, a
// request for its end, a call for its, or the queue for its turn, calls it.
func (c *combiner) ring(at int64) {
	if c.rings == 0 || at < c.rings {
		c.rings = at
		c.timer.Reset(time.Duration(at) - time.Since(c.epoch))
	}
}

// expire answers the waiters whose timeout has ended, and returns when the next
// does, or 0.
func (b *call) expire(now int64, timeout time.Duration) (next int64) {
	for _, l := range b.lines {
		for _, r := range l.runs {
			for w := r.first; w != nil; w = w.next {
				if w.state.Load() != waiting {
					continue
				}
				if w.ends > now {
					next = sooner(next, w.ends)
					break
				}
				w.fail(storeError(fmt.Errorf("redisstore: no answer within %v: %w", timeout,
					context.DeadlineExceeded), b.sent))
			}
		}
	}
	return next
}
