package memstore_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/kind"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
)

// less returns n, or with -short a tenth of it.
func less(n int) int {
	if testing.Short() {
		return n / 10
	}
	return n
}

// floods returns how many keys an attacker invents: ten million, or fewer with -short or
// the race detector.
func floods() int {
	if testing.Short() {
		return 400_000 / slowdown
	}
	return 10_000_000 / slowdown
}

// clock is a virtual clock that many stores share.
type clock struct{ ns atomic.Int64 }

func (c *clock) now() time.Time          { return time.Unix(0, c.ns.Load()) }
func (c *clock) advance(d time.Duration) { c.ns.Add(int64(d)) }

// caller takes from one account of a store.
type caller struct {
	store *memstore.Store
	one   [1]limiter.Charge
}

func newCaller(s *memstore.Store, budget, kind string, l limiter.Limit) *caller {
	return &caller{s, [1]limiter.Charge{{
		Key:   limiter.Key{Budget: budget, Principal: limiter.Principal{Kind: kind}},
		Limit: l, Cost: 1,
	}}}
}

func (c *caller) take(t *testing.T, id string) limiter.Decision {
	c.one[0].Key.Principal.ID = id
	d, err := c.store.Take(context.Background(), c.one[:])
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A flood of invented keys of one budget changes nothing for the accounts that
// were not full before it, nor for another budget, and memory stays flat.
func TestStore_FloodMovesNobodyElse(t *testing.T) {
	known, maxAccounts := less(10_000), less(100_000)
	var c clock
	limit := limiter.Limit{Tokens: 10, Per: time.Hour}
	stores := map[bool]*memstore.Store{}
	for _, flooded := range []bool{false, true} {
		s, err := memstore.New(memstore.Config{MaxAccounts: maxAccounts, Now: c.now})
		require.NoError(t, err)
		s.Capabilities().Plan([]string{"flooded", "beside"}, nil)
		stores[flooded] = s
	}
	type pair struct{ quiet, flooded *caller }
	pairs := map[string]pair{}
	for _, budget := range []string{"flooded", "beside"} {
		pairs[budget] = pair{
			newCaller(stores[false], budget, "user", limit),
			newCaller(stores[true], budget, "user", limit),
		}
	}
	same := func(budget, id string) {
		p := pairs[budget]
		if want, got := p.quiet.take(t, id), p.flooded.take(t, id); want != got {
			t.Fatalf("%s of %s: %+v, without the flood %+v", id, budget, got, want)
		}
	}
	for i := range known {
		for range i%9 + 1 {
			same("flooded", fmt.Sprint("known-", i))
		}
	}
	attacker := newCaller(stores[true], "flooded", "user", limit)
	flood := func(from, to int) {
		id := make([]byte, 0, 32)
		for i := from; i < to; i++ {
			id = fmt.Appendf(id[:0], "invented-%d", i)
			attacker.take(t, string(id))
			if i%500 == 0 {
				c.advance(time.Millisecond)
				same("flooded", fmt.Sprint("known-", i/500%known))
				same("beside", fmt.Sprint("beside-", i/500%known))
			}
		}
	}
	flood(0, 2*maxAccounts)
	before := heap()
	flood(2*maxAccounts, floods())
	grown := heap() - before
	require.Less(t, grown, int64(1<<20), "the heap grew with the flood")
	stats := stores[true].Stats()
	require.LessOrEqual(t, stats.Accounts, int64(maxAccounts))
	require.Positive(t, stats.OverflowTakes)
	t.Logf("%d keys: %d accounts, %d takes on overflow accounts, heap %+d bytes",
		floods(), stats.Accounts, stats.OverflowTakes, grown)
}

// Addresses never displace the authenticated: principals that were idle before a
// flood of addresses have their first requests allowed during it.
func TestStore_AddressesDisplaceNoPrincipal(t *testing.T) {
	idle, maxAccounts := less(10_000), less(100_000)
	var c clock
	s, err := memstore.New(memstore.Config{MaxAccounts: maxAccounts, Now: c.now})
	require.NoError(t, err)
	limit := limiter.Limit{Tokens: 1, Per: time.Hour}
	attacker := newCaller(s, "api", kind.Address, limit)
	user := newCaller(s, "api", "user", limit)
	allowed, step := 0, floods()/idle
	id := make([]byte, 0, 32)
	for i := range floods() {
		id = fmt.Appendf(id[:0], "%d.%d.%d.%d", i>>24, i>>16&255, i>>8&255, i&255)
		attacker.take(t, string(id))
		if i%step == 0 {
			if user.take(t, fmt.Sprint("user-", i/step)).Allowed() {
				allowed++
			}
		}
	}
	require.GreaterOrEqual(t, allowed*1000, idle*999, "of %d first requests", idle)
	t.Logf("%d of %d first requests allowed during the flood", allowed, idle)
}

// At the cap, an account that is used up stays so, and full ones make room.
func TestStore_AtTheCap(t *testing.T) {
	var c clock
	s, err := memstore.New(memstore.Config{MaxAccounts: 4000, Now: c.now})
	require.NoError(t, err)
	s.Capabilities().Plan([]string{"api"}, nil)
	limit := limiter.Limit{Tokens: 1, Per: time.Minute}
	user := newCaller(s, "api", "user", limit)
	require.True(t, user.take(t, "victim").Allowed())
	for i := range 20_000 {
		user.take(t, fmt.Sprint("fresh-", i))
	}
	require.False(t, user.take(t, "victim").Allowed(), "the flood reset a spent account")
	stats := s.Stats()
	require.LessOrEqual(t, stats.Accounts, int64(3000), "three quarters of the cap")
	require.Greater(t, stats.OverflowTakes, int64(15_000))

	c.advance(time.Minute)
	for i := range 2000 {
		require.True(t, user.take(t, fmt.Sprint("later-", i)).Allowed(), "full accounts make room")
	}
	more := s.Stats().OverflowTakes - stats.OverflowTakes
	require.LessOrEqual(t, more, int64(20), "the bounded search missed full accounts")
	c.advance(time.Minute)
	require.Zero(t, s.Stats().Accounts, "all are full again")
}
