package memstore

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/account"
)

// A table must hold what a map holds, through growth, splits, removals that
// wrap around, sweeps and shrinking.
func TestTable_HoldsWhatAMapHolds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var s shard
	want := map[fingerprint]account.State{}
	var names []fingerprint
	keep := func(block) {}
	for range 200_000 {
		switch n := random.IntN(10); {
		case n < 5 || len(names) == 0:
			f := fingerprint{random.Uint64(), random.Uint32()}
			state := account.State{At: random.Int64(), Rest: random.Uint64()}
			s.add(record{high: f.high, low: f.low, class: 1, state: state}, 0, keep)
			want[f] = state
			names = append(names, f)
		case n < 9:
			i := random.IntN(len(names))
			f := names[i]
			b := s.directory[s.at(f)]
			if at := b.index(f); at > 0 {
				_, known := want[f]
				require.True(t, known)
				b.remove(at)
				delete(want, f)
			}
			names[i] = names[len(names)-1]
			names = names[:len(names)-1]
		default:
			s.shrink(random.IntN(len(s.directory)))
		}
	}
	count := 0
	for i, b := range s.directory {
		if i < 1<<b.depth() {
			count += b.count()
		}
	}
	require.Equal(t, len(want), count)
	require.Greater(t, len(want), 10*largestBlock, "the test must split blocks")
	for f, state := range want {
		r := s.find(f)
		require.NotNil(t, r)
		require.Equal(t, state, r.state)
	}
	for range 10_000 {
		require.Nil(t, s.find(fingerprint{random.Uint64(), random.Uint32()}))
	}
}

// Both words of a fingerprint count: a key that shares one of them with another
// is another key.
func TestTable_TellsFingerprintsApartByBothWords(t *testing.T) {
	var s shard
	const high = 0x1234_5678_9abc_def0
	names := []fingerprint{{high, 1}, {high, 2}, {high ^ 1<<60, 1}, {high ^ 1<<20, 1}}
	for i, f := range names {
		require.Nil(t, s.find(f), "%d", i)
		s.add(record{high: f.high, low: f.low, class: uint32(i + 1)}, 0, func(block) {})
	}
	for i, f := range names {
		require.EqualValues(t, i+1, s.find(f).class)
	}
}
