package account

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLog_ForgetsWhatHasLeft(t *testing.T) {
	var g *Log
	for now := range int64(10_000) {
		g = g.add(now, 10, 3, false)
		require.LessOrEqual(t, len(g.entries), 16)
		require.LessOrEqual(t, cap(g.entries), 16)
		require.EqualValues(t, 3*min(now+1, 10), g.used(now, 10))
	}
}

// A tight log holds the entries that it has room for. The latest leaves later than
// it might, never earlier.
func TestLog_ThatIsTightIsStricter(t *testing.T) {
	var g *Log
	for now := range int64(3) {
		g = g.add(now, 10, 1, true)
	}
	assert.Equal(t, []entry{{0, 1}, {2, 3}}, g.entries)
	assert.EqualValues(t, 3, g.used(9, 10))
	assert.EqualValues(t, 2, g.used(11, 10), "the second leaves with the third")
	g = g.add(10, 10, 5, true)
	assert.EqualValues(t, 7, g.used(11, 10))
	assert.EqualValues(t, 5, g.used(12, 10), "there was room for another entry")
	g = g.add(30, 10, 1, true)
	g = g.add(31, 10, 1, true)
	assert.EqualValues(t, 1, g.used(40, 10), "what has left takes no room")
	assert.Equal(t, smallestLog, cap(g.entries))
}

// A full array is used again if a quarter of it or more has left. The array grows
// if less has left, and shrinks if hardly any entry lives: no entry is moved often.
func TestLog_MovesEntriesRarely(t *testing.T) {
	const full = 16
	for _, test := range []struct {
		held, left int
		tight      bool
		size       int
	}{
		{held: full, left: 3, size: 13 + 6 + 1},
		{held: full, left: 3, tight: true, size: full},
		{held: full, left: 4, size: full},
		{held: full, left: full - 2, size: full},
		{held: full, left: full - 1, size: smallestLog},
		{held: full, left: full - 1, tight: true, size: smallestLog},
		{held: full, left: full, size: smallestLog},
		{held: full - 1, left: 0, size: full},
		{held: full - 1, left: full - 3, size: full},
		{held: full - 1, left: full - 2, size: smallestLog},
	} {
		l := Limit{Algorithm: RollingLog, Per: 100}
		g := &Log{entries: make([]entry, 0, full)}
		for i := range test.held {
			g.entries = append(g.entries, entry{int64(i), uint64(i + 1)})
		}
		old := &g.entries[:full][0]
		now := int64(100 + test.left - 1)
		a := Account{Limit: &l, Log: g, Tight: test.tight}
		if !test.tight {
			assert.Equal(t, test.size, a.LogRoomAfter(now), "%+v", test)
		}
		g.add(now, 100, 1, test.tight)
		assert.Equal(t, test.size, a.LogRoom(), "%+v", test)
		assert.Equal(t, test.size == full, old == &g.entries[0], "%+v", test)
		if test.held < full && test.size == full {
			assert.Len(t, g.entries, test.held+1, "no entry is moved while there is room: %+v", test)
		}
		assert.EqualValues(t, test.held-test.left+1, g.used(now, 100))
	}
}

func TestAccount_SaysWhatALogHasRoomFor(t *testing.T) {
	l := NewLimit(RollingLog, 5, 10, 5)
	a := Account{Limit: &l}
	assert.Zero(t, a.LogRoom())
	assert.Equal(t, smallestLog, a.LogRoomAfter(0))
	a.Debit(Uint128{}, 0, 1)
	assert.Equal(t, smallestLog, a.LogRoom())
	assert.Equal(t, smallestLog, a.LogRoomAfter(1))
	bucket := NewLimit(TokenBucket, 5, 10, 5)
	b := Account{Limit: &bucket}
	b.Debit(Uint128{}, 0, 1)
	under, _ := b.Under(&l, 0)
	assert.Equal(t, smallestLog, under.LogRoom())
}

// A debit afterwards grows no log that is tight.
func TestAccount_SettlesATightLogInItsRoom(t *testing.T) {
	l := NewLimit(RollingLog, 9, 10, 9)
	a := Account{Limit: &l, Tight: true}
	for at := range int64(4) {
		a.Debit(a.Used(at), at, 1)
	}
	a.Settle(5, 4, 2)
	assert.Equal(t, smallestLog, a.LogRoom())
	assert.EqualValues(t, 6, a.Used(9).Lo)
	assert.EqualValues(t, 5, a.Used(10).Lo)
	assert.EqualValues(t, 5, a.Used(13).Lo, "all leave with the latest")
	assert.Zero(t, a.Used(14).Lo)
}

func TestLog_AnEntryOfALaterInstantHasNotLeft(t *testing.T) {
	assert.False(t, gone(5, 3, 1))
	assert.False(t, gone(5, 5, 1))
	assert.True(t, gone(5, 6, 1))
}
