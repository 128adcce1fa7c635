package storetest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ration-go/ration/limiter"
)

var concurrencyRules = []Rule{
	{"R12", "no lost debit", "Concurrent requests on one account are allowed exactly as often " +
		"as its balance covers.", noLostDebit},
	{"R12", "several budgets at once", "Concurrent requests on the same budgets in any order " +
		"do not block each other for ever, and none is seen half done.", severalAtOnce},
	{"R12", "settle once at once", "Concurrent corrections of different charges all count.",
		settleAtOnce},
	{"R12", "hooks hold no lock", "The clock is read with no lock held: it may call the store.",
		hooksHoldNoLock},
	{"R12", "charges are the caller's", "Once a call has returned, the store neither writes " +
		"to the charges nor reads them.", chargesAreTheCallers},
}

// workers is how many goroutines call the store at once.
const workers = 64

// together runs work on all workers, and stops the rule where it hangs.
func (p *probe) together(work func(worker int) error) {
	var group sync.WaitGroup
	var failed atomic.Pointer[error]
	ready := make(chan struct{})
	for worker := range workers {
		group.Go(func() {
			<-ready
			if err := work(worker); err != nil {
				failed.CompareAndSwap(nil, &err)
			}
		})
	}
	close(ready)
	p.soon("concurrent calls", group.Wait)
	if err := failed.Load(); err != nil {
		violated("a concurrent call: error %v", *err)
	}
}

// soon stops the rule unless f returns before the harness loses its patience.
func (p *probe) soon(what string, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	timer := time.NewTimer(p.h.patience)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		violated("%s: still not done after %v", what, p.h.patience)
	}
}

func noLostDebit(p *probe) {
	for _, l := range each {
		l.Tokens = 100
		for round := range 5 {
			user := fmt.Sprintf("user %d of %v", round, l)
			var allowed atomic.Int64
			p.together(func(int) error {
				for range 4 {
					d, err := p.store.Take(context.Background(), []limiter.Charge{on(user, l, 1)})
					if err != nil {
						return err
					}
					if d.Allowed() {
						allowed.Add(1)
					}
				}
				return nil
			})
			equal("requests allowed of 256 on 100 tokens", allowed.Load(), 100)
			p.left(0, on(user, l, 0))
		}
	}
}

// severalAtOnce takes the same from two accounts: whoever looks sees them equal.
func severalAtOnce(p *probe) {
	l := limiter.PerHour(1000)
	p.together(func(worker int) error {
		for range 20 {
			charges := []limiter.Charge{in("a", l, 1), in("b", l, 1)}
			if worker%2 == 1 {
				charges[0], charges[1] = charges[1], charges[0]
			}
			call := p.store.Take
			if worker%8 > 5 {
				call = p.store.Peek
			}
			if _, err := call(context.Background(), charges); err != nil {
				return err
			}
			if a, b := charges[0].Result, charges[1].Result; a != b {
				return fmt.Errorf("two accounts of one request, always debited alike: %+v, %+v", a, b)
			}
		}
		return nil
	})
	p.left(40, in("a", l, 0))
	p.left(40, in("b", l, 0))
}

func settleAtOnce(p *probe) {
	l := limiter.PerHour(1000)
	p.together(func(worker int) error {
		for range 5 {
			charges := []limiter.Charge{in("a", l, 3)}
			if _, err := p.store.Take(context.Background(), charges); err != nil {
				return err
			}
			charges[0].Cost = int64(worker%2) - 2
			if err := p.store.Settle(context.Background(), charges); err != nil {
				return err
			}
		}
		return nil
	})
	p.left(1000-workers/2*5*(1+2), in("a", l, 0))
}

func hooksHoldNoLock(p *probe) {
	var store limiter.Store
	var depth atomic.Int32
	clock := &clock{}
	clock.at(0)
	store = p.h.New(p.t, func() time.Time {
		if store != nil && depth.Add(1) == 1 {
			charges := []limiter.Charge{in("a", plain, 1), in("b", plain, 1)}
			_, _ = store.Take(context.Background(), charges)
			_ = store.Settle(context.Background(), charges)
		}
		return clock.now()
	})
	p.soon("a clock that calls the store", func() {
		charges := []limiter.Charge{in("a", plain, 1)}
		for _, call := range []call{store.Take, store.Peek} {
			depth.Store(0)
			_, _ = call(context.Background(), charges)
		}
	})
}

// chargesAreTheCallers reuses charges, as callers that pool them do, after calls
// that returned for every reason.
func chargesAreTheCallers(p *probe) {
	gone, leave := context.WithCancel(context.Background())
	leave()
	var spoiled [][]limiter.Charge
	mark := limiter.Charge{Cost: -7, Result: limiter.Result{Remaining: -7}}
	for round := range 20 {
		for _, ctx := range []context.Context{context.Background(), gone} {
			charges := []limiter.Charge{in("a", plain, 1), on("bob", plain, 1)}
			_, _ = p.store.Take(ctx, charges)
			_, _ = p.store.Peek(ctx, charges)
			_ = p.store.Settle(ctx, charges)
			for i := range charges {
				charges[i] = mark
			}
			spoiled = append(spoiled, charges)
		}
		p.allowed(on(fmt.Sprint("user ", round), plain, 1))
	}
	for _, charges := range spoiled {
		equal("a charge after its call returned", charges[0], mark)
		equal("a charge after its call returned", charges[1], mark)
	}
}
