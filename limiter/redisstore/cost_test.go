package redisstore_test

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/lab/redistest"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/redisstore"
)

// costs is a store on a server of its own that counts what it does.
type costs struct {
	*redisstore.Store
	t      *testing.T
	server *redistest.Server
	now    time.Time
}

func newCosts(t *testing.T) *costs {
	t.Helper()
	c := &costs{t: t, server: redistest.Start(t), now: time.Unix(1_800_000_000, 0)}
	c.Store = newStore(t, newClient(t, c.server.Network, c.server.Addr), redisstore.Config{
		Timeout: patient, Now: func() time.Time { return c.now }})
	return c
}

// large is a rolling log of the most entries.
var large = limiter.Limit{Tokens: 10_000, Per: time.Hour, Algorithm: limiter.RollingLog}

func (c *costs) take(user string, l limiter.Limit, cost int64) limiter.Charge {
	charges := on(user, l, cost)
	_, err := c.Take(c.t.Context(), charges)
	require.NoError(c.t, err)
	return charges[0]
}

// fill writes so many entries, 1 ms apart.
func (c *costs) fill(user string, entries int) (charges []limiter.Charge) {
	for range entries {
		c.now = c.now.Add(time.Millisecond)
		charges = append(charges, c.take(user, large, 1))
	}
	return charges
}

func (c *costs) settle(charge limiter.Charge, delta int64) {
	charge.Cost = delta
	require.NoError(c.t, c.Settle(c.t.Context(), []limiter.Charge{charge}))
}

// stat returns a number of the server's statistics of a command, since reset.
func (c *costs) stat(command, name string) float64 {
	_, after, _ := strings.Cut(c.server.Do("INFO", "commandstats").(string), "cmdstat_"+command+":")
	line, _, _ := strings.Cut(after, "\r\n")
	for field := range strings.SplitSeq(line, ",") {
		if text, ok := strings.CutPrefix(field, name+"="); ok {
			n, err := strconv.ParseFloat(text, 64)
			require.NoError(c.t, err)
			return n
		}
	}
	return 0
}

func (c *costs) reset() { c.server.Do("CONFIG", "RESETSTAT") }

// micros returns what a call costs the server: the mean of some calls, in the best of
// some rounds, since other processes may take the processor.
func (c *costs) micros(call func(i int)) float64 {
	const rounds, calls = 20, 20
	best := math.Inf(1)
	for round := range rounds {
		c.reset()
		for i := range calls {
			call(round*calls + i)
		}
		best = min(best, c.stat("evalsha", "usec")/calls)
	}
	return best
}

func TestStore_ACorrectionOfALogCostsLittleMoreThanOneOfABucket(t *testing.T) {
	c := newCosts(t)
	daily := limiter.PerDay(1_000_000)
	entries, bucket := c.fill("log", 10_000), c.take("bucket", daily, 5000)
	cost := map[string]float64{
		"bucket, take":   c.micros(func(int) { c.take("bucket", daily, 1) }),
		"bucket, deny":   c.micros(func(int) { c.take("bucket", daily, 999_999) }),
		"bucket, settle": c.micros(func(i int) { c.settle(bucket, int64(i%2*2-1)) }),
		"log, deny":      c.micros(func(int) { c.take("log", large, 1) }),
		"log, settle":    c.micros(func(i int) { c.settle(entries[4000+i], -1) }),
		"log, take":      c.micros(func(int) { c.fill("log", 1) }),
	}
	for name, micros := range cost {
		t.Logf("%-14s %5.1f us of the server's time", name, micros)
	}
	assert.Less(t, cost["log, settle"], 10*cost["bucket, settle"])
	assert.Less(t, cost["log, take"], 10*cost["bucket, take"])
	assert.Less(t, cost["log, deny"], 10*cost["bucket, deny"])
}

func TestStore_ALogIsReadInFewEntries(t *testing.T) {
	c := newCosts(t)
	r := rand.New(rand.NewPCG(1, 2))
	total := 0
	for _, entries := range []int{1, 2, 3, 15, 16, 1023, 4095, 4097, 10_000} {
		charges := c.fill("alice", entries-total)
		if total = entries; entries > 1000 {
			c.settle(charges[0], 0)
		}
		reads := 1 + 2*math.Log2(float64(entries)) // and the end
		lower := func(user string, l limiter.Limit, cost int64) {
			c.reset()
			charges := on(user, l, cost)
			_, err := c.Peek(t.Context(), charges)
			require.NoError(t, err)
			assert.LessOrEqual(t, c.stat("getrange", "calls"), max(reads, 3), "%d entries", entries)
			assert.Zero(t, c.stat("get", "calls")+c.stat("mget", "calls"))
		}
		start := c.now
		for range 200 {
			c.now = start.Add(time.Duration(r.Int64N(int64(2 * time.Hour))))
			if r.IntN(2) == 0 { // some have left, and then most
				c.now = start.Add(time.Hour - time.Duration(r.Int64N(int64(entries)*int64(time.Millisecond))))
			}
			lower("alice", large, 10_000-r.Int64N(int64(entries)))
		}
		c.now = start
	}
	assert.Equal(t, 14, bits.Len(10_000))

	c.reset()
	for range 1000 {
		c.take("alice", large, 1) // denied
	}
	assert.LessOrEqual(t, c.stat("getrange", "calls"), 1000*(1+2*math.Log2(10_000)))
	assert.Zero(t, c.stat("set", "calls")+c.stat("setrange", "calls")+c.stat("pexpireat", "calls"))
}

// What is corrected to nothing does not stay for ever, though it is not old.
func TestStore_ALogOfWhatIsRefundedStaysSmall(t *testing.T) {
	c := newCosts(t)
	c.fill("alice", 1000)
	var longest int64
	for range 10_000 {
		entry := c.fill("alice", 1)[0]
		c.settle(entry, -1)
		longest = max(longest, c.server.Do("STRLEN", keyOf("alice")).(int64))
	}
	assert.Less(t, longest, int64(16*2100))
	assert.EqualValues(t, 9000, left(t, c.Store, "alice", large))
}

// Entries that have left go, too.
func TestStore_ALogOfWhatHasLeftStaysSmall(t *testing.T) {
	c := newCosts(t)
	second := limiter.Limit{Tokens: 10_000, Per: time.Second, Algorithm: limiter.RollingLog}
	for _, live := range []int{10, 9000} {
		var longest int64
		for i := range 4*live + 2000 {
			c.now = c.now.Add(time.Second / time.Duration(live))
			c.take("alice", second, 1)
			if i%10 == 0 {
				longest = max(longest, c.server.Do("STRLEN", keyOf("alice")).(int64))
			}
		}
		assert.Less(t, longest, int64(16*(2*live+100)))
		assert.InDelta(t, 10_000-live, left(t, c.Store, "alice", second), 2)
		c.now = c.now.Add(time.Hour)
	}
}

func TestStore_AnAccountIsSmall(t *testing.T) {
	server, s := run(t)
	size := func(key limiter.Key, l limiter.Limit) int64 {
		allowed(t, s, []limiter.Charge{{Key: key, Limit: l, Cost: 1}})
		return server.Do("MEMORY", "USAGE", redisstore.KeyFor(redisstore.Config{}, key)).(int64)
	}
	alice := limiter.Principal{Kind: "user", Tenant: "acme", ID: "alice"}
	tenant := size(limiter.Key{Budget: "org", Principal: limiter.Principal{Tenant: "acme"}},
		limiter.PerDay(100_000))
	user := size(limiter.Key{Budget: "user", Principal: alice}, limiter.PerMinute(100))
	route := size(limiter.Key{Budget: "orders", Principal: alice, Route: "GET /orders/{id}"},
		limiter.PerHour(1000))
	window := size(limiter.Key{Budget: "window", Principal: alice},
		limiter.Limit{Tokens: 100, Per: time.Hour, Algorithm: limiter.FixedWindow})
	log := size(limiter.Key{Budget: "log", Principal: alice}, large)
	t.Logf("bytes: tenant %d, user %d, user and route %d, window %d, log of one %d",
		tenant, user, route, window, log)
	for _, bytes := range []int64{tenant, user, route, window} {
		assert.LessOrEqual(t, bytes, int64(160))
	}
	assert.LessOrEqual(t, (tenant+user+route)/3, int64(200))
	assert.LessOrEqual(t, log, int64(200))
}
