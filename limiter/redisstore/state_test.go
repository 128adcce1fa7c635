package redisstore_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
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

// each is a limit of each algorithm: 5 in 10 s.
var each = []limiter.Limit{
	{Tokens: 5, Per: 10 * time.Second},
	{Tokens: 5, Per: 10 * time.Second, Algorithm: limiter.FixedWindow},
	{Tokens: 5, Per: 10 * time.Second, Algorithm: limiter.RollingLog},
}

// keyOf returns the server's key of a user's account.
func keyOf(user string) string {
	return redisstore.KeyFor(redisstore.Config{}, on(user, limiter.Limit{}, 0)[0].Key)
}

// run is a server and a store on it, on the server's clock.
func run(t *testing.T) (*redistest.Server, *redisstore.Store) {
	t.Helper()
	server := redistest.Start(t)
	client := newClient(t, server.Network, server.Addr)
	return server, newStore(t, client, redisstore.Config{Timeout: patient})
}

// ahead returns a store on the same accounts, its clock ahead of the server's.
func ahead(t *testing.T, server *redistest.Server, by time.Duration) *redisstore.Store {
	t.Helper()
	return newStore(t, newClient(t, server.Network, server.Addr), redisstore.Config{
		Timeout: patient, Now: func() time.Time { return time.Now().Add(by) },
	})
}

func TestTake_KeysLiveUntilTheirAccountsAreFull(t *testing.T) {
	server, s := run(t)
	ttl := func(user string) time.Duration {
		ms := server.Do("PTTL", keyOf(user)).(int64)
		require.Positive(t, ms)
		return time.Duration(ms) * time.Millisecond
	}
	hourly := limiter.Limit{Tokens: 2, Per: time.Hour, Algorithm: limiter.RollingLog}
	daily := limiter.Limit{Tokens: 2, Per: 24 * time.Hour, Algorithm: limiter.FixedWindow}
	tests := map[string]struct {
		limit     limiter.Limit
		cost      int64
		low, high time.Duration
	}{
		"one-of-60":      {limiter.PerMinute(60), 1, time.Second / 2, time.Second},
		"all-of-60":      {limiter.PerMinute(60), 60, 50 * time.Second, time.Minute},
		"one-an-hour":    {limiter.PerHour(1), 1, 59 * time.Minute, time.Hour},
		"a-rolling-log":  {hourly, 1, 59 * time.Minute, time.Hour},
		"a-fixed-window": {daily, 1, 0, 24 * time.Hour},
	}
	for name, test := range tests {
		charges := on(name, test.limit, test.cost)
		allowed(t, s, charges)
		got := ttl(name)
		assert.Greater(t, got, test.low, name)
		assert.LessOrEqual(t, got, test.high+3*time.Millisecond, name)
		assert.LessOrEqual(t, got, charges[0].Result.ResetAfter+3*time.Millisecond, name)
	}

	short := limiter.Limit{Tokens: 5, Per: 20 * time.Millisecond}
	allowed(t, s, on("short", short, 5))
	assert.Eventually(t, func() bool { return server.Do("EXISTS", keyOf("short")) == int64(0) },
		patient, time.Millisecond)
}

func TestStore_EveryKeyExpiresAfterAnyHistory(t *testing.T) {
	t.Parallel()
	server, s := run(t)
	r := rand.New(rand.NewPCG(9, 9))
	limits := append([]limiter.Limit{limiter.PerDay(3), limiter.PerHour(100),
		{Tokens: 7, Per: time.Hour, Algorithm: limiter.RollingLog}}, each...)
	var open []limiter.Charge
	for range 3000 {
		charges := on(strconv.Itoa(r.IntN(20)), limits[r.IntN(len(limits))], r.Int64N(4))
		if len(open) > 0 && r.IntN(3) == 0 {
			c := open[0]
			open = open[1:]
			c.Cost = r.Int64N(c.Cost+3) - c.Cost
			require.NoError(t, s.Settle(t.Context(), []limiter.Charge{c}))
			continue
		}
		d, err := s.Take(t.Context(), charges)
		require.NoError(t, err)
		if d.Allowed() {
			open = append(open, charges...)
		}
	}
	keys := server.Do("KEYS", "*").([]any)
	require.NotEmpty(t, keys)
	for _, key := range keys {
		assert.Positive(t, server.Do("PTTL", key), key)
	}
}

func TestTake_ARefusalWritesNothing(t *testing.T) {
	server, s := run(t)
	writes := func() string {
		info := server.Do("INFO", "persistence").(string)
		_, after, _ := strings.Cut(info, "rdb_changes_since_last_save:")
		return strings.Fields(after)[0]
	}
	for _, l := range each {
		l.Per = time.Hour
		user := l.String()
		allowed(t, s, on(user, l, 5))
		if l.Algorithm != limiter.TokenBucket { // and one that was made from a bucket
			server.Do("DEL", keyOf(user))
			allowed(t, s, on(user, limiter.PerHour(9), 8))
			allowed(t, s, on(user, l, 1))
		}
		value, before := server.Do("GET", keyOf(user)), writes()
		for _, charges := range [][]limiter.Charge{
			on(user, l, 1), on(user, l, 6), on(user, l, 0), on("other", l, 6),
			append(on(user, l, 1), on("other", l, 1)...),
		} {
			_, err := s.Take(t.Context(), charges)
			require.NoError(t, err)
			_, err = s.Peek(t.Context(), charges)
			require.NoError(t, err)
		}
		assert.Equal(t, before, writes())
		assert.Equal(t, value, server.Do("GET", keyOf(user)))
		assert.EqualValues(t, 0, server.Do("EXISTS", keyOf("other")))
	}
}

func TestTake_IsOneCommandWhateverTheNumberOfBudgets(t *testing.T) {
	server, s := run(t)
	charges := append(on("alice", limiter.PerHour(9), 1), on("bob", each[1], 1)...)
	charges = append(charges, on("carol", each[2], 1)...)
	allowed(t, s, charges)
	server.Do("CONFIG", "RESETSTAT")
	for range 4 {
		allowed(t, s, charges)
	}
	stats := server.Do("INFO", "commandstats").(string)
	assert.Contains(t, stats, "cmdstat_evalsha:calls=4,")
	assert.Contains(t, stats, "cmdstat_time:calls=4,")
	for line := range strings.Lines(stats) {
		name, _, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":")
		switch name {
		case "evalsha", "time", "get", "mget", "getrange", "set", "pexpireat", "setrange":
		case "config|resetstat", "info", "# Commandstats\r\n":
		default:
			t.Errorf("an unexpected command: %s", line)
		}
	}
}

func TestTake_ForeignValuesAreAnErrorAndHeal(t *testing.T) {
	t.Parallel()
	overwrite := func(s *redistest.Server, key string, end int, text string) {
		s.Do("SETRANGE", key, int(s.Do("STRLEN", key).(int64))-end, text)
	}
	put := map[string]func(server *redistest.Server, key string){
		"text":  func(s *redistest.Server, key string) { s.Do("SET", key, "42") },
		"empty": func(s *redistest.Server, key string) { s.Do("SET", key, "") },
		"long":  func(s *redistest.Server, key string) { s.Do("SET", key, strings.Repeat("x", 1000)) },
		"a-list": func(s *redistest.Server, key string) {
			s.Do("DEL", key)
			s.Do("RPUSH", key, "1")
		},
		"a-hash": func(s *redistest.Server, key string) {
			s.Do("DEL", key)
			s.Do("HSET", key, "a", "1")
		},
		"a-cut-value": func(s *redistest.Server, key string) {
			s.Do("SET", key, s.Do("GETRANGE", key, 0, 19))
		},
		"no-limit": func(s *redistest.Server, key string) {
			s.Do("SET", key, "\x02\x00"+strings.Repeat("\x00", 40))
		},
		"not-numbers": func(s *redistest.Server, key string) {
			overwrite(s, key, 16, strings.Repeat("\xff", 16))
		},
		"too-much-used": func(s *redistest.Server, key string) {
			overwrite(s, key, 8, "\x00\x00\x00\x00\x00\x00\x50\x47") // far above 2^53
		},
		"of-version-1": func(s *redistest.Server, key string) {
			s.Do("SET", key, "\x01\x00"+strings.Repeat("\x00\x00\x00\x00\x00\x00\xf0\x3f", 5))
		},
		"a-value-without-its-beginning": func(s *redistest.Server, key string) {
			rest := []byte(s.Do("GETRANGE", key, 3, -1).(string))
			if len(rest) > 0 && rest[0] < ' ' {
				rest[0] = ' ' // else it could be the version of a newer format
			}
			s.Do("SET", key, string(rest))
		},
	}
	for name, spoil := range put {
		t.Run(name, func(t *testing.T) {
			server, s := run(t)
			for _, l := range each {
				l.Per = 24 * time.Hour
				user := l.String()
				both := func() []limiter.Charge { return append(on(user, l, 2), on("bob", l, 1)...) }
				allowed(t, s, on(user, l, 2))
				server.Do("DEL", keyOf("bob"))
				spoil(server, keyOf(user))

				_, err := s.Peek(t.Context(), both())
				failed(t, err, storekit.Other)
				require.ErrorContains(t, err, keyOf(user))
				assert.EqualValues(t, 1, server.Do("EXISTS", keyOf(user)), "a Peek changes nothing")
				_, err = s.Take(t.Context(), both())
				failed(t, err, storekit.Other)
				assert.EqualValues(t, 0, server.Do("EXISTS", keyOf("bob")), "nothing was debited")
				allowed(t, s, both())
				assert.EqualValues(t, 3, left(t, s, user, l))
			}
		})
	}
}

// A process of an older version must not take the accounts of newer ones away.
func TestTake_ValuesOfANewerFormatAreLeftAlone(t *testing.T) {
	server, s := run(t)
	newer := "\x03" + strings.Repeat("?", 50) // without expiry
	server.Do("SET", keyOf("alice"), newer)
	for range 2 {
		_, err := s.Take(t.Context(), on("alice", limiter.PerHour(1), 1))
		failed(t, err, storekit.Other)
		require.ErrorContains(t, err, "newer")
	}
	assert.Equal(t, newer, server.Do("GET", keyOf("alice")))
}

func TestTake_TheErrorOfANewerFormatSaysHowToGetOut(t *testing.T) {
	server, s := run(t)
	l := limiter.PerHour(1)
	for name, out := range map[string]func(){
		"Reset":  func() { require.NoError(t, s.Reset(t.Context(), on("alice", l, 0))) },
		"KeyFor": func() { server.Do("DEL", keyOf("alice")) },
	} {
		server.Do("SET", keyOf("alice"), "\x03newer")
		_, err := s.Take(t.Context(), on("alice", l, 1))
		failed(t, err, storekit.Other)
		require.ErrorContains(t, err, name)
		require.ErrorContains(t, err, keyOf("alice"))
		out()
		allowed(t, s, on("alice", l, 1))
	}
}

func TestReset_MakesFull(t *testing.T) {
	_, s := run(t)
	allowed(t, s, append(on("alice", limiter.PerHour(5), 5), on("bob", limiter.PerHour(5), 5)...))
	require.NoError(t, s.Reset(t.Context(), on("alice", limiter.PerHour(5), 0)))
	assert.EqualValues(t, 5, left(t, s, "alice", limiter.PerHour(5)))
	assert.EqualValues(t, 0, left(t, s, "bob", limiter.PerHour(5)))
	require.NoError(t, s.Reset(t.Context(), nil))
}

// The clocks of the processes do not count, and those that are used by Now can
// neither drain nor credit.
func TestTake_AProcessWithAnotherClockGetsNoSecondRefill(t *testing.T) {
	server, s := run(t)
	l := limiter.Limit{Tokens: 2, Per: 1000 * time.Second, Burst: 4}
	for name, stores := range map[string][2]*redisstore.Store{
		"the-server's-clock": {s, newStore(t, newClient(t, server.Network, server.Addr),
			redisstore.Config{Timeout: patient})},
		"their-own-clocks": {ahead(t, server, 0), ahead(t, server, -10*time.Second)},
	} {
		a, b := stores[0], stores[1]
		total := 0
		take := func(s *redisstore.Store, n int) {
			for range n {
				d, err := s.Take(t.Context(), on(name, l, 1))
				require.NoError(t, err)
				if d.Allowed() {
					total++
				}
			}
		}
		take(a, 5)
		take(b, 1)
		take(a, 5)
		assert.Equal(t, 4, total, name)
	}
}

// The store on the server's clock sees a latest instant that lies ahead: the
// server's clock was set back, or the server is another.
func TestTake_AServerClockThatWasSetBack(t *testing.T) {
	server, s := run(t)
	for _, l := range each {
		t.Run(l.String(), func(t *testing.T) {
			l.Per = 10 * time.Minute
			user := l.String()
			allowed(t, ahead(t, server, 30*time.Second), on(user, l, 4))
			assert.EqualValues(t, 1, left(t, s, user, l))
			charges := on(user, l, 5)
			for range 3 { // at the instant ahead, whatever the time
				d, err := s.Take(t.Context(), charges)
				require.NoError(t, err)
				require.Equal(t, limiter.Deny, d.Outcome)
				if l.Algorithm == limiter.TokenBucket {
					assert.Equal(t, 8*time.Minute, d.RetryAfter)
				}
			}
			allowed(t, s, on(user, l, 1))
			assert.EqualValues(t, 0, left(t, s, user, l))
		})
	}
	assert.Zero(t, s.Stats().Reanchored)
}

func TestTake_AnAnchorFarAheadIsSetToNow(t *testing.T) {
	for _, l := range each {
		t.Run(l.String(), func(t *testing.T) {
			server, s := run(t)
			l.Per = time.Hour
			future := ahead(t, server, 36*time.Hour)
			allowed(t, future, on("alice", l, 1))
			allowed(t, future, on("alice", l, 3))

			d, err := s.Peek(t.Context(), on("alice", l, 2))
			require.NoError(t, err)
			assert.Equal(t, limiter.Deny, d.Outcome)
			assert.EqualValues(t, 1, d.Remaining, "the balance is kept")
			assert.Zero(t, s.Stats().Reanchored, "Peek changes nothing")

			d, err = s.Take(t.Context(), on("alice", l, 2)) // refused, and written all the same
			require.NoError(t, err)
			assert.Equal(t, limiter.Deny, d.Outcome)
			assert.LessOrEqual(t, d.RetryAfter, time.Hour)
			assert.EqualValues(t, 1, s.Stats().Reanchored)
			ttl := time.Duration(server.Do("PTTL", keyOf("alice")).(int64)) * time.Millisecond
			assert.LessOrEqual(t, ttl, time.Hour+time.Second)

			allowed(t, s, on("alice", l, 1))
			assert.EqualValues(t, 0, left(t, s, "alice", l))
			assert.EqualValues(t, 1, s.Stats().Reanchored, "only once")
		})
	}
}

// settled at once, in the only call that sees the anchor.
// While two processes disagree, neither gets more than its own limit would give.
func TestTake_TwoProcessesWithDifferentLimits(t *testing.T) {
	server := redistest.Start(t)
	var now atomic.Int64
	now.Store(time.Now().Unix() * 1e9)
	clock := func() time.Time { return time.Unix(0, now.Load()) }
	client := newClient(t, server.Network, server.Addr)
	old := newStore(t, client, redisstore.Config{Timeout: patient, Now: clock})
	young := newStore(t, client, redisstore.Config{Timeout: patient, Now: clock})
	strict, loose := limiter.PerHour(10), limiter.PerHour(20)
	total := 0
	for i := range 100 {
		s, l := old, strict
		if i%2 == 1 {
			s, l = young, loose
		}
		d, err := s.Take(t.Context(), on("alice", l, 1))
		require.NoError(t, err)
		if d.Allowed() {
			total++
		}
		now.Add(int64(time.Second))
	}
	assert.Equal(t, 10, total, "the stricter clamps")
}

func TestTake_WorksWithTheRightsThatAreDocumented(t *testing.T) {
	server := redistest.Start(t)
	server.Do("ACL", "SETUSER", "ration", "on", "nopass", "resetkeys", "~ration:*", "-@all",
		"+evalsha", "+eval", "+time", "+get", "+mget", "+getrange", "+exists", "+set", "+setrange",
		"+pexpireat", "+del", "+hello")
	login := func() *redisstore.Store {
		client := redis.NewClient(&redis.Options{Network: server.Network, Addr: server.Addr,
			Username: "ration", Password: "any"})
		t.Cleanup(func() { _ = client.Close() })
		return newStore(t, client, redisstore.Config{Timeout: patient})
	}
	s := login()
	for _, l := range each {
		for range 2 {
			charges := on("alice", l, 1)
			allowed(t, s, charges)
			charges[0].Cost = -1
			require.NoError(t, s.Settle(t.Context(), charges))
			allowed(t, s, on("alice", l, 1))
		}
		require.NoError(t, s.Reset(t.Context(), on("alice", l, 1)))
	}
	server.Do("ACL", "SETUSER", "ration", "-time")
	_, err := login().Take(t.Context(), on("alice", each[0], 1))
	failed(t, err, storekit.Other)
	require.Regexp(t, "can't run this command|no permissions to run the 'time' command", err)
}

// number reads a double of a stored value.
func number(t *testing.T, value string, at int) float64 {
	t.Helper()
	require.GreaterOrEqual(t, len(value), at+8)
	return math.Float64frombits(binary.LittleEndian.Uint64([]byte(value[at:])))
}

func TestTake_KeysNeverExpireBeforeTheirAccountsAreFull(t *testing.T) {
	server, s := run(t)
	l := limiter.Limit{Tokens: 7, Per: 11 * time.Second, Burst: 500}
	for i := range int64(300) {
		charges := on("alice", l, 1+i%3)
		_, err := s.Take(t.Context(), charges)
		require.NoError(t, err)
		value := server.Do("GET", keyOf("alice")).(string)
		full := number(t, value, len(value)-16) + number(t, value, len(value)-8)/7 // in microseconds
		expires := float64(server.Do("PEXPIRETIME", keyOf("alice")).(int64)) * 1000
		require.GreaterOrEqual(t, expires, full)
		require.LessOrEqual(t, expires, full+2001)
	}
}

// Where one account of several cannot be corrected none is, wherever it stands,
// so that who tries again corrects the others once.
// Each account is read twice, and counted once.
// 321 units of one limit times a token of the other are 2^53+1, which a double
// rounds to 2^53.
func TestTake_ABalanceIsCarriedOverWithoutRounding(t *testing.T) {
	const token = 28059810762433 * time.Microsecond
	var now atomic.Int64
	server := redistest.Start(t)
	s := newStore(t, newClient(t, server.Network, server.Addr), redisstore.Config{
		Timeout: patient, Now: func() time.Time { return time.UnixMicro(now.Load()) },
	})
	allowed(t, s, on("alice", limiter.Limit{Tokens: 1, Per: 3 * token}, 1))
	now.Store(321)
	d, err := s.Take(t.Context(), on("alice", limiter.Limit{Tokens: 1, Per: token}, 1))
	require.NoError(t, err)
	assert.Equal(t, token-107*time.Microsecond, d.RetryAfter)
}
