package redisstore_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/redistest"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/redisstore"
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
			var err error
			for range 30 {
				if _, err = s.Take(t.Context(), on("alice", limiter.PerDay(100), 1)); err == nil {
					return
				}
			}
			require.NoError(t, err)
		})
	}
}
