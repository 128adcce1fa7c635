package memstore

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
)

// To wait for a shard that is busy could be for ever.
func TestStore_TheSearchLeavesBusyShardsAlone(t *testing.T) {
	c := newCrowded(t, 1)
	full := c.elsewhere("x", true)
	own, _ := c.home("x")
	number, name := c.home(full)
	c.take(on("a", full, "", 1))
	c.now = c.now.Add(time.Hour)
	for i := range c.shards {
		if i != own {
			c.shards[i].mu.Lock()
		}
	}
	for i := range 2000 { // names come to every shard in that time
		c.hurry(on("a", "x", strconv.Itoa(i), 1))
	}
	require.NotNil(t, c.shards[number].find(name))
	c.requireOverflowTakes(2000)
	for i := range c.shards {
		if i != own {
			c.shards[i].mu.Unlock()
		}
	}
}

// Where there is one shard only, the search goes through its blocks.
func TestStore_TheSearchGoesThroughItsOwnShard(t *testing.T) {
	for range 10 {
		now := time.Unix(1000, 0)
		s := newStore(Config{MaxAccounts: 8000, Now: func() time.Time { return now }}, 1)
		s.Plan([]string{"a"})
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
