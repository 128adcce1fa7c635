package memstore

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLockSet_LocksWhatWasAddedAndNoMore(t *testing.T) {
	s, err := New(Config{})
	require.NoError(t, err)
	for _, numbers := range [][]uint8{
		{}, {0}, {255}, {7, 7}, {0, 63, 64, 65, 127, 128, 191, 192, 255}, {200, 3, 200, 3}, {65, 1},
	} {
		var set lockSet
		want := map[int]bool{}
		for _, number := range numbers {
			s.addLock(&set, number)
			want[int(number)] = true
		}
		require.Equal(t, len(want), set.n)
		require.Equal(t, len(want) == 1, set.only != nil, "%v", numbers)
		if set.only != nil {
			require.Same(t, &s.shards[numbers[0]], set.only)
		}
		s.lock(&set)
		for i := range s.shards {
			free := s.shards[i].mu.TryLock()
			assert.Equal(t, !want[i], free, "shard %d of %v", i, numbers)
			if free {
				s.shards[i].mu.Unlock()
			}
		}
		last := -1
		s.each(&set, func(sh *shard) {
			for i := range s.shards {
				if sh == &s.shards[i] {
					assert.Less(t, last, i, "in ascending order")
					last = i
				}
			}
		})
		s.unlock(&set)
		for i := range s.shards {
			require.True(t, s.shards[i].mu.TryLock(), "shard %d of %v", i, numbers)
			s.shards[i].mu.Unlock()
		}
	}
}

// A cache line holds 64 bytes, on most machines, and begins anywhere in a Store.
func TestShard_SharesNoCacheLineWithItsNeighbour(t *testing.T) {
	var s shard
	end := unsafe.Offsetof(s.freeLogs) + unsafe.Sizeof(s.freeLogs)
	assert.GreaterOrEqual(t, unsafe.Sizeof(s)-end, uintptr(64))
}
