package redisstore

import (
	"iter"
	"sync/atomic"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/storekit"
)

// waiter is one request, from its arrival to its answer. Its state decides between the
// caller that leaves, the call that ends and the timer, so that it gets one answer.
type waiter struct {
	ends   int64 // when the store's timeout has passed, in nanoseconds of the store's clock
	leaves int64 // the caller's own deadline

	state atomic.Uint32
	done  chan struct{} // has room for one
	next  *waiter       // in its run
	reuse bool          // nobody else has it

	// The answer.
	err   error
	line  *line
	run   *run
	place int64 // of the request in its run
}

// The states of a waiter.
const (
	waiting uint32 = iota
	left           // the caller has left, without an answer
	answered
)

// leave reports whether the caller leaves without an answer; else there is one.
func (w *waiter) leave() bool { return w.state.CompareAndSwap(waiting, left) }

// fail answers with an error, unless the waiter has left or has an answer.
func (w *waiter) fail(err error) bool {
	if !w.state.CompareAndSwap(waiting, answered) {
		return false
	}
	w.err = err
	w.done <- struct{}{}
	return true
}

// failLate answers a request for which no answer would come in time, with the reason
// of the store, or, if the caller's own deadline comes first, with that.
func (w *waiter) failLate(reason *limiter.StoreError) {
	if w.leaves < w.ends {
		w.fail(storekit.ErrDeadline)
	} else {
		w.fail(reason)
	}
}

// queue holds the lines that wait for a call. It has no lock, no clock and no
// goroutine.
//
// Lines are served round-robin by owner, so that none delays the others by more than
// a line each. Settles come first, in up to half of a batch while others wait, and need
// no place: as many as there are have been let in before.
type queue struct {
	places, perOwner int // how many lines may wait: in all, and of one owner
	work, bytes      int // how much goes into one batch

	late *limiter.StoreError // why no answer would come in time

	joinable map[uint64]*line // by hash
	requests turns
	settles  turns
}

// turns is lines by owner.
type turns struct {
	owners map[owner]*backlog
	next   *backlog // whose turn is next, in a ring
	count  int      // lines
}

// backlog is the lines of one owner, in order of arrival.
type backlog struct {
	owner       owner
	first, last *line
	count       int
	prev, next  *backlog
}

func newQueue() queue {
	return queue{
		places: 8192, perOwner: 1024, work: 128, bytes: 64 << 10, late: errOverload,
		joinable: make(map[uint64]*line),
		requests: turns{owners: make(map[owner]*backlog)},
		settles:  turns{owners: make(map[owner]*backlog)},
	}
}

func (q *queue) empty() bool { return q.requests.count == 0 && q.settles.count == 0 }

// push adds a line at the end of its owner's; a new owner is the last in turn.
func (t *turns) push(l *line) {
	b := t.owners[l.owner]
	if b == nil {
		b = &backlog{owner: l.owner}
		t.owners[l.owner] = b
		if t.next == nil {
			b.prev, b.next, t.next = b, b, b
		} else {
			b.prev, b.next = t.next.prev, t.next
			b.prev.next, b.next.prev = b, b
		}
	}
	b.append(l)
	t.count++
}

func (b *backlog) append(l *line) {
	l.next = nil
	if b.last == nil {
		b.first = l
	} else {
		b.last.next = l
	}
	b.last = l
	b.count++
}

// pop takes the first line of an owner.
func (t *turns) pop(b *backlog) *line {
	l := b.first
	if b.first = l.next; b.first == nil {
		b.last = nil
	}
	b.count--
	t.count--
	if t.next == b {
		t.next = b.next
	}
	if b.count == 0 {
		t.remove(b)
	}
	return l
}

// remove removes an owner that has no lines.
func (t *turns) remove(b *backlog) {
	delete(t.owners, b.owner)
	b.prev.next, b.next.prev = b.next, b.prev
	if t.next == b {
		t.next = b.next
	}
	if b.next == b {
		t.next = nil
	}
}

// line returns the line that a request can join, or nil.
func (q *queue) line(hash uint64, is func(*line) bool) *line {
	for l := q.joinable[hash]; l != nil; l = l.same {
		if is(l) {
			return l
		}
	}
	return nil
}

// add adds a line, and reports whether there was a place for it.
func (q *queue) add(l *line) bool {
	if l.verb == settle {
		q.settles.push(l)
		return true
	}
	b := q.requests.owners[l.owner]
	if q.requests.count >= q.places || b != nil && b.count >= q.perOwner {
		return false
	}
	q.requests.push(l)
	l.same = q.joinable[l.hash]
	q.joinable[l.hash] = l
	return true
}

// close takes a line out of those that can be joined.
func (q *queue) close(l *line) {
	at := q.joinable[l.hash]
	if at == l {
		if l.same == nil {
			delete(q.joinable, l.hash)
		} else {
			q.joinable[l.hash] = l.same
		}
		return
	}
	for ; at != nil; at = at.same {
		if at.same == l {
			at.same = l.same
			return
		}
	}
}

// batch returns the lines of the next call. It leaves out requests whose callers have
// left, and answers those that have no more than margin left.
func (q *queue) batch(now, margin int64) (lines []*line) {
	work, bytes := 0, 0
	fill := func(t *turns, part int) { // a line, and up to so many halves of the batch
		for first := true; t.next != nil; first = false {
			l := t.next.first
			if !first &&
				(work+l.work() > q.work*part/2 || bytes+l.bytes() > q.bytes*part/2) {
				return
			}
			t.pop(t.next)
			if t == &q.requests {
				q.close(l)
			}
			if l.trim(now, margin, q.late); len(l.runs) > 0 {
				lines = append(lines, l)
				work, bytes = work+l.work(), bytes+l.bytes()
			}
		}
	}
	if q.requests.count > 0 {
		fill(&q.settles, 1)
	} else {
		fill(&q.settles, 2)
	}
	fill(&q.requests, 2)
	return lines
}

// expire answers the requests whose time has passed, drops lines without a request, and
// returns when the next request is due, or 0.
func (q *queue) expire(now int64) (next int64) {
	for _, t := range []*turns{&q.settles, &q.requests} {
		for _, b := range t.owners {
			l := b.first
			t.count -= b.count
			b.first, b.last, b.count = nil, nil, 0
			for l != nil {
				following := l.next
				if l.trim(now, 0, q.late); len(l.runs) > 0 {
					next = sooner(next, l.due())
					b.append(l)
				} else if t == &q.requests {
					q.close(l)
				}
				l = following
			}
			if t.count += b.count; b.count == 0 {
				t.remove(b)
			}
		}
	}
	return next
}

// each calls f for all lines.
func (q *queue) each(f func(*line)) {
	for _, t := range []*turns{&q.settles, &q.requests} {
		for _, b := range t.owners {
			for l := b.first; l != nil; l = l.next {
				f(l)
			}
		}
	}
}

// waiters yields the requests of a line.
func (l *line) waiters() iter.Seq[*waiter] {
	return func(yield func(*waiter) bool) {
		for _, r := range l.runs {
			for w := r.first; w != nil; w = w.next {
				if !yield(w) {
					return
				}
			}
		}
	}
}

// sooner returns the sooner of two instants, of which 0 is none.
func sooner(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// trim takes requests out of the line: those whose callers have left or that have an
// answer, and those that have no more than margin left, which it answers.
func (l *line) trim(now, margin int64, late *limiter.StoreError) {
	runs := l.runs[:0]
	for _, r := range l.runs {
		w := r.first
		r.first, r.last, r.count = nil, nil, 0
		for w != nil {
			next := w.next
			switch {
			case w.state.Load() != waiting:
			case min(w.leaves, w.ends)-now > margin:
				r.append(w)
			default:
				w.failLate(late)
			}
			w = next
		}
		if r.count > 0 {
			runs = append(runs, r)
		}
	}
	clear(l.runs[len(runs):])
	l.runs = runs
}

// due returns when the first timeout of the line's waiters ends, or 0.
func (l *line) due() (next int64) {
	for _, r := range l.runs {
		if r.first != nil {
			next = sooner(next, r.first.ends)
		}
	}
	return next
}
