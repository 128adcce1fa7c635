package redisstore_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/lab/redistest"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/redisstore"
	"github.com/ration-go/ration/limiter/storekit"
)

// ask makes one request.
func ask(t *testing.T, s *redisstore.Store) error {
	_, err := s.Take(t.Context(), on("alice", limiter.PerDay(1_000_000), 1))
	return err
}

// A server that hangs, or is gone, is asked no more: requests are answered at once,
// and soon after it is back they are decided.
func TestStore_AServerThatDoesNotAnswerIsAskedNoMore(t *testing.T) {
	for name, test := range map[string]struct{ stop, start func(*redistest.Server) }{
		"hangs":  {(*redistest.Server).Pause, (*redistest.Server).Resume},
		"killed": {(*redistest.Server).Kill, (*redistest.Server).Restart},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			proxy := redistest.NewProxy(t, server)
			client := redis.NewClient(&redis.Options{Network: proxy.Network, Addr: proxy.Addr})
			t.Cleanup(func() { _ = client.Close() })
			s := newStore(t, client, redisstore.Config{Timeout: slowdown * 200 * time.Millisecond})
			require.Eventually(t, func() bool { return ask(t, s) == nil }, patient, time.Millisecond)
			test.stop(server)
			require.Eventually(t, func() bool { return ask(t, s) != nil && s.Open() }, patient, time.Millisecond)

			dials := proxy.Dials()
			start := time.Now()
			for range 10_000 {
				failed(t, ask(t, s), storekit.Unavailable)
			}
			assert.LessOrEqual(t, proxy.Dials()-dials, 2+time.Since(start).Milliseconds()/5, "probes alone")

			test.start(server)
			start = time.Now()
			require.Eventually(t, func() bool { return ask(t, s) == nil }, patient, time.Millisecond)
			assert.Less(t, time.Since(start), 3*time.Second)
			for range 100 {
				require.NoError(t, ask(t, s))
			}
		})
	}
}

// When the breaker opens, requests that wait are answered at once; those in flight may
// have run.
func TestStore_WhoWaitsIsToldWhenTheBreakerOpens(t *testing.T) {
	server := redistest.Start(t)
	s := newStore(t, newClient(t, server.Network, server.Addr), redisstore.Config{Timeout: time.Second})
	require.Eventually(t, func() bool { return ask(t, s) == nil }, patient, time.Millisecond)
	server.Pause()
	defer server.Resume()
	var group sync.WaitGroup
	for i := range 40 {
		group.Go(func() {
			for !s.Open() {
				start := time.Now()
				_, err := s.Take(t.Context(), on(fmt.Sprint(i), limiter.PerDay(100), 1))
				failed(t, err, storekit.Ambiguous, storekit.Timeout, storekit.Overload, storekit.Unavailable)
				assert.Less(t, time.Since(start), time.Second+500*time.Millisecond)
			}
		})
	}
	group.Wait()
}

// Callers who have no time, and callers who are many, say nothing of the server. The
// timeout is long enough for a server that shares a busy machine with other tests.
func TestStore_CallersCannotOpenTheBreaker(t *testing.T) {
	crowdsCannotOpenTheBreaker(t, slowdown*500*time.Millisecond)
}

func crowdsCannotOpenTheBreaker(t *testing.T, timeout time.Duration) {
	for name, test := range map[string]struct {
		callers  int
		deadline time.Duration
	}{
		"with 1 ms each": {1000, time.Millisecond},
		"4,000 at once":  {4000, patient},
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			s := newStore(t, newClient(t, server.Network, server.Addr), redisstore.Config{Timeout: timeout})
			require.Eventually(t, func() bool { return ask(t, s) == nil }, patient, time.Millisecond)
			var group sync.WaitGroup
			var opened atomic.Int64
			start := make(chan struct{})
			for i := range test.callers {
				group.Go(func() {
					<-start
					for range 5 {
						ctx, cancel := context.WithTimeout(t.Context(), test.deadline)
						_, _ = s.Take(ctx, on(fmt.Sprint(i), limiter.PerDay(100), 1))
						cancel()
						if s.Open() {
							opened.Add(1)
						}
					}
				})
			}
			close(start)
			group.Wait()
			assert.Zero(t, opened.Load())
			require.Eventually(t, func() bool { return ask(t, s) == nil }, patient, time.Millisecond)
		})
	}
}

// Waiting for a connection that others have says nothing of the server either.
func TestStore_APoolThatIsUsedUpDoesNotOpenTheBreaker(t *testing.T) {
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Network: server.Network, Addr: server.Addr, PoolSize: 1})
	t.Cleanup(func() { _ = client.Close() })
	s := newStore(t, client, redisstore.Config{Timeout: slowdown * 60 * time.Millisecond})
	require.Eventually(t, func() bool { return ask(t, s) == nil }, patient, time.Millisecond)
	var group sync.WaitGroup
	group.Go(func() { _ = client.BLPop(t.Context(), 0, "nothing").Err() })
	require.Eventually(t, func() bool { return client.PoolStats().IdleConns == 0 },
		patient, time.Millisecond)
	for range 10 {
		failed(t, ask(t, s), storekit.Timeout, storekit.Overload)
		assert.False(t, s.Open())
	}
	server.Do("RPUSH", "nothing", "x")
	group.Wait()
}

// A server that answers errors answers.
func TestStore_ErrorsOfTheServerDoNotOpenTheBreaker(t *testing.T) {
	server := redistest.Start(t)
	errs := make([]error, 100)
	for i := range errs {
		errs[i] = reply("LOADING Redis is loading the dataset in memory")
	}
	s := newStore(t, &scripted{newClient(t, server.Network, server.Addr), errs, 0},
		redisstore.Config{Timeout: slowdown * 60 * time.Millisecond})
	for range 40 {
		failed(t, ask(t, s), storekit.Unavailable)
		assert.False(t, s.Open())
	}
}

// timed is a client whose server takes some time for an error.
type timed struct{ takes atomic.Int64 }

func (c *timed) Process(ctx context.Context, cmd redis.Cmder) error {
	if encoded, ok := cmd.Args()[len(cmd.Args())-2].(interface{ MarshalBinary() ([]byte, error) }); ok {
		_, _ = encoded.MarshalBinary() // as if written
	}
	select {
	case <-time.After(time.Duration(c.takes.Load())):
		return reply("ERR unknown command")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A reply closes the breaker if it is in time, whatever it says, and only then.
func TestStore_AnErrorClosesTheBreakerOnlyIfItIsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := new(timed)
		client.takes.Store(int64(time.Hour))
		s := newStore(t, client, redisstore.Config{})
		for range 10 {
			require.Error(t, ask(t, s))
		}
		require.True(t, s.Open())
		client.takes.Store(int64(51 * time.Millisecond))
		for range 10_000 {
			failed(t, ask(t, s), storekit.Unavailable)
			require.True(t, s.Open())
			time.Sleep(10 * time.Millisecond)
		}
		client.takes.Store(int64(49 * time.Millisecond))
		for range 1000 {
			_ = ask(t, s)
			time.Sleep(time.Millisecond)
		}
		assert.False(t, s.Open())
		assert.ErrorContains(t, ask(t, s), "unknown command")
	})
}

// A reply that comes very late shows that the server is back, which the next reply, on
// the same connection, confirms.
func TestStore_ALateReplyIsFollowedByAnotherProbeAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := new(timed)
		client.takes.Store(int64(20 * time.Second))
		s := newStore(t, client, redisstore.Config{})
		for !s.Open() {
			require.Error(t, ask(t, s))
		}
		require.Error(t, ask(t, s)) // lets the probe begin
		synctest.Wait()
		client.takes.Store(int64(10 * time.Millisecond))
		start := time.Now()
		for s.Open() && time.Since(start) < time.Minute {
			time.Sleep(time.Millisecond) // nobody asks
		}
		assert.Less(t, time.Since(start), 20*time.Second+100*time.Millisecond)
	})
}
