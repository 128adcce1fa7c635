package storetest

import (
	"context"
	"fmt"
	"time"

	"github.com/ration-go/ration/limiter"
)

var ownClockRules = []Rule{
	{"R2", "one clock for all", "Stores on the same accounts decide by one clock, such as the " +
		"server's: a request that begins after another has returned has no earlier instant.",
		oneClock},
	{"R2", "the clock is read after the locks", "A request that has waited for its accounts is " +
		"decided at an instant after the wait, not at the start of its transaction.",
		clockAfterLocks},
}

// own returns a probe of a store that reads its own clock, or nil if the harness
// has no Shared.
func (p *probe) own() *probe {
	if p.h.Shared == nil {
		return nil
	}
	q := *p
	q.store = p.h.New(p.t, nil)
	return &q
}

// instantOf takes a token of an account that is full, and returns the instant of the
// request.
func instantOf(store limiter.Store, user string) int64 {
	charges := []limiter.Charge{on(user, limiter.PerHour(5), 1)}
	d, err := store.Take(context.Background(), charges)
	if err != nil || !d.Allowed() {
		violated("Take(%s) = %+v, %v, want allow", describe(charges), d, err)
	}
	return charges[0].Receipt.At
}

func oneClock(p *probe) {
	q := p.own()
	if q == nil || q.h.Shared.Another == nil {
		return
	}
	family := []limiter.Store{q.store}
	for len(family) < stores {
		family = append(family, q.h.Shared.Another(q.t, q.store, nil))
	}
	last := int64(-1 << 63)
	for i := range 20 {
		at := instantOf(family[i%len(family)], fmt.Sprint("user ", i))
		if at < last {
			violated("request %d, on store %d: %v earlier than the one before it",
				i, i%len(family), time.Duration(last-at))
		}
		last = at
	}
}

// clockAfterLocks lets a request wait for an account while others, which need not
// wait, are decided; it comes after them.
func clockAfterLocks(p *probe) {
	q := p.own()
	if q == nil || q.h.Shared.Hold == nil {
		return
	}
	for round := range 10 {
		waiter := fmt.Sprint("waiter ", round)
		release := q.h.Shared.Hold(q.t, q.store, []limiter.Charge{on(waiter, plain, 0)})
		var at int64
		var err error
		ctx := newLeaver(0)
		done := make(chan struct{})
		go func() {
			defer close(done)
			charges := []limiter.Charge{on(waiter, plain, 1)}
			_, err = q.store.Take(ctx, charges)
			at = charges[0].Receipt.At
		}()
		q.soon("a request that waits for its account", func() { <-ctx.looked })
		var last int64
		for i := range 20 {
			last = instantOf(q.store, fmt.Sprint("user ", round, " ", i))
		}
		release()
		q.soon("a request that waited for its account", func() { <-done })
		if err != nil {
			violated("Take of a request that waited: %v, want no error", err)
		}
		if at < last {
			violated("a request that waited was decided %v before its account was free",
				time.Duration(last-at))
		}
	}
}
