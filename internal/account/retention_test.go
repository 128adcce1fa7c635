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

// A full array is used again where half of it or more has left, else a larger one
// is made: no entry is moved often.
func TestLog_MovesEntriesRarely(t *testing.T) {
	const full = 8
	for _, test := range []struct {
		held, left int
		want       string
	}{
		{full, 3, "a larger array"},
		{full, 4, "moved to the front"},
		{full, full, "moved to the front"},
		{full - 1, 5, "where they were"},
		{full - 1, 0, "where they were"},
	} {
		g := &Log{entries: make([]entry, 0, full)}
		for i := range test.held {
			g.add(int64(i), 100, 1, 0)
		}
		old := g.entries[:full]
		g.add(int64(100+test.left-1), 100, 1, 0)
		require.Len(t, g.entries, test.held-test.left+1)
		got := "a larger array"
		switch &g.entries[0] {
		case &old[0]:
			got = "moved to the front"
			if test.left == 0 {
				got = "where they were"
			}
		case &old[test.left%full]:
			got = "where they were"
		}
		assert.Equal(t, test.want, got, "%d of %d have left", test.left, test.held)
		assert.EqualValues(t, test.held-test.left+1, g.used(int64(100+test.left-1), 100))
	}
}

func TestLog_AnEntryOfALaterInstantHasNotLeft(t *testing.T) {
	assert.False(t, gone(5, 3, 1))
	assert.False(t, gone(5, 5, 1))
	assert.True(t, gone(5, 6, 1))
}
