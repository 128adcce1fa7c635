package account

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLog_ForgetsWhatHasLeft(t *testing.T) {
	var g *Log
	for now := range int64(10_000) {
		g = g.add(now, 10, 3, 0)
		require.LessOrEqual(t, len(g.entries), 10)
		require.LessOrEqual(t, cap(g.entries), 64)
		require.EqualValues(t, 3*min(now+1, 10), g.used(now, 10))
	}
	assert.Len(t, g.entries, 10)
}

// Where a log may keep few entries, the latest leaves later than it might, never
// earlier.
func TestLog_OfFewEntriesIsStricter(t *testing.T) {
	var g *Log
	for now := range int64(3) {
		g = g.add(now, 10, 1, 2)
	}
	assert.Equal(t, []entry{{0, 1}, {2, 3}}, g.entries)
	assert.EqualValues(t, 3, g.used(9, 10))
	assert.EqualValues(t, 2, g.used(11, 10), "the second leaves with the third")
	g = g.add(10, 10, 5, 2)
	assert.EqualValues(t, 7, g.used(11, 10))
	assert.EqualValues(t, 5, g.used(12, 10), "there was room for another entry")
	g = g.add(30, 10, 1, 2)
	g = g.add(31, 10, 1, 2)
	assert.EqualValues(t, 1, g.used(40, 10), "what has left takes no room")
}
