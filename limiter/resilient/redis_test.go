package resilient_test

import (
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
	"github.com/ration-go/ration/limiter/resilient"
)

// fleet is three processes that share a Redis server and one account.
type fleet struct {
	limit    limiter.Limit
	server   *redistest.Server
	limiters []*limiter.Limiter
	replicas atomic.Int64
	start    time.Time
	restarts int64 // without persistence: the account is forgotten

	admitted, shared, local, closed atomic.Int64
}

func newFleet(t *testing.T, limit limiter.Limit) *fleet {
	f := &fleet{limit: limit, server: redistest.StartTCP(t), start: time.Now()}
	f.replicas.Store(3)
	for range 3 {
		client := redis.NewClient(&redis.Options{Addr: f.server.Addr})
		t.Cleanup(func() { _ = client.Close() })
		shared, err := redisstore.New(client, redisstore.Config{})
		require.NoError(t, err)
		store, err := resilient.New(shared, newMemory(t, nil), resilient.Config{
			Replicas: func() int { return int(f.replicas.Load()) },
		})
		require.NoError(t, err)
		f.limiters = append(f.limiters, limiter.Must(limiter.New(store, []limiter.Budget{
			{Name: "a", Limit: limit, OnError: limiter.Local},
		}, limiter.Config{Logger: quiet})))
	}
	return f
}

// ask lets two greedy callers of each process ask for a while.
func (f *fleet) ask(t *testing.T, d time.Duration) {
	var group sync.WaitGroup
	end := time.Now().Add(d)
	for i := range 2 * len(f.limiters) {
		group.Go(func() {
			for time.Now().Before(end) {
				decision, policy := answeredBy(t)(f.limiters[i/2].Take(background, alice, 1))
				if decision.Allowed() {
					f.admitted.Add(1)
				}
				switch policy {
				case 0:
					f.shared.Add(1)
				case limiter.Local:
					f.local.Add(1)
				case limiter.Closed:
					f.closed.Add(1)
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	group.Wait()
}

// ceiling is the formula in the package comment for the whole time, as if every process
// had decided locally all the time: with so many replicas at least, and shares that have
// grown by so much. With replicas that are right it is at most 2*C + R - 1 + 2*r*T for
// each account that was forgotten.
func (f *fleet) ceiling(leastReplicas, growth int64) int64 {
	capacity, elapsed := f.limit.Capacity(), time.Since(f.start)
	share := (capacity-1)/leastReplicas + 1
	processes := int64(len(f.limiters))
	spans := int64(elapsed/f.limit.Per) + 1
	if f.limit.Algorithm == limiter.FixedWindow {
		spans++ // the first one had begun before
	}
	if f.limit.Algorithm != limiter.TokenBucket {
		return (1+f.restarts)*capacity*spans + processes*share*spans
	}
	refill := int64(elapsed) * f.limit.Tokens / int64(f.limit.Per)
	return (1+f.restarts)*capacity + refill + processes*(share+growth) + processes*refill/leastReplicas + 1
}

// Ten outages of a real server, which is stopped, and every third time killed and
// started again with nothing on its disk.
func TestRedis_OutagesCostNoMoreThanTheFormula(t *testing.T) {
	for _, limit := range []limiter.Limit{
		{Tokens: 10, Per: time.Second, Burst: 50},
		{Algorithm: limiter.FixedWindow, Tokens: 20, Per: time.Second},
		{Algorithm: limiter.RollingLog, Tokens: 20, Per: time.Second},
	} {
		for _, changing := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/replicas change %v", limit, changing), func(t *testing.T) {
				t.Parallel()
				f := newFleet(t, limit)
				least, growth := int64(3), int64(0)
				for cycle := range int64(10) {
					f.ask(t, 200*time.Millisecond)
					if changing {
						f.replicas.Store(2 + cycle%3) // 2, 3, 4, 2, ...
						least, growth = 2, limit.Capacity()
					}
					if cycle%3 == 2 {
						f.server.Kill()
						f.ask(t, 200*time.Millisecond)
						f.server.Restart()
						f.restarts++
						continue
					}
					f.server.Pause()
					f.ask(t, 200*time.Millisecond)
					f.server.Resume()
				}
				f.ask(t, 300*time.Millisecond)
				ceiling := f.ceiling(least, growth)
				t.Logf("%d admitted, at most %d; decided: %d in Redis, %d here, %d by Closed",
					f.admitted.Load(), ceiling, f.shared.Load(), f.local.Load(), f.closed.Load())
				assert.LessOrEqual(t, f.admitted.Load(), ceiling)
				assert.Positive(t, f.shared.Load())
				assert.Positive(t, f.local.Load())
				assert.Zero(t, f.closed.Load())
			})
		}
	}
}
