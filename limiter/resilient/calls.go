package resilient

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ration-go/ration/internal/breaker"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/storekit"
)

// maxCalls bounds the calls that have not returned, also those that nobody waits for.
const maxCalls = 4096

// probeTime is how long a probe may take. A server that just came back may need more
// than the timeout of a call, for example to accept a connection.
const probeTime = time.Second

// calls makes the calls of a store that has no breaker: each in a goroutine of its own,
// on a copy of the charges, so that neither a caller that leaves nor a store that hangs
// holds the other.
type calls struct {
	store   limiter.Store
	timeout time.Duration
	breaker *breaker.Breaker
	start   time.Time
	open    atomic.Int64                  // calls that have not returned
	opened  atomic.Pointer[chan struct{}] // closed when the breaker opens, and replaced
}

func newCalls(s limiter.Store, timeout time.Duration) *calls {
	c := &calls{store: s, timeout: timeout, breaker: breaker.New(timeout), start: time.Now()}
	opened := make(chan struct{})
	c.opened.Store(&opened)
	return c
}

// method is Take, Peek, Settle or Reset of a store.
type method = func(limiter.Store, context.Context, []limiter.Charge) (limiter.Decision, error)

func settle(
	s limiter.Store, ctx context.Context, charges []limiter.Charge,
) (limiter.Decision, error) {
	return limiter.Decision{}, s.Settle(ctx, charges)
}

func (c *calls) take(ctx context.Context, charges []limiter.Charge) (limiter.Decision, error) {
	dropReceipts(charges)
	return c.run(ctx, charges, limiter.Store.Take, storekit.Ambiguous)
}

func (c *calls) peek(ctx context.Context, charges []limiter.Charge) (limiter.Decision, error) {
	return c.run(ctx, charges, limiter.Store.Peek, storekit.Timeout)
}

func (c *calls) settle(ctx context.Context, charges []limiter.Charge) error {
	_, err := c.run(context.WithoutCancel(ctx), charges, settle, storekit.Ambiguous)
	if store, failed := errors.AsType[*limiter.StoreError](err); failed &&
		store.Reason == storekit.Ambiguous {
		dropReceipts(charges)
	}
	return err
}

// reset returns a function that makes the calls of reset, the Reset of the store.
func (c *calls) reset(
	reset func(context.Context, []limiter.Charge) error,
) func(context.Context, []limiter.Charge) error {
	do := func(
		_ limiter.Store, ctx context.Context, charges []limiter.Charge,
	) (limiter.Decision, error) {
		return limiter.Decision{}, reset(ctx, charges)
	}
	return func(ctx context.Context, charges []limiter.Charge) error {
		_, err := c.run(ctx, charges, do, storekit.Ambiguous)
		return err
	}
}

func dropReceipts(charges []limiter.Charge) {
	for i := range charges {
		charges[i].Receipt = limiter.Receipt{}
	}
}

// answer is what a call has returned.
type answer struct {
	decision limiter.Decision
	charges  []limiter.Charge // nil: the call has not returned in time
	err      error
}

// run makes one call. silent is the reason of the error if there is no answer: whether
// the call has run is not known, unless it changes nothing.
func (c *calls) run(
	ctx context.Context, charges []limiter.Charge, do method, silent string,
) (limiter.Decision, error) {
	if err := ctx.Err(); err != nil {
		return limiter.Decision{}, err
	}
	// Taken before the breaker is asked: if it opens in between, the channel is closed.
	opened := *c.opened.Load()
	if c.breaker.Open() {
		c.probe(charges)
		return limiter.Decision{}, failed(storekit.Unavailable, errOpen)
	}
	if c.open.Add(1) > maxCalls {
		c.open.Add(-1)
		return limiter.Decision{}, failed(storekit.Overload, errTooMany)
	}
	answers := make(chan answer, 1)
	c.begin(ctx, slices.Clone(charges), do, silent, answers)
	select {
	case a := <-answers:
		copy(charges, a.charges)
		return a.decision, a.err
	case <-ctx.Done():
		return limiter.Decision{}, ctx.Err()
	case <-opened:
		return limiter.Decision{}, failed(silent, errOpen)
	}
}

// begin starts a call. Exactly one answer is sent, at the latest when its time has
// ended, whether or not its caller still waits.
func (c *calls) begin(
	ctx context.Context, charges []limiter.Charge, do method, silent string, to chan<- answer,
) {
	began := c.now()
	// Only the deadline is passed on, so that a caller who leaves breaks nothing.
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.timeout)
	late := time.AfterFunc(c.timeout, func() {
		c.missed(began)
		to <- answer{err: failed(silent, errSilent)}
	})
	go func() {
		defer c.open.Add(-1)
		defer cancel()
		a := answer{charges: charges}
		a.decision, a.err = guard(c.store, bounded, charges, do)
		if !late.Stop() {
			return
		}
		switch heard(a.err) {
		case replied:
			c.breaker.Answered()
		case silence:
			c.missed(began)
		}
		switch {
		case errors.Is(a.err, storekit.ErrDeadline): // the deadline was ours
			a = answer{err: failed(storekit.Timeout, a.err)}
		case isPlain(a.err, context.DeadlineExceeded):
			a = answer{err: failed(silent, a.err)}
		}
		to <- a
	}()
}

// guard makes a panic of the store an error, because nobody could recover it in a
// goroutine of ours, and so it does with a nil *limiter.StoreError.
func guard(
	s limiter.Store, ctx context.Context, charges []limiter.Charge, do method,
) (d limiter.Decision, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = failed(storekit.Other, fmt.Errorf("the store panicked: %v", p))
		}
	}()
	d, err = do(s, ctx, charges)
	if store, ok := errors.AsType[*limiter.StoreError](err); ok && store == nil {
		err = failed(storekit.Other, errNil)
	}
	return d, err
}

func (c *calls) now() int64 { return int64(time.Since(c.start)) }

// missed notes a call without an answer. If that opens the breaker, all that wait are
// answered.
func (c *calls) missed(began int64) {
	if c.breaker.Missed(began, c.now()) {
		next := make(chan struct{})
		close(*c.opened.Swap(&next))
	}
}

// probe finds out, in the background and if it is time for it, whether the store answers
// again: by a Take of what a request wanted to charge, at no cost. A Peek would not show
// that the store can write again.
func (c *calls) probe(charges []limiter.Charge) {
	if len(charges) == 0 || c.open.Load() >= maxCalls {
		return
	}
	p := c.breaker.Probe(c.now())
	if p == breaker.None {
		return
	}
	c.open.Add(1)
	charges = slices.Clone(charges)
	dropReceipts(charges)
	for i := range charges {
		charges[i].Cost = 0
	}
	// A probe that does not return when its time has ended must not keep others from
	// being started.
	late := time.AfterFunc(probeTime, func() { c.breaker.Probed(p, breaker.Abandoned, c.now()) })
	go func() {
		defer c.open.Add(-1)
		ctx, cancel := context.WithTimeout(context.Background(), probeTime)
		defer cancel()
		began := c.now()
		_, err := guard(c.store, ctx, charges, limiter.Store.Take)
		if !late.Stop() {
			return
		}
		result := breaker.Failed
		if heard(err) == replied && c.now()-began <= int64(c.timeout) {
			result = breaker.Answered
		}
		c.breaker.Probed(p, result, c.now())
	}()
}
