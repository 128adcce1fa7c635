package redisstore_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/redistest"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/redisstore"
	"github.com/ration-go/ration/limiter/storetest"
)

// newClient returns a client with default options.
func newClient(t testing.TB, network, addr string) *redis.Client {
	client := redis.NewClient(&redis.Options{Network: network, Addr: addr})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func newStore(t testing.TB, client redisstore.Client, cfg redisstore.Config) *redisstore.Store {
	t.Helper()
	s, err := redisstore.New(client, cfg)
	require.NoError(t, err)
	return s
}

// patient is a timeout for tests of what is decided, on machines under load.
const patient = 10 * time.Second

var prefixes atomic.Int64

// newPrefix returns a prefix that no other store has.
func newPrefix() string { return fmt.Sprintf("test%d:", prefixes.Add(1)) }

func harness(client redisstore.Client) storetest.Harness {
	return storetest.Harness{
		New: func(t testing.TB, now func() time.Time) limiter.Store {
			return newStore(t, client, redisstore.Config{
				Prefix: newPrefix(), Timeout: patient, Now: now,
			})
		},
		Resolution:   time.Microsecond,
		AccountClock: true,
	}
}

func TestStore_KeepsThePromise(t *testing.T) {
	server := redistest.Start(t)
	storetest.Run(t, harness(newClient(t, server.Network, server.Addr)))
}
