//go:build faults

package redisstore_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/lab/redistest"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/redisstore"
)

// These tests put a load on a store and look at the clock, so they want a machine
// that does nothing else: make test-faults.

// offer lets so many goroutines offer so many requests a second in all, for some time.
// Each waits for its answer before its next, and a goroutine that is late catches up.
func offer(goroutines, perSecond int, d time.Duration, ask func(goroutine, n int)) {
	var group sync.WaitGroup
	every := time.Second * time.Duration(goroutines) / time.Duration(perSecond)
	start := time.Now()
	for g := range goroutines {
		group.Go(func() {
			next := start.Add(every * time.Duration(g) / time.Duration(goroutines))
			for n := 0; next.Sub(start) < d; n++ {
				time.Sleep(time.Until(next))
				ask(g, n)
				next = next.Add(every)
			}
		})
	}
	group.Wait()
}

func TestFaults_AFarServerDecides(t *testing.T) {
	for _, trip := range []time.Duration{time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond} {
		for _, goroutines := range []int{64, 256} {
			t.Run(fmt.Sprintf("%v/%d", trip, goroutines), func(t *testing.T) {
				proxy := redistest.NewProxy(t, redistest.Start(t))
				proxy.Delay(trip)
				s := newStore(t, newClient(t, proxy.Network, proxy.Addr), redisstore.Config{})
				l := newLimiter(t, s, limiter.PerSecond(1000), limiter.Closed)
				var warm, count tally
				offer(goroutines, 2000, time.Second, func(g, n int) {
					warm.ask(t.Context(), l, userCaller(fmt.Sprint(n*goroutines+g)))
				})
				const seconds = 5
				offer(goroutines, 2000, seconds*time.Second, func(g, n int) {
					count.ask(t.Context(), l, userCaller(fmt.Sprint((n*goroutines+g)%10_000)))
				})
				t.Logf("%v; warming up: %v; %v", &count, &warm, s.RoundTrip())
				assert.GreaterOrEqual(t, count.decided.Load(), int64(2000*seconds*95/100))
			})
		}
	}
}

func TestFaults_TwiceTheCapacityIsDecidedUpToTheCapacity(t *testing.T) {
	proxy := redistest.NewProxy(t, redistest.Start(t))
	proxy.Delay(10 * time.Millisecond)
	s := newStore(t, newClient(t, proxy.Network, proxy.Addr), redisstore.Config{})
	s.Bound(8192, 1024, 4) // 4 slots of 4 lines each 10 ms: some 1600 a second
	l := newLimiter(t, s, limiter.PerSecond(1000), limiter.Closed)
	measure := func(perSecond int) *tally {
		count := &tally{}
		offer(512, perSecond, 4*time.Second, func(g, n int) {
			count.ask(t.Context(), l, userCaller(fmt.Sprint((n*512+g)%10_000)))
		})
		t.Logf("%d/s offered: %v", perSecond, count)
		return count
	}
	measure(500)
	capacity := int64(0) // what it decides at most, at any rate
	for _, rate := range []int{800, 1000, 1200, 1400, 1600} {
		capacity = max(capacity, measure(rate).decided.Load()/4)
	}
	got := measure(int(2*capacity)).decided.Load() / 4
	t.Logf("%d/s of a capacity of %d/s", got, capacity)
	assert.GreaterOrEqual(t, got, capacity*85/100)
}

func TestFaults_OneCallerCanNeitherSwitchTheLimiterOffNorDelayOthers(t *testing.T) {
	for _, deadline := range []time.Duration{200 * time.Millisecond, time.Millisecond} {
		t.Run(deadline.String(), func(t *testing.T) {
			server := redistest.StartTCP(t)
			s := newStore(t, newClient(t, server.Network, server.Addr), redisstore.Config{})
			l := newLimiter(t, s, limiter.PerHour(10), limiter.Open)
			attacker := userCaller("attacker")
			for range 10 {
				_, err := l.Take(t.Context(), attacker, 1)
				require.NoError(t, err)
			}
			var attack, others tally
			var group sync.WaitGroup
			const seconds = 5
			group.Go(func() {
				offer(4000, 20_000, seconds*time.Second, func(int, int) {
					ctx, cancel := context.WithTimeout(t.Context(), deadline)
					defer cancel()
					attack.ask(ctx, l, attacker)
				})
			})
			group.Go(func() {
				offer(200, 200, seconds*time.Second, func(g, n int) {
					others.ask(t.Context(), l, userCaller(fmt.Sprint("other", g)))
				})
			})
			group.Wait()
			t.Logf("attacker: %v; others: %v", &attack, &others)
			assert.Zero(t, attack.allowed.Load())
			assert.GreaterOrEqual(t, others.decided.Load(), int64(200*seconds*99/100))
		})
	}
}

// A stall that has ended must not go on by itself: the same load that was decided
// before it is decided after it.
func TestFaults_RecoversAfterAStall(t *testing.T) {
	for _, test := range []struct {
		size     int
		delay    time.Duration
		deadline bool
		stall    string
	}{
		{1, 20 * time.Millisecond, true, "user"}, {1, 20 * time.Millisecond, false, "user"},
		{1, 20 * time.Millisecond, true, "slow"}, {2, 20 * time.Millisecond, true, "user"},
		{1, 15 * time.Millisecond, true, "user"},
		{3, 20 * time.Millisecond, true, "slow"},
	} {
		t.Run(fmt.Sprint(test), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			proxy := redistest.NewProxy(t, server)
			client := redis.NewClient(&redis.Options{Network: proxy.Network, Addr: proxy.Addr, PoolSize: test.size})
			t.Cleanup(func() { _ = client.Close() })
			s := newStore(t, client, redisstore.Config{}) // 50 ms
			ask := func(n int) error {
				ctx, cancel := t.Context(), func() {}
				if test.deadline {
					ctx, cancel = context.WithTimeout(ctx, 49*time.Millisecond)
				}
				defer cancel()
				_, err := s.Take(ctx, on(fmt.Sprint(n), limiter.PerDay(1_000_000), 1))
				return err
			}
			require.Eventually(t, func() bool { return ask(0) == nil }, patient, time.Millisecond)
			proxy.Delay(test.delay)
			var stop atomic.Bool
			var group sync.WaitGroup
			var phases [12]struct{ ok, bad atomic.Int64 }
			var phase atomic.Int64
			for g := range 8 {
				group.Go(func() {
					for !stop.Load() {
						err := ask(g)
						p := &phases[phase.Load()]
						if err == nil {
							p.ok.Add(1)
						} else {
							p.bad.Add(1)
							time.Sleep(time.Millisecond)
						}
					}
				})
			}
			time.Sleep(time.Second)
			phase.Store(1) // the stall
			if test.stall == "user" {
				var users sync.WaitGroup
				for range test.size {
					users.Go(func() {
						c := client.Conn()
						_ = c.Ping(t.Context()).Err()
						time.Sleep(500 * time.Millisecond)
						_ = c.Close()
					})
				}
				users.Wait()
			} else {
				proxy.Delay(500 * time.Millisecond)
				time.Sleep(500 * time.Millisecond)
				proxy.Delay(test.delay)
			}
			for i := 2; i < 7; i++ {
				phase.Store(int64(i))
				time.Sleep(time.Second)
			}
			stop.Store(true)
			group.Wait()
			text := ""
			for i := range 7 {
				text += fmt.Sprintf(" %d/%d", phases[i].ok.Load(), phases[i].ok.Load()+phases[i].bad.Load())
			}
			t.Logf("%+v: decided of asked, before, in the stall, and each second after:%s", test, text)
			assert.Greater(t, phases[6].ok.Load(), phases[0].ok.Load()/2)
		})
	}
}
