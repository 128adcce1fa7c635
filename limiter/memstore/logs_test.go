package memstore

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
)

// reserveForLogs makes budget a reserve the places that overflow logs need, and adds as
// many to the cap.
func (c *smallStore) reserveForLogs() *pool {
	p := c.classes.pool(poolID{"a", false})
	p.overflowSize.Store(2)
	p.region.cap += 2 * shardCount
	return p
}

// A log grows while its share has room. Then it merges entries, which makes it stricter,
// never looser.
func TestStore_ALogGrowsWhileThereIsRoom(t *testing.T) {
	const tokens = 40
	log := limiter.Limit{Algorithm: limiter.RollingLog, Tokens: tokens, Per: time.Hour}
	for _, test := range []struct{ room, places int64 }{
		{100, 10}, {10, 10}, // for 2, 4, 7, 11, then 17 entries
		{9, 7}, {7, 7}, {6, 5}, {3, 3}, {2, 2},
	} {
		t.Run(strconv.FormatInt(test.room, 10), func(t *testing.T) {
			c := newSmallStore(t, test.room)
			p := c.reserveForLogs()
			charge := on("a", "x", "", 1)
			charge.Limit = log
			for i := range int64(17) {
				d, _ := c.take(charge)
				require.True(t, d.Allowed())
				require.EqualValues(t, tokens-1-i, d.Remaining)
				c.now = c.now.Add(time.Minute)
			}
			c.requireOverflowTakes(0)
			assert.Equal(t, test.places, p.live.Load())
			c.now = c.now.Add(time.Hour)
			assert.Zero(t, c.Stats().Accounts)
		})
	}
}

// An account that becomes a log, or another log, keeps what was used. It takes at
// most one place more, which may be above the share.
func TestStore_AChangeToALogKeepsWhatWasUsed(t *testing.T) {
	log := func(tokens int64, per time.Duration) limiter.Limit {
		return limiter.Limit{Algorithm: limiter.RollingLog, Tokens: tokens, Per: per}
	}
	for _, test := range []struct {
		name          string
		first, second limiter.Limit
		places        int64
	}{
		{"a longer log", log(4, time.Hour), log(8, time.Hour), 2},
		{"a log of another length", log(8, time.Hour), log(8, time.Minute), 2},
		{"a bucket before", limiter.PerHour(8), log(8, time.Hour), 2},
		{"a bucket then", log(8, time.Hour), limiter.PerHour(8), 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newSmallStore(t, 1000)
			charge := on("a", "x", "", 2)
			charge.Limit = test.first
			c.take(charge)
			p := c.classes.pool(poolID{"a", false})
			p.region.cap = 0
			charge.Limit = test.second
			d, _ := c.take(charge)
			assert.True(t, d.Allowed())
			assert.Equal(t, test.second.Tokens-4, d.Remaining)
			assert.Equal(t, test.places, p.live.Load())
		})
	}
}
