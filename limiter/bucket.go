package limiter

import (
	"container/list"
	"context"
	"fmt"
	"math"
	"math/big"
	"sync"
	"time"

	"github.com/ration-go/ration/internal/account"
	"github.com/ration-go/ration/internal/instant"
)

// Bucket is one account on its own: for outbound calls, jobs and tests. Take
// decides at once, Peek says what Take would say, and Wait blocks until Take
// allows. It works with all three algorithms; for a token bucket of Tokens per
// Per and capacity Burst,
//
//	tokens = min(Burst, tokens + elapsed*Tokens/Per)
//
// exactly: 1 token every 3 s is never early by a nanosecond nor late by one. For
// example, "2/1s burst=5" allows five at once, denies a sixth at 0.1 s with
// RetryAfter 0.4 s, and allows it at 0.5 s.
//
// It is safe for concurrent use, starts full, and does not allocate to decide (a
// rolling log allocates for its entries). The zero Bucket is not usable: its
// methods return a *[ConfigError], and Tokens returns 0. See [NewBucket]. A Bucket
// has no keys. For one account per caller, use a [Limiter].
type Bucket struct {
	limit Limit
	rule  account.Limit
	clock func() int64

	// mu guards what follows. The clock is read before it is taken.
	mu      sync.Mutex
	latest  int64
	account account.Account
	waiting list.List    // of *waiter, first come first
	line    account.Line // the costs of those waiting
}

type waiter struct {
	cost int64
	turn chan struct{} // closed when the waiter comes to the front
	left bool          // no longer waiting
}

// NewBucket returns a full bucket. A nil now is the real clock: the wall time at
// this call plus monotonic time. A limit that is not valid is a *[ConfigError].
func NewBucket(l Limit, now func() time.Time) (*Bucket, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	return &Bucket{
		limit: l, rule: l.prepare(), clock: instant.Clock(now), latest: math.MinInt64,
	}, nil
}

// Take pays cost if the balance covers it. A negative cost is a *[CostError]
// and changes nothing; a Bucket made by NewBucket returns no other error.
func (b *Bucket) Take(cost int64) (Decision, error) { return b.decide(cost, true) }

// Peek says what Take would say now, and changes nothing. Its errors are those
// of Take.
func (b *Bucket) Peek(cost int64) (Decision, error) { return b.decide(cost, false) }

func (b *Bucket) decide(cost int64, take bool) (Decision, error) {
	if err := b.check(cost); err != nil {
		return Decision{}, err
	}
	now := b.clock()
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.decideAt(b.advance(now), cost, take), nil
}

func (b *Bucket) check(cost int64) error {
	if b.clock == nil {
		return errZero("Bucket", "NewBucket")
	}
	return checkCost(cost)
}

// advance returns the instant of a request (R2).
func (b *Bucket) advance(now int64) int64 {
	b.latest = max(b.latest, now)
	return b.latest
}

func (b *Bucket) decideAt(now, cost int64, take bool) Decision {
	a, used := b.account.Under(&b.rule, now)
	d := Decision{Limit: b.limit, Outcome: Outcome(b.rule.Judge(used, uint64(cost)))}
	switch {
	case d.Outcome == Deny:
		d.RetryAfter = time.Duration(a.Wait(used, now, uint64(cost)))
	case d.Allowed() && cost > 0:
		if !take {
			a = a.Clone()
		}
		used = a.Debit(used, now, uint64(cost))
		if take {
			b.account = a
		}
	}
	d.Remaining = b.rule.Remaining(used)
	d.ResetAfter = time.Duration(a.Reset(now))
	return d
}

// Tokens returns the exact balance now. It is never negative: a Bucket cannot go
// into debt.
func (b *Bucket) Tokens() *big.Rat {
	if b.clock == nil {
		return new(big.Rat)
	}
	now := b.clock()
	b.mu.Lock()
	defer b.mu.Unlock()
	_, used := b.account.Under(&b.rule, b.advance(now))
	return b.rule.Balance(used)
}

// Wait returns nil as soon as Take(cost) is allowed. Waiters are served first
// come, first served; one timer runs, that of the first. A Take beside them is
// not held up and may delay them. What refills above the capacity while a waiter
// wakes up is lost; for very short intervals, use a larger Burst.
//
// At once it returns [ErrNever] for a cost above the capacity, a *[CostError]
// for a negative one, and an error that matches [context.DeadlineExceeded] if the
// tokens for all who wait before it and for cost cannot be there by ctx's
// deadline. A turn can come later than that: after a Take beside the line, or if a
// cost before it does not fit into the rest of a fixed window or a rolling log and
// leaves that rest unused. When ctx ends Wait returns ctx.Err(), has taken nothing,
// and those behind move up.
//
// To join and to leave the line costs the same however many wait.
func (b *Bucket) Wait(ctx context.Context, cost int64) error {
	if err := b.check(cost); err != nil {
		return err
	}
	if cost > b.limit.Capacity() {
		return ErrNever
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	place, err := b.enqueue(ctx, cost)
	if place == nil || err != nil {
		return err
	}
	defer b.leave(place)
	select {
	case <-place.Value.(*waiter).turn:
	case <-ctx.Done():
		return ctx.Err()
	}
	return b.waitFirst(ctx, place)
}

// enqueue returns the place in the line, or nil if the cost is paid already.
func (b *Bucket) enqueue(ctx context.Context, cost int64) (*list.Element, error) {
	now := b.clock()
	b.mu.Lock()
	defer b.mu.Unlock()
	now = b.advance(now)
	if cost == 0 || b.waiting.Len() == 0 && b.decideAt(now, cost, true).Allowed() {
		return nil, nil
	}
	if deadline, ok := ctx.Deadline(); ok {
		a, used := b.account.Under(&b.rule, now)
		wait := time.Duration(b.line.Wait(&a, used, now, uint64(cost)))
		if wait > time.Until(deadline) {
			return nil, fmt.Errorf("limiter: the turn comes in %v or later, after the deadline: %w",
				wait, context.DeadlineExceeded)
		}
	}
	w := &waiter{cost: cost, turn: make(chan struct{})}
	place := b.waiting.PushBack(w)
	b.line.Join(uint64(cost))
	if b.waiting.Front() == place {
		close(w.turn)
	}
	return place, nil
}

// waitFirst serves the waiter at the front of the line.
func (b *Bucket) waitFirst(ctx context.Context, place *list.Element) error {
	for {
		d := b.serve(place)
		if d.Allowed() {
			return nil
		}
		timer := time.NewTimer(d.RetryAfter)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

// serve takes the cost of the first waiter and, if that is allowed, removes it
// under the same lock, so that nobody counts it as both paid and waiting.
func (b *Bucket) serve(place *list.Element) Decision {
	now := b.clock()
	b.mu.Lock()
	defer b.mu.Unlock()
	d := b.decideAt(b.advance(now), place.Value.(*waiter).cost, true)
	if d.Allowed() {
		b.remove(place)
	}
	return d
}

// leave removes a waiter that was not served.
func (b *Bucket) leave(place *list.Element) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.remove(place)
}

// remove takes a waiter off the line, once, and calls the next to the front. mu is
// held.
func (b *Bucket) remove(place *list.Element) {
	w := place.Value.(*waiter)
	if w.left {
		return
	}
	w.left = true
	b.line.Leave(uint64(w.cost))
	first := b.waiting.Front() == place
	b.waiting.Remove(place)
	if next := b.waiting.Front(); first && next != nil {
		close(next.Value.(*waiter).turn)
	}
}
