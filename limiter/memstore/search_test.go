package memstore

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
)

// To wait for a busy shard could be a deadlock.
func TestStore_TheSearchSkipsBusyShards(t *testing.T) {
	c := newSmallStore(t, 1)
	full := c.inOtherShard("x", true)
	own, _ := c.locate("x")
	number, name := c.locate(full)
	c.take(on("a", full, "", 1))
	c.now = c.now.Add(time.Hour)
	for i := range c.shards {
		if i != own {
			c.shards[i].mu.Lock()
		}
	}
	for i := range 2000 { // enough for the searches to reach every shard
		c.takeUnaudited(on("a", "x", strconv.Itoa(i), 1))
	}
	require.NotNil(t, c.shards[number].find(name))
	c.requireOverflowTakes(2000)
	for i := range c.shards {
		if i != own {
			c.shards[i].mu.Unlock()
		}
	}
}

// If there is only one shard, the search looks through the blocks of that.
func TestStore_TheSearchGoesThroughItsOwnShard(t *testing.T) {
	for range 10 {
		now := time.Unix(1000, 0)
		s := newStore(Config{MaxAccounts: 8000, Now: func() time.Time { return now }}, 1)
		s.Capabilities().Plan([]string{"a"}, nil)
		const held = 300                        // of four blocks
		s.classes.regions[0].cap = held + 1 + 1 // room for one more, and for an overflow account
		take := func(route string, l limiter.Limit) {
			charge := on("a", "x", route, 1)
			charge.Limit = l
			_, err := s.Take(t.Context(), []limiter.Charge{charge})
			require.NoError(t, err)
		}
		take("soon", limiter.PerSecond(1))
		for i := range held {
			take(strconv.Itoa(i), limiter.PerHour(1))
		}
		require.Zero(t, s.overflowTakes.Load())
		now = now.Add(time.Second)
		take("new", limiter.PerHour(1))
		require.Zero(t, s.overflowTakes.Load(), "one is full again")
		take("newer", limiter.PerHour(1))
		require.EqualValues(t, 1, s.overflowTakes.Load())
		audit(t, s)
	}
}

// A search looks through the block of the new account and then through eight that its
// fingerprint chooses, so that Take searches where Peek did. It stops when it has room.
func TestStore_TheSearchGoesThroughEightBlocks(t *testing.T) {
	now := time.Unix(1000, 0)
	s := newStore(Config{MaxAccounts: 8000, Now: func() time.Time { return now }}, 1)
	s.Capabilities().Plan([]string{"a"}, nil)
	const held = 3000
	s.classes.regions[0].cap = held + 1
	take := func(route string, l limiter.Limit) []limiter.Charge {
		charges := []limiter.Charge{on("a", "x", route, 1)}
		charges[0].Limit = l
		_, err := s.Take(t.Context(), charges)
		require.NoError(t, err)
		return charges
	}
	for i := range held - 2 {
		take(strconv.Itoa(i), limiter.PerHour(1))
	}
	sh := &s.shards[0]
	require.Greater(t, len(sh.directory), 2*searchBlocks)
	soon := []string{"one", "other"}
	found := 0
	for i := range 300 {
		for _, route := range soon {
			take(route, limiter.PerSecond(1))
		}
		now = now.Add(time.Second)
		var dropped []string
		look := func(b block) {
			for _, route := range soon {
				if b.index(nameOf(s, route)) > 0 && !slices.Contains(dropped, route) {
					dropped = append(dropped, route)
				}
			}
		}
		name := nameOf(s, "new "+strconv.Itoa(i))
		look(sh.directory[sh.at(name)])
		for i := range uint32(8) {
			if len(dropped) == 0 {
				look(sh.directory[(name.low>>8+i)%uint32(len(sh.directory))])
			}
		}
		before := s.overflowTakes.Load()
		added := take("new "+strconv.Itoa(i), limiter.PerHour(1))
		require.Equal(t, len(dropped) == 0, s.overflowTakes.Load() > before)
		for _, route := range soon {
			require.Equal(t, slices.Contains(dropped, route), sh.find(nameOf(s, route)) == nil)
		}
		found += len(dropped)
		require.NoError(t, s.Reset(t.Context(), added))
	}
	require.Positive(t, found)
	audit(t, s)
}

// nameOf returns the fingerprint of the account of x in budget a, for a route.
func nameOf(s *Store, route string) fingerprint {
	return s.hash.name(on("a", "x", route, 0).Key)
}
