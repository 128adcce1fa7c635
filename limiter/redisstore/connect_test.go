package redisstore_test

import (
	"context"
	"io"
	"net"
	"os"
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

// A connection takes several round trips, here more than the timeout: calls that
// break it off would never have one.
func TestTake_AFarServerIsReachedThoughACallIsTooShortToConnect(t *testing.T) {
	for name, connect := range map[string]func(testing.TB, string, string) *redis.Client{
		"default": newClient, "keeping": keeping,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := redistest.NewProxy(t, redistest.Start(t))
			proxy.Delay(120 * time.Millisecond)
			s := newStore(t, connect(t, proxy.Network, proxy.Addr),
				redisstore.Config{Timeout: 200 * time.Millisecond})
			require.Eventually(t, func() bool {
				_, err := s.Take(t.Context(), on("alice", limiter.PerDay(100), 1))
				return err == nil
			}, patient, time.Millisecond)
		})
	}
}

// dialing returns a client that keeps deadlines and dials with dial, and the count
// of its dials. To be called in a bubble.
func dialing(t *testing.T, dial func(context.Context) (net.Conn, error)) (
	*redis.Client, *atomic.Int64,
) {
	t.Helper()
	dials := new(atomic.Int64)
	client := redis.NewClient(&redis.Options{
		Addr:                  "127.0.0.1:1", // not a name, which would be looked up
		ContextTimeoutEnabled: true, DialerRetries: 1, PoolSize: 20_000,
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			if dials.Add(1) > 1000 {
				<-ctx.Done() // lets the time of the bubble pass
				return nil, ctx.Err()
			}
			return dial(ctx)
		},
	})
	t.Cleanup(func() { _ = client.Close() })
	return client, dials
}

// timesOut is a dial that times out at once.
func timesOut(context.Context) (net.Conn, error) { return nil, os.ErrDeadlineExceeded }

func TestStore_DoesNotConnectWithoutCallers(t *testing.T) {
	hangs := func(context.Context) (net.Conn, error) { // a server that reads and never replies
		client, server := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, server) }()
		return client, nil
	}
	for name, dial := range map[string]func(context.Context) (net.Conn, error){
		"dials-time-out-at-once": timesOut, "the-server-hangs": hangs,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, dials := dialing(t, dial)
				s := newStore(t, client, redisstore.Config{})
				for range 3 {
					_, err := s.Take(t.Context(), on("alice", limiter.PerDay(9), 1))
					failed(t, err, storekit.Timeout, storekit.Unavailable, storekit.Ambiguous)
				}
				time.Sleep(3 * time.Second)
				assert.LessOrEqual(t, dials.Load(), int64(6), "one of a call, and one beside it")
				time.Sleep(10 * time.Second)
				before := dials.Load()
				time.Sleep(time.Hour)
				assert.Equal(t, before, dials.Load())
			})
		})
	}
}

func TestStore_PausesBetweenConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, dials := dialing(t, timesOut)
		s := newStore(t, client, redisstore.Config{})
		s.NeverOpen()
		const calls = 300
		for range calls {
			_, err := s.Take(t.Context(), on("alice", limiter.PerDay(9), 1))
			failed(t, err, storekit.Timeout)
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		assert.LessOrEqual(t, dials.Load(), int64(calls+7), "one beside the calls in 50 ms")
		assert.Greater(t, dials.Load(), int64(calls))
	})
}
