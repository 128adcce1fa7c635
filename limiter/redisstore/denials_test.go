package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/lab/redistest"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/redisstore"
	"github.com/ration-go/ration/limiter/storetest"
)

// counted is a client that counts commands, and lets virtual time pass before replies.
type counted struct {
	redisstore.Client
	commands atomic.Int64
	reply    func()
}

func (c *counted) Process(ctx context.Context, cmd redis.Cmder) error {
	c.commands.Add(1)
	err := c.Client.Process(ctx, cmd)
	if c.reply != nil {
		c.reply()
	}
	return err
}

// virtual returns a store with memory on a virtual clock.
func virtual(t testing.TB, client redisstore.Client, now func() time.Time) *redisstore.Store {
	s := newStore(t, client, redisstore.Config{Prefix: newPrefix(), Timeout: patient, Now: now})
	s.RememberBy(now)
	return s
}

func TestDenials_TheStoreKeepsThePromiseWithThem(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	h := harness(newClient(t, server.Network, server.Addr))
	h.New = func(t testing.TB, now func() time.Time) limiter.Store {
		if now == nil {
			now = time.Now
		}
		return virtual(t, newClient(t, server.Network, server.Addr), now)
	}
	for _, r := range storetest.Rules() {
		if r.Number == "R6" && r.Name == "several budgets" {
			continue // of a log that does not deny, Remaining is that of the last reply
		}
		t.Run(r.Number+"/"+r.Name, func(t *testing.T) { assert.NoError(t, r.Run(t, h)) })
	}
}

// small are limits that a trace of a second exhausts and sees refilled.
var small = []limiter.Limit{
	{Tokens: 3, Per: 20 * time.Millisecond}, {Tokens: 7, Per: 11 * time.Millisecond, Burst: 2},
	{Tokens: 1, Per: 300 * time.Millisecond, Burst: 2},
	{Tokens: 3, Per: 30 * time.Millisecond, Algorithm: limiter.FixedWindow},
	{Tokens: 3, Per: 40 * time.Millisecond, Algorithm: limiter.RollingLog},
}

// On the same trace of one process the same requests are allowed, and the others
// have the same waits.
func TestDenials_TheSameIsAllowedAsWithout(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := newClient(t, server.Network, server.Addr)
	hits := int64(0)
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 20))
		now := time.Unix(1_800_000_000, 0)
		clock := func() time.Time { return now }
		with := virtual(t, client, clock)
		without := newStore(t, client, redisstore.Config{Prefix: newPrefix(), Timeout: patient, Now: clock})
		var open [2][]limiter.Charge
		for range 200 {
			now = now.Add(time.Duration(r.IntN(4000)) * time.Microsecond)
			if len(open[0]) > 0 && r.IntN(12) == 0 {
				for i, s := range []*redisstore.Store{with, without} {
					c := open[i][:1]
					c[0].Cost = -c[0].Receipt.Taken
					require.NoError(t, s.Settle(t.Context(), c))
					open[i] = open[i][1:]
				}
				continue
			}
			var charges []limiter.Charge
			for i := range 1 + r.IntN(2) {
				at := (r.IntN(len(small)) + i) % len(small)
				c := on(fmt.Sprint(at), small[at], r.Int64N(4))[0]
				if r.IntN(30) == 0 { // a limit that changes, and comes back
					c.Limit = small[r.IntN(2)]
				}
				c.Shadow = len(charges) > 0 && r.IntN(4) == 0 && c.Key != charges[0].Key
				if len(charges) > 0 && c.Key == charges[0].Key {
					c.Limit, c.Shadow = charges[0].Limit, charges[0].Shadow
				}
				charges = append(charges, c)
			}
			same := slices.Clone(charges)
			got, err := with.Take(t.Context(), charges)
			require.NoError(t, err)
			want, err := without.Take(t.Context(), same)
			require.NoError(t, err)
			require.Equal(t, want.Outcome, got.Outcome, "seed %d", seed)
			require.Equal(t, want.RetryAfter, got.RetryAfter, "seed %d", seed)
			for i := range charges {
				require.Equal(t, same[i].Receipt, charges[i].Receipt)
				if charges[i].Receipt.Valid && charges[i].Receipt.Taken > 0 {
					open[0], open[1] = append(open[0], charges[i]), append(open[1], same[i])
				}
			}
		}
		hits += with.Capabilities().DeniedFromMemory()
	}
	t.Logf("%d denials from memory", hits)
	assert.Greater(t, hits, int64(500))
}

// A caller that waits for RetryAfter is allowed, if nobody else draws.
func TestDenials_NoWaitIsTooShort(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r := rand.New(rand.NewPCG(1, 20))
	now := time.Unix(1_800_000_000, 0)
	var trip time.Duration
	client := &counted{Client: newClient(t, server.Network, server.Addr), reply: func() { now = now.Add(trip) }}
	s := virtual(t, client, func() time.Time { return now })
	for trace := range traces {
		limit := small[r.IntN(len(small))]
		limit.Per += time.Duration(r.IntN(5000)) * time.Microsecond
		user, cost := fmt.Sprint(trace), 1+r.Int64N(limit.Capacity())
		var d limiter.Decision
		for {
			trip = time.Duration(r.IntN(3000)) * time.Microsecond
			var err error
			if d, err = s.Take(t.Context(), on(user, limit, cost)); d.Outcome == limiter.Deny {
				break
			}
			require.NoError(t, err)
		}
		now = now.Add(time.Duration(r.Int64N(int64(d.RetryAfter)+1)) / 2)
		again, err := s.Take(t.Context(), on(user, limit, cost))
		require.NoError(t, err)
		if again.Allowed() {
			continue
		}
		now = now.Add(again.RetryAfter)
		again, err = s.Take(t.Context(), on(user, limit, cost))
		require.NoError(t, err)
		require.Equal(t, limiter.Allow, again.Outcome, "trace %d: %v, cost %d", trace, limit, cost)
	}
	t.Logf("%d denials from memory, %d commands", s.Capabilities().DeniedFromMemory(), client.commands.Load())
	assert.Greater(t, s.Capabilities().DeniedFromMemory(), int64(traces)/4)
}

func TestDenials_AThousandInASecondAreFewCommands(t *testing.T) {
	server := redistest.Start(t)
	client := &counted{Client: newClient(t, server.Network, server.Addr)}
	s := newStore(t, client, redisstore.Config{Timeout: patient})
	denied := 0
	for range 1010 {
		d, err := s.Take(t.Context(), on("alice", limiter.PerHour(10), 1))
		require.NoError(t, err)
		if d.Outcome == limiter.Deny {
			denied++
		}
	}
	assert.Equal(t, 1000, denied)
	assert.LessOrEqual(t, client.commands.Load(), int64(20))
}

func TestDenials_MemoryIsFixed(t *testing.T) {
	accounts := 100_000
	if testing.Short() {
		accounts = 20_000
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	d := redisstore.NewMemory()
	for i := range accounts {
		d.Learn(limiter.Key{Budget: "a", Route: fmt.Sprint(i)}, limiter.PerHour(10))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	t.Logf("%d accounts, %d KiB", d.Len(), (int64(after.HeapAlloc)-int64(before.HeapAlloc))>>10)
	assert.LessOrEqual(t, d.Len(), 8192)
	assert.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(4<<20))
	runtime.KeepAlive(d)
}

func TestDenials_AllocateNothing(t *testing.T) {
	server := redistest.Start(t)
	s := newStore(t, newClient(t, server.Network, server.Addr), redisstore.Config{Timeout: patient})
	charges := on("alice", limiter.PerDay(1), 1)
	allowed(t, s, charges)
	deny := func() {
		if d, err := s.Take(t.Context(), charges); err != nil || d.Outcome != limiter.Deny {
			t.Error(d, err)
		}
	}
	deny()
	assert.Less(t, testing.AllocsPerRun(100, deny), 1.0)
}

func BenchmarkDenials(b *testing.B) {
	server := redistest.Start(b)
	s := newStore(b, newClient(b, server.Network, server.Addr), redisstore.Config{Timeout: patient})
	charges := on("alice", limiter.PerDay(1), 1)
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		_, _ = s.Take(ctx, charges)
	}
}
