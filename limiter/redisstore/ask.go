package redisstore

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/storekit"
)

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
		return nil, s.combiner.failure()
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

// recycle gives a waiter back, if there is one that nobody else has.
func (s *Store) recycle(w *waiter) {
	if w == nil || !w.reuse {
		return
	}
	*w = waiter{done: w.done}
	s.waiters.Put(w)
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
	s.combiner.denials.ended(b, &o, errs)
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
