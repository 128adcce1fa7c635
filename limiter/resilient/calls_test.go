package resilient_test

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
	"github.com/ration-go/ration/limiter/resilient"
	"github.com/ration-go/ration/limiter/storekit"
)

// slow does not refill during a test.
var slow = limiter.Limit{Tokens: 1_000_000, Per: 50 * 365 * 24 * time.Hour}

const timeout = 100 * time.Millisecond

// plain is somebody's store: it has no breaker, and answers as the test says.
type plain struct {
	*memstore.Store
	mu     sync.Mutex
	answer func(context.Context) error // nil: the memory decides
	takes  atomic.Int64                // and settles
}

// Capabilities hides those of the memory.
func (*plain) Capabilities() limiter.Capabilities { return limiter.Capabilities{Name: "plain"} }

func (p *plain) set(answer func(context.Context) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = answer
}

func (p *plain) says(ctx context.Context) error {
	p.mu.Lock()
	answer := p.answer
	p.mu.Unlock()
	if answer == nil {
		return nil
	}
	return answer(ctx)
}

func (p *plain) Take(ctx context.Context, c []limiter.Charge) (limiter.Decision, error) {
	p.takes.Add(1)
	if err := p.says(ctx); err != nil {
		return limiter.Decision{}, err
	}
	return p.Store.Take(ctx, c)
}

func (p *plain) Peek(ctx context.Context, c []limiter.Charge) (limiter.Decision, error) {
	if err := p.says(ctx); err != nil {
		return limiter.Decision{}, err
	}
	return p.Store.Peek(ctx, c)
}

func (p *plain) Settle(ctx context.Context, c []limiter.Charge) error {
	p.takes.Add(1)
	if err := p.says(ctx); err != nil {
		return err
	}
	return p.Store.Settle(ctx, c)
}

// hangs until the context ends.
func hangs(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// guarded is a limiter with a budget that is Open, over somebody's store.
type guarded struct {
	*limiter.Limiter
	store *plain
	front *resilient.Store
}

// inBubble runs a test on virtual time.
func inBubble(t *testing.T, test func(t *testing.T, g *guarded)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		g := &guarded{store: &plain{Store: newMemory(t, nil)}}
		var err error
		g.front, err = resilient.New(g.store, newMemory(t, nil), resilient.Config{
			Replicas: func() int { return 1 }, Timeout: timeout,
		})
		require.NoError(t, err)
		g.Limiter = limiter.Must(limiter.New(g.front, []limiter.Budget{
			{Name: "a", Limit: slow, OnError: limiter.Open},
		}, limiter.Config{Logger: quiet}))
		test(t, g)
		g.store.set(nil)
		time.Sleep(time.Minute) // no goroutine is left behind, or the bubble fails
	})
}

func (g *guarded) isOpen() bool { return g.front.Capabilities().BreakerOpen() }

// take returns the reason for which the store has not decided, and how long that took.
func (g *guarded) take(t *testing.T) (reason string, took time.Duration) {
	t.Helper()
	start := time.Now()
	_, err := g.Take(t.Context(), alice, 1)
	took = time.Since(start)
	var failed *limiter.StoreError
	if errors.As(err, &failed) {
		return failed.Reason, took
	}
	require.NoError(t, err)
	return "", took
}

// A store that hangs is waited for during one timeout, and then not asked; it is asked
// again when a probe has been answered.
func TestCalls_AStoreThatHangsIsNotAsked(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guarded) {
		g.store.set(hangs)
		var wait sync.WaitGroup
		for range 100 {
			wait.Go(func() {
				reason, took := g.take(t)
				assert.Equal(t, storekit.Ambiguous, reason)
				assert.Equal(t, timeout, took)
			})
		}
		wait.Wait()
		assert.True(t, g.isOpen())
		takes := g.store.takes.Load()
		assert.EqualValues(t, 100, takes)
		for range 10_000 { // for ten seconds
			reason, took := g.take(t)
			assert.Equal(t, storekit.Unavailable, reason)
			assert.Zero(t, took)
			time.Sleep(time.Millisecond)
		}
		probes := g.store.takes.Load() - takes
		assert.Less(t, probes, int64(25), "two probes a second")
		assert.Greater(t, probes, int64(8))

		g.store.set(nil)
		back := time.Now()
		for reason := "?"; reason != ""; reason, _ = g.take(t) {
			time.Sleep(time.Millisecond)
		}
		assert.LessOrEqual(t, time.Since(back), time.Second)
		assert.False(t, g.isOpen())
	})
}

// Opening answers all who wait, also those who came later than the first.
func TestCalls_OpeningAnswersWhoeverWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guarded) {
		g.store.set(hangs)
		start := time.Now()
		var wait sync.WaitGroup
		for i := range 10 {
			wait.Go(func() {
				time.Sleep(time.Duration(i) * timeout / 10)
				reason, _ := g.take(t)
				assert.Equal(t, storekit.Ambiguous, reason)
				assert.LessOrEqual(t, time.Since(start), timeout+2*timeout/10)
			})
		}
		wait.Wait()
	})
}

// Any answer in time shows that the server lives, errors included. What was not asked of
// it, and what callers do, shows nothing.
func TestCalls_WhatOpensTheBreaker(t *testing.T) {
	says := func(err error) func(context.Context) error {
		return func(context.Context) error { return err }
	}
	store := func(reason string) func(context.Context) error {
		return says(&limiter.StoreError{Reason: reason, Err: errors.New(reason)})
	}
	for name, test := range map[string]struct {
		answer func(context.Context) error
		opens  bool
	}{
		"refused connections": {store(storekit.Unavailable), true},
		"timeouts":            {store(storekit.Timeout), true},
		"ambiguous":           {store(storekit.Ambiguous), true},
		"overload":            {store(storekit.Overload), false},
		"an error reply":      {store(storekit.Other), false},
		"an unknown error":    {says(errors.New("syntax error")), false},
		"a wrong cost":        {says(&limiter.CostError{Cost: -1}), false},
		"a wrong limit":       {says(&limiter.ConfigError{Field: "Limit"}), false},
		"a caller's deadline": {says(storekit.ErrDeadline), false},
		"a deadline":          {says(context.DeadlineExceeded), true},
		"a nil *StoreError":   {says((*limiter.StoreError)(nil)), false},
		"a network timeout":   {says(&net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}), true},
		"a refused dial":      {says(&net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}), true},
		"a panic":             {func(context.Context) error { panic("a bug") }, false},
		"slow answers":        {func(context.Context) error { time.Sleep(timeout * 9 / 10); return nil }, false},
		"late answers":        {func(context.Context) error { time.Sleep(2 * timeout); return nil }, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, g *guarded) {
				g.store.set(test.answer)
				for range 200 {
					_, _ = g.Take(t.Context(), alice, 1)
					time.Sleep(time.Millisecond)
				}
				assert.Equal(t, test.opens, g.isOpen())
			})
		})
	}
}

// Callers who leave early cannot open the breaker of a store that answers, and cannot
// keep that of one that hangs closed.
func TestCalls_CallersWhoLeave(t *testing.T) {
	for _, hung := range []bool{false, true} {
		inBubble(t, func(t *testing.T, g *guarded) {
			g.store.set(func(ctx context.Context) error {
				if hung {
					return hangs(ctx)
				}
				time.Sleep(timeout / 2)
				return nil
			})
			var wait sync.WaitGroup
			for range 1000 {
				time.Sleep(time.Millisecond)
				wait.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
					defer cancel()
					_, err := g.Take(ctx, alice, 1)
					if !g.isOpen() {
						assert.ErrorIs(t, err, context.DeadlineExceeded)
					}
				})
			}
			wait.Wait()
			assert.Equal(t, hung, g.isOpen())
		})
	}
}

// Calls that never return are bounded; others are refused at once. Many callers of a store
// that answers do not open the breaker.
func TestCalls_AreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guarded) {
		release := make(chan struct{})
		g.store.set(func(context.Context) error { <-release; return nil })
		var wait sync.WaitGroup
		var overload atomic.Int64
		for range 5000 {
			wait.Go(func() {
				if reason, _ := g.take(t); reason == storekit.Overload {
					overload.Add(1)
				}
			})
		}
		synctest.Wait()
		assert.EqualValues(t, 5000-4096, overload.Load())
		close(release)
		wait.Wait()
		assert.False(t, g.isOpen())
		reason, _ := g.take(t)
		assert.Empty(t, reason)
	})
}

// A settle that was not sent may be tried again; one whose outcome is unknown may not.
func TestCalls_Settle(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guarded) {
		take := func() *limiter.Reservation {
			r, err := g.Reserve(t.Context(), alice, 10)
			require.NoError(t, err)
			return r
		}
		var failed *limiter.StoreError
		left := func() int64 { d, _ := g.Peek(t.Context(), alice, 0); return d.Remaining }

		unknown, refused := take(), take()
		g.store.set(func(context.Context) error { return nil })
		full := left()
		g.store.set(hangs)
		require.ErrorAs(t, unknown.Cancel(t.Context()), &failed)
		assert.Equal(t, storekit.Ambiguous, failed.Reason)
		assert.ErrorIs(t, unknown.Cancel(t.Context()), limiter.ErrReceipt)

		for !g.isOpen() {
			_, _ = g.Take(t.Context(), alice, 0)
		}
		require.ErrorAs(t, refused.Cancel(t.Context()), &failed)
		assert.Equal(t, storekit.Unavailable, failed.Reason)
		g.store.set(nil)
		for g.isOpen() {
			_, _ = g.Take(t.Context(), alice, 0)
			time.Sleep(time.Millisecond)
		}
		require.NoError(t, refused.Cancel(t.Context()))
		assert.EqualValues(t, full+10, left())
	})
}

// Calls and probes that never return, because the store ignores its context, keep no later
// probe from finding out that the store answers again.
func TestCalls_ProbesThatNeverReturnDoNotKeepTheBreakerOpen(t *testing.T) {
	inBubble(t, func(t *testing.T, g *guarded) {
		release := make(chan struct{})
		g.store.set(func(context.Context) error { <-release; return nil })
		for range 5000 {
			g.take(t)
			time.Sleep(time.Millisecond)
		}
		require.True(t, g.isOpen())
		g.store.set(nil)
		back := time.Now()
		for g.isOpen() && time.Since(back) < time.Minute {
			g.take(t)
			time.Sleep(time.Millisecond)
		}
		assert.LessOrEqual(t, time.Since(back), time.Second)
		close(release)
	})
}

// resettable is plain with a Reset that answers as the test says, too.
type resettable struct{ *plain }

func (r resettable) Capabilities() limiter.Capabilities {
	return limiter.Capabilities{Reset: func(ctx context.Context, c []limiter.Charge) error {
		if err := r.says(ctx); err != nil {
			return err
		}
		return r.Store.Reset(ctx, c)
	}}
}

// A Reset is a call like any other: it is bounded by Config.Timeout, and not made while
// the breaker is open.
func TestCalls_Reset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := resettable{&plain{Store: newMemory(t, nil)}}
		l := limiter.Must(limiter.New(limiter.Must(resilient.New(store, newMemory(t, nil), resilient.Config{
			Replicas: func() int { return 1 }, Timeout: timeout,
		})), []limiter.Budget{{
			Name: "a", Scope: limiter.ByPrincipal, Limit: slow, OnError: limiter.Open,
		}}, limiter.Config{Logger: quiet}))
		release := make(chan struct{})
		store.set(func(context.Context) error { <-release; return nil })
		reset := func(reason string, took time.Duration) {
			start := time.Now()
			var failed *limiter.StoreError
			require.ErrorAs(t, l.Reset(t.Context(), alice), &failed)
			assert.Equal(t, reason, failed.Reason)
			assert.Equal(t, took, time.Since(start))
		}
		for range 3 {
			reset(storekit.Ambiguous, timeout)
		}
		reset(storekit.Unavailable, 0)
		store.set(nil)
		close(release)
		time.Sleep(time.Second)
		_, _ = l.Take(t.Context(), alice, 1)
		synctest.Wait()
		assert.NoError(t, l.Reset(t.Context(), alice))
	})
}

// writesHang is a store that answers a Peek while a Take hangs, as a database does whose
// rows are locked, or whose replicas answer in place of a primary that is gone.
type writesHang struct{ *plain }

func (writesHang) Take(ctx context.Context, _ []limiter.Charge) (limiter.Decision, error) {
	return limiter.Decision{}, hangs(ctx)
}

// A store that answers nothing but a Peek is not asked either.
func TestCalls_AStoreWhoseWritesHangIsNotAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := writesHang{&plain{Store: newMemory(t, nil)}}
		l := limiter.Must(limiter.New(limiter.Must(resilient.New(store, newMemory(t, nil), resilient.Config{
			Replicas: func() int { return 1 }, Timeout: timeout,
		})), []limiter.Budget{{Name: "a", Limit: slow, OnError: limiter.Open}}, limiter.Config{Logger: quiet}))
		waits := 0
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
			start := time.Now()
			_, err := l.Take(t.Context(), alice, 1)
			require.Error(t, err)
			if time.Since(start) > 0 {
				waits++
			}
		}
		assert.LessOrEqual(t, waits, 3)
		time.Sleep(time.Minute)
	})
}
