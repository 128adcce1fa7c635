package redisstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
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
	denials  *denials
	crowded  func() bool                        // whether all of the client's connections are in use
	silence  atomic.Pointer[limiter.StoreError] // the error while the breaker is open

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
	wakesAt int64 // when the timer fires; 0 if it is not set
	lateAt  int64 // when this process was late last
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
	c.wakeBy(w.ends)
	return true
}

// enter returns the call that the caller is to make for its line, or lets the line
// wait, or answers. It also returns other calls to make.
func (c *combiner) enter(
	w *waiter, l *line, charges []limiter.Charge, now int64,
) (own *call, others []*call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.queue.empty() && c.hasSlot() && c.turn() <= now {
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
	c.wakeBy(w.ends)
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
	c.denials.started(lines)
	c.wakeBy(b.ends)
	return b
}

// next returns the calls that there are slots for.
func (c *combiner) next(now int64) (calls []*call) {
	for !c.queue.empty() && c.hasSlot() {
		if turn := c.turn(); turn > now {
			c.wakeBy(turn)
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
	if o.replied() && o.took <= c.timeout {
		c.breaker.Answered()
	} else if !o.replied() {
		c.miss(b, now, o.err)
	}
	return c.next(now)
}

// passed answers whose time has passed, takes the slots of calls that last too long,
// and returns those that can be made instead.
func (c *combiner) passed(now int64) (next []*call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noteDelay(now)
	c.wakesAt = 0
	due := c.queue.expire(now)
	for _, b := range c.calls {
		due = sooner(due, b.expire(now, time.Duration(c.timeout)))
		if end := b.answerBy(c.timeout); end <= now {
			c.miss(b, now, errNoReply)
		} else if b.ends <= now && !b.missed {
			due = sooner(due, end)
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
		c.wakeBy(max(due, now+grain))
	}
	return c.next(now)
}

// miss tells the breaker, once, that a call has had no answer in time. One that waits
// for a connection says nothing of the server, nor does one of a process that is late.
func (c *combiner) miss(b *call, now int64, cause error) {
	c.noteDelay(now)
	if b.missed || !b.sent && c.crowded() {
		return
	}
	if b.missed = true; b.began >= c.lateAt && c.breaker.Missed(b.began, now) {
		c.failed(cause)
		c.giveUp(now)
	}
}

// noteDelay notes whether this process is late itself, because its timer is. Then it may
// be late to send calls and to see their replies, so those that it has made by now say
// nothing of the server.
func (c *combiner) noteDelay(now int64) {
	if c.wakesAt != 0 && now-c.wakesAt > c.timeout/4 {
		c.lateAt = now
	}
}

// answerBy returns when a call that has no reply is one that the server has missed: its
// requests may have waited, so that there is less time for them.
func (b *call) answerBy(timeout int64) int64 { return max(b.began, b.written) + timeout }

// failed keeps the last failure, for the error while the breaker is open.
func (c *combiner) failed(cause error) { c.silence.Store(silent(cause)) }

// failure returns the error while the breaker is open.
func (c *combiner) failure() *limiter.StoreError {
	if err := c.silence.Load(); err != nil {
		return err
	}
	return silent(errNoReply) // another goroutine is opening the breaker
}

// giveUp answers all who wait, because the server does not.
func (c *combiner) giveUp(now int64) {
	err := c.failure()
	c.queue.each(func(l *line) { l.fail(err) })
	c.queue.expire(now)
	for _, b := range c.calls {
		for _, l := range b.lines {
			if b.sent {
				l.fail(&limiter.StoreError{Reason: storekit.Ambiguous, Err: err.Err})
			} else {
				l.fail(err)
			}
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

// wakeBy sets the timer to fire at an instant or before. What waits for an instant, a
// request for its end, a call for its, or the queue for its turn, calls it.
func (c *combiner) wakeBy(at int64) {
	if c.wakesAt == 0 || at < c.wakesAt {
		c.wakesAt = at
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
