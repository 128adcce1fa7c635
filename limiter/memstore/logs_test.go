package memstore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
)

// An account whose limit becomes another rolling log keeps a whole one where
// there is room for what it needs more, or it needs no more.
func TestStore_AChangeToALogThatHasRoomKeepsAllEntries(t *testing.T) {
	log := func(tokens int64, per time.Duration) limiter.Limit {
		return limiter.Limit{Algorithm: limiter.RollingLog, Tokens: tokens, Per: per}
	}
	for _, test := range []struct {
		name          string
		first, second limiter.Limit
		room          int64 // when the limit has changed
		places        int64
	}{
		{"for just what it needs more", log(4, time.Hour), log(8, time.Hour), 5, 5},
		{"for less than that", log(4, time.Hour), log(8, time.Hour), 4, 2},
		{"for none, where it needs no more", log(8, time.Hour), log(8, time.Minute), 1, 5},
		{"for none, where it needs less", log(8, time.Hour), log(4, time.Hour), 1, 3},
		{"for none, where it is no log", log(8, time.Hour), limiter.PerHour(8), 1, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCrowded(t, 1000)
			charge := on("a", "x", "", 2)
			charge.Limit = test.first
			c.take(charge)
			p := c.classes.pool(poolID{"a", false})
			p.region.cap -= 2 * (p.share() - test.room)
			require.Equal(t, test.room, p.share())
			charge.Limit = test.second
			d, _ := c.take(charge)
			assert.True(t, d.Allowed())
			assert.Equal(t, test.second.Tokens-4, d.Remaining)
			assert.Equal(t, test.places, p.live.Load())
		})
	}
}
