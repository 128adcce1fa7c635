package redisstore_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
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
			s := newStore(t, client, redisstore.Config{Timeout: 100 * time.Millisecond})
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

// Callers who have no time, and callers who are many, say nothing of the server.
func TestStore_CallersCannotOpenTheBreaker(t *testing.T) {
	server := redistest.Start(t)
	s := newStore(t, newClient(t, server.Network, server.Addr), redisstore.Config{Timeout: patient})
	require.NoError(t, ask(t, s))
	var group sync.WaitGroup
	for i := range 1000 {
		group.Go(func() {
			for range 5 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				_, _ = s.Take(ctx, on(fmt.Sprint(i), limiter.PerDay(100), 1))
				cancel()
				assert.False(t, s.Open())
			}
		})
	}
	group.Wait()
	require.NoError(t, ask(t, s))
}

// Waiting for a connection that others have says nothing of the server either.
func TestStore_APoolThatIsUsedUpDoesNotOpenTheBreaker(t *testing.T) {
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Network: server.Network, Addr: server.Addr, PoolSize: 1})
	t.Cleanup(func() { _ = client.Close() })
	s := newStore(t, client, redisstore.Config{Timeout: 20 * time.Millisecond})
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
		redisstore.Config{Timeout: 20 * time.Millisecond})
	for range 40 {
		failed(t, ask(t, s), storekit.Unavailable)
		assert.False(t, s.Open())
	}
}
