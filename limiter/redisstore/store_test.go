package redisstore_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/keytext"
	"github.com/ration-go/ration/internal/lab/redistest"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
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

func TestNew_OfALimiterRefusesTheZeroStore(t *testing.T) {
	_, err := limiter.New(&redisstore.Store{}, []limiter.Budget{
		{Name: "api", Limit: limiter.PerHour(1), OnError: limiter.Closed}}, limiter.Config{})
	var config *limiter.ConfigError
	require.ErrorAs(t, err, &config)
	require.Equal(t, "Store", config.Field)
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
	t.Parallel()
	server := redistest.Start(t)
	storetest.Run(t, harness(newClient(t, server.Network, server.Addr)))
}

func TestNew_RefusesWhatCannotWork(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer func() { _ = client.Close() }()
	ring := redis.NewRing(&redis.RingOptions{})
	defer func() { _ = ring.Close() }()
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer func() { _ = cluster.Close() }()
	var none *redis.Client
	tests := map[string]struct {
		client redisstore.Client
		cfg    redisstore.Config
		field  string
	}{
		"no-client":    {nil, redisstore.Config{}, "Client"},
		"nil-client":   {none, redisstore.Config{}, "Client"},
		"ring":         {ring, redisstore.Config{}, "Client"},
		"cluster":      {cluster, redisstore.Config{}, "Client"},
		"connection":   {client.Conn(), redisstore.Config{}, "Client"},
		"pipeline":     {client.Pipeline(), redisstore.Config{}, "Client"},
		"braces":       {client, redisstore.Config{Prefix: "a{b}:"}, "Config.Prefix"},
		"timeout":      {client, redisstore.Config{Timeout: -1}, "Config.Timeout"},
		"tiny-timeout": {client, redisstore.Config{Timeout: 1}, "Config.Timeout"},
		"max-ahead":    {client, redisstore.Config{MaxAhead: -1}, "Config.MaxAhead"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s, err := redisstore.New(test.client, test.cfg)
			assert.Nil(t, s)
			var config *limiter.ConfigError
			require.ErrorAs(t, err, &config)
			assert.Equal(t, test.field, config.Field)
		})
	}
}

func TestNew_WantsAFailurePolicyOfEveryBudget(t *testing.T) {
	server := redistest.Start(t)
	s := newStore(t, newClient(t, server.Network, server.Addr), redisstore.Config{})
	budget := limiter.Budget{Name: "a", Limit: limiter.PerHour(1)}
	_, err := limiter.New(s, []limiter.Budget{budget}, limiter.Config{})
	require.ErrorContains(t, err, "OnError")
	budget.OnError = limiter.Closed
	_, err = limiter.New(s, []limiter.Budget{budget}, limiter.Config{})
	require.NoError(t, err)
}

func TestCheck_AcceptsWhatIsExactBelow2To53(t *testing.T) {
	s := newStore(t, redis.NewClient(&redis.Options{}), redisstore.Config{})
	day := 24 * time.Hour
	fixed, rolling := limiter.FixedWindow, limiter.RollingLog
	tests := []struct {
		limit limiter.Limit
		field string // of the error; empty: accepted
	}{
		{limiter.PerSecond(1), ""},
		{limiter.PerSecond(1_000_000_000), ""},
		{limiter.PerDay(52_000), ""},
		{limiter.PerDay(1_000_000), ""},
		{limiter.PerDay(100_000_000), ""},
		{limiter.Limit{Tokens: 999_983, Per: day, Burst: 1000}, ""},
		{limiter.Limit{Tokens: 997, Per: 1009 * time.Nanosecond, Burst: 31}, ""},
		{limiter.Limit{Tokens: 1, Per: 36_525 * day}, ""},
		{limiter.Limit{Tokens: 1 << 52, Per: 1 << 51 * time.Nanosecond, Burst: 1 << 51}, ""},
		{limiter.Limit{Tokens: 1<<52 - 1, Per: time.Microsecond, Algorithm: fixed}, ""},
		{limiter.Limit{Tokens: 10_000, Per: 36_525 * day, Algorithm: rolling}, ""},

		{limiter.Limit{Tokens: 999_983, Per: day}, "Limit"},
		{limiter.Limit{Tokens: math.MaxInt64, Per: time.Second}, "Limit"},
		{limiter.Limit{Tokens: math.MaxInt64, Per: 7}, "Limit"},
		{limiter.Limit{Tokens: 1 << 53, Per: time.Microsecond, Algorithm: fixed}, "Limit.Tokens"},
		{limiter.Limit{Tokens: 5, Per: 1500, Algorithm: fixed}, "Limit.Per"},
		{limiter.Limit{Tokens: 5, Per: 999, Algorithm: rolling}, "Limit.Per"},
		{limiter.Limit{}, "Limit.Tokens"},
		{limiter.Unlimited, "Limit"},
	}
	for _, test := range tests {
		err := s.Check(test.limit)
		if test.field == "" {
			assert.NoError(t, err, test.limit)
			continue
		}
		var config *limiter.ConfigError
		if assert.ErrorAs(t, err, &config, test.limit) {
			assert.Equal(t, test.field, config.Field, test.limit)
		}
	}
}

func TestKeyFor_IsWhereTheAccountIs(t *testing.T) {
	server := redistest.Start(t)
	for _, cfg := range []redisstore.Config{
		{}, {Prefix: "app:"}, {Secret: []byte("secret")},
	} {
		server.Do("FLUSHALL")
		cfg.Timeout = patient
		s := newStore(t, newClient(t, server.Network, server.Addr), cfg)
		for _, key := range []limiter.Key{
			{Budget: "all"},
			{Budget: "b", Principal: limiter.Principal{Kind: "user", Tenant: "acme", ID: "al{}ice"}},
			{Budget: "b", Route: "GET /orders/{id}", Workload: "{x}"},
		} {
			allowed(t, s, []limiter.Charge{{Key: key, Limit: limiter.PerHour(5), Cost: 1}})
			assert.EqualValues(t, 1, server.Do("EXISTS", redisstore.KeyFor(cfg, key)))
		}
	}
}

// Stored accounts are found by these names: changing one forgets what was used.
func TestKeyFor_IsStable(t *testing.T) {
	acme := limiter.Principal{Kind: "user", Tenant: "acme", ID: "alice"}
	tests := map[string]limiter.Key{
		"ration:all": {Budget: "all"},
		"ration:{oGCw}orders:3gm9_Vv9CshC-RQjptzGFw:GET%20/orders/%7Bid%7D": {
			Budget: "orders", Principal: acme, Route: "GET /orders/{id}"},
	}
	for want, key := range tests {
		assert.Equal(t, want, redisstore.KeyFor(redisstore.Config{}, key))
	}
}

func TestStore_KeysOfOneRequestAreNamedAsAlone(t *testing.T) {
	s := newStore(t, redis.NewClient(&redis.Options{}), redisstore.Config{})
	principals := []limiter.Principal{{}, {Kind: "user", ID: "alice"}, {Kind: "user", ID: "bob"},
		{Kind: "user", Tenant: "acme", ID: "alice"}, {Tenant: "acme"}}
	var keys []limiter.Key
	for range 50 {
		r := len(keys)
		keys = append(keys, limiter.Key{Budget: strings.Repeat("b", r%9),
			Principal: principals[r*r%5], Route: "GET /" + strings.Repeat("r", r), Workload: "w"},
			limiter.Key{Budget: "c:", Principal: principals[r*r%5]},
			limiter.Key{Principal: principals[rand.IntN(5)]})
	}
	for i, text := range s.KeysOf(keys) {
		assert.Equal(t, redisstore.KeyFor(redisstore.Config{}, keys[i]), text)
		plain := string(keytext.New(nil).Append(nil, keys[i]))
		assert.True(t, strings.HasSuffix(text, plain), "%s, %s", text, plain)
	}
}

// A tenant's keys share a slot of a cluster, whatever is in its name; and what
// callers are called cannot choose the slot.
func TestKeyFor_KeepsATenantTogether(t *testing.T) {
	tag := func(p limiter.Principal) string {
		text := redisstore.KeyFor(redisstore.Config{}, limiter.Key{Budget: "b", Principal: p})
		require.Equal(t, 1, strings.Count(text, "{"), text)
		require.Equal(t, 1, strings.Count(text, "}"), text)
		_, text, _ = strings.Cut(text, "{")
		text, _, _ = strings.Cut(text, "}")
		return text
	}
	alice := limiter.Principal{Kind: "user", Tenant: "acme", ID: "alice"}
	assert.Equal(t, tag(alice), tag(limiter.Principal{Kind: "user", Tenant: "acme", ID: "bob"}))
	assert.Equal(t, tag(alice), tag(limiter.Principal{Tenant: "acme"}))
	tags := map[string]bool{}
	for i := range 1000 {
		tags[tag(limiter.Principal{Kind: "user", ID: fmt.Sprint("{x}", i)})] = true
	}
	assert.Len(t, tags, 1000)
}

// Both stores give the same answers, to the microsecond, on a clock that does not
// go back.
func TestStore_AnswersAsMemoryDoes(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	now := time.Unix(1_800_000_000, 0)
	clock := func() time.Time { return now }
	shared := newStore(t, newClient(t, server.Network, server.Addr),
		redisstore.Config{Timeout: patient, Now: clock})
	memory := limiter.Must(memstore.New(memstore.Config{Now: clock}))
	limits := []limiter.Limit{limiter.PerSecond(5), limiter.PerMinute(100), limiter.PerDay(999),
		{Tokens: 7, Per: 11 * time.Millisecond, Burst: 13}, {Tokens: 1, Per: 3 * time.Second},
		{Tokens: 5, Per: 10 * time.Second, Algorithm: limiter.FixedWindow},
		{Tokens: 9, Per: 4 * time.Second, Algorithm: limiter.RollingLog},
	}
	up := func(d *time.Duration) { *d = (*d + time.Microsecond - 1).Truncate(time.Microsecond) }
	r := rand.New(rand.NewPCG(1, 2))
	for step := range 5000 {
		idle := time.Duration(r.Int64N(int64(time.Second) >> r.IntN(20)))
		now = now.Add(idle.Truncate(time.Microsecond))
		var charges []limiter.Charge
		for range 1 + r.IntN(3) {
			i := r.IntN(len(limits))
			c := on(fmt.Sprint(i), limits[i], r.Int64N(limits[i].Capacity()+2))[0]
			charges = append(charges, c)
		}
		want := slices.Clone(charges)
		got, err := shared.Take(t.Context(), charges)
		require.NoError(t, err)
		expected, err := memory.Take(t.Context(), want)
		require.NoError(t, err)
		up(&expected.RetryAfter)
		up(&expected.ResetAfter)
		for i := range want {
			up(&want[i].Result.RetryAfter)
			up(&want[i].Result.ResetAfter)
			require.Equal(t, want[i].Result, charges[i].Result, "step %d", step)
		}
		require.Equal(t, expected, got, "step %d", step)
	}
}
