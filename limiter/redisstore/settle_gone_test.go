package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/lab/redistest"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/redisstore"
)

// changing is one account whose limit tests change.
type changing struct {
	t     *testing.T
	store *redisstore.Store
	key   limiter.Key
}

// newChanging returns an account in a store with the clock, or the server's for nil.
func newChanging(t *testing.T, server *redistest.Server, now func() time.Time) *changing {
	t.Helper()
	client := redis.NewClient(&redis.Options{Network: server.Network, Addr: server.Addr})
	t.Cleanup(func() { _ = client.Close() })
	store, err := redisstore.New(client, redisstore.Config{
		Prefix: t.Name() + ":", Timeout: 10 * time.Second, Now: now})
	require.NoError(t, err)
	principal := limiter.Principal{Kind: "user", ID: "alice"}
	return &changing{t, store, limiter.Key{Budget: "b", Principal: principal}}
}

func (c *changing) take(l limiter.Limit, cost int64, want limiter.Outcome) []limiter.Charge {
	c.t.Helper()
	charges := []limiter.Charge{{Key: c.key, Limit: l, Cost: cost}}
	d, err := c.store.Take(c.t.Context(), charges)
	require.NoError(c.t, err)
	require.Equal(c.t, want, d.Outcome, "%+v", d)
	return charges
}

func (c *changing) settle(charges []limiter.Charge, delta int64) {
	c.t.Helper()
	charges[0].Cost = delta
	require.NoError(c.t, c.store.Settle(c.t.Context(), charges))
}

func (c *changing) left(l limiter.Limit) int64 {
	c.t.Helper()
	d, err := c.store.Peek(c.t.Context(), []limiter.Charge{{Key: c.key, Limit: l}})
	require.NoError(c.t, err)
	return d.Remaining
}

// algorithms are the numbers of all three.
var algorithms = []limiter.Algorithm{
	limiter.TokenBucket, limiter.FixedWindow, limiter.RollingLog,
}

func limitOf(a limiter.Algorithm, n int64, per time.Duration) limiter.Limit {
	return limiter.Limit{Tokens: n, Per: per, Algorithm: a}
}

// A credit whose window or entry has gone is nothing, even if the limit has a longer
// period by then. A debit counts now.
func TestSettle_ACreditForWhatHasGoneIsNothing(t *testing.T) {
	server := redistest.Start(t)
	for _, from := range algorithms {
		for _, to := range algorithms {
			t.Run(fmt.Sprintf("%d to %d", from, to), func(t *testing.T) {
				now := time.Unix(1_800_000_000, 0)
				c := newChanging(t, server, func() time.Time { return now })
				short, long := limitOf(from, 10, 10*time.Second), limitOf(to, 10, time.Hour)
				reserved, other := c.take(short, 8, limiter.Allow), c.take(short, 2, limiter.Allow)
				now = now.Add(12 * time.Second)
				c.take(short, 10, limiter.Allow)
				c.take(long, 1, limiter.Deny)
				c.settle(reserved, -8)
				if from == limiter.TokenBucket {
					assert.EqualValues(t, 8, c.left(long), "a bucket's receipt never goes")
					return
				}
				c.take(long, 1, limiter.Deny)
				c.settle(other, 3)
				late := c.take(long, 10, limiter.Deny)
				if to == limiter.RollingLog {
					assert.Equal(t, time.Hour, late[0].Result.RetryAfter, "the debit is as old as the request")
				}
				fresh := late
				fresh[0].Receipt = limiter.Receipt{At: now.UnixNano(), Taken: 4, Valid: true}
				c.settle(fresh, -4)
				assert.EqualValues(t, 1, c.left(long), "ten and three, less four")
			})
		}
	}
}

func TestSettle_TheServersClockDecidesWhatHasGone(t *testing.T) {
	t.Parallel()
	c := newChanging(t, redistest.Start(t), nil)
	short := limitOf(limiter.RollingLog, 10, 2*time.Second)
	long := limitOf(limiter.RollingLog, 10, time.Hour)
	reserved := c.take(short, 10, limiter.Allow)
	time.Sleep(2*time.Second + 50*time.Millisecond)
	c.take(short, 10, limiter.Allow)
	c.take(long, 1, limiter.Deny)
	c.settle(reserved, -10)
	c.take(long, 1, limiter.Deny)
}

// Two charges of one call can have different limits. Each is checked under its own.
func TestSettle_ChecksEachChargeUnderItsOwnLimit(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	c := newChanging(t, redistest.Start(t), func() time.Time { return now })
	short := limitOf(limiter.RollingLog, 10, 10*time.Second)
	long := limitOf(limiter.RollingLog, 10, time.Hour)
	charges := c.take(short, 4, limiter.Allow)
	now = now.Add(12 * time.Second)
	charges = append(charges, c.take(long, 5, limiter.Allow)...)
	charges[0].Cost, charges[1].Cost = -4, -1
	require.NoError(t, c.store.Settle(t.Context(), charges))
	assert.EqualValues(t, 6, c.left(long))
}

// An account that a credit has filled is the same as none (R3).
func TestSettle_AnAccountThatIsFullAgainCarriesUsed(t *testing.T) {
	server := redistest.Start(t)
	for _, algorithm := range algorithms[1:] {
		t.Run(fmt.Sprint(algorithm), func(t *testing.T) {
			now := time.Unix(1_800_000_000, 0)
			c := newChanging(t, server, func() time.Time { return now })
			six, seven := limitOf(algorithm, 6, time.Hour), limitOf(algorithm, 7, time.Hour)
			reserved := c.take(limiter.PerHour(8), 6, limiter.Allow)
			c.take(six, 4, limiter.Deny)
			c.settle(reserved, -6)
			c.take(six, 5, limiter.Allow)
			assert.EqualValues(t, 2, c.left(seven))
		})
	}
}
