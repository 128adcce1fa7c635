package storetest

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ration-go/ration/limiter"
)

var leavingRules = []Rule{
	{"R14", "a caller that leaves", "A caller that leaves at any moment of its call gets the " +
		"decision or the context's error, never a *StoreError: the store has not failed. All " +
		"its accounts are debited or none.", callerLeaves},
	{"R14", "a caller that leaves breaks nothing", "A request that waits for its accounts when " +
		"its caller leaves is still decided and debited: leaving breaks no transaction.",
		leavingBreaksNothing},
	{"R9", "settle outlives its caller", "Settle corrects although its context has ended.",
		settleOutlives},
}

// leaver is the context of a caller that leaves while the store looks at it: it
// ends at the n-th look, or never if n is 0.
type leaver struct {
	n      int64
	looks  atomic.Int64
	once   sync.Once
	looked chan struct{} // closed at the first look
	done   chan struct{} // closed when the caller leaves
}

func newLeaver(n int64) *leaver {
	return &leaver{n: n, looked: make(chan struct{}), done: make(chan struct{})}
}

func (l *leaver) look() {
	switch looks := l.looks.Add(1); {
	case looks == 1 && l.n == 1:
		close(l.looked)
		l.leave()
	case looks == 1:
		close(l.looked)
	case looks == l.n:
		l.leave()
	}
}

func (l *leaver) leave() { l.once.Do(func() { close(l.done) }) }

func (l *leaver) Deadline() (time.Time, bool) { l.look(); return time.Time{}, false }

func (l *leaver) Done() <-chan struct{} { l.look(); return l.done }

func (l *leaver) Value(any) any { return nil }

func (l *leaver) Err() error {
	l.look()
	select {
	case <-l.done:
		return context.Canceled
	default:
		return nil
	}
}

// mostLooks is more often than any store looks at a context in one call.
const mostLooks = 30

func callerLeaves(p *probe) {
	l := limiter.PerHour(1000)
	for n := int64(1); n <= mostLooks; n++ {
		for _, call := range []call{p.store.Take, p.store.Peek} {
			charges := []limiter.Charge{in("a", l, 1), in("b", l, 1)}
			d, err := call(newLeaver(n), charges)
			if err == nil && d.Allowed() || errors.Is(err, context.Canceled) && !isStoreError(err) {
				continue
			}
			violated("a caller that leaves at look %d: %+v, %v; want allow, or %v",
				n, d, err, context.Canceled)
		}
		both := []limiter.Charge{in("a", l, 0), in("b", l, 0)}
		p.peek(both...)
		equal("the account of b beside that of a", both[1].Result, both[0].Result)
	}
}

func isStoreError(err error) bool {
	var store *limiter.StoreError
	return errors.As(err, &store)
}

func leavingBreaksNothing(p *probe) {
	if p.h.Shared == nil || p.h.Shared.Hold == nil {
		return
	}
	l := limiter.PerHour(10)
	request := []limiter.Charge{in("a", l, 4), in("b", l, 4)}
	release := p.h.Shared.Hold(p.t, p.store, request)
	ctx := newLeaver(0)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = p.store.Take(ctx, append([]limiter.Charge(nil), request...))
	}()
	p.soon("a request that waits for its accounts", func() { <-ctx.looked })
	for i := range 20 { // which gives the other request time to begin
		p.allowed(in("other", limiter.PerHour(100), int64(i%2)))
	}
	ctx.leave()
	release()
	p.soon("a request whose caller has left", func() { <-done })
	var stop atomic.Bool
	defer stop.Store(true)
	p.soon("the debit of a request whose caller has left", func() {
		for !stop.Load() && p.remaining(request[0]) != 6 {
			runtime.Gosched()
		}
	})
	p.left(6, request[1])
}

// remaining peeks at the tokens left in the account of c, or returns -1.
func (p *probe) remaining(c limiter.Charge) int64 {
	c.Cost = 0
	charges := []limiter.Charge{c}
	if _, err := p.store.Peek(context.Background(), charges); err != nil {
		return -1
	}
	return charges[0].Result.Remaining
}

func settleOutlives(p *probe) {
	gone, leave := context.WithCancel(context.Background())
	leave()
	for n := range int64(mostLooks) {
		slow := limiter.PerHour(5)
		charges := p.allowed(on("alice", slow, 4))
		charges[0].Cost = -4
		ctx := context.Context(newLeaver(n))
		if n == 0 {
			ctx = gone
		}
		if err := p.store.Settle(ctx, charges); err != nil {
			violated("Settle of a caller that leaves at look %d: %v, want no error", n, err)
		}
		p.left(5, on("alice", slow, 0))
	}
}
