package memstore

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/account"
	"github.com/ration-go/ration/limiter"
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

// Two fingerprints with one equal word are different.
func TestTable_ComparesBothWordsOfAFingerprint(t *testing.T) {
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

// fit returns the smallest size of a block for n records, of the sizes that fill the
// allocator's classes: one slot is the header, and at most 7 of 8 others are used.
func fit(n int) int {
	for _, size := range []int{16, 32, 48, 64, 96, 128} {
		if n <= 7*(size-1)/8 {
			return size
		}
	}
	panic("a block is split before")
}

func TestTable_BlocksGrowInStepsAndSplitInTwo(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		var s shard
		add := func() {
			r := record{high: random.Uint64(), low: random.Uint32(), class: 1}
			s.add(r, 0, func(block) {})
		}
		for n := range 111 {
			add()
			require.Len(t, s.directory, 1)
			require.Equal(t, n+1, s.directory[0].count())
			require.Len(t, s.directory[0], fit(n+1))
		}
		held := map[uint64]int{} // by the lowest bit of their names
		for _, r := range s.directory[0][1:] {
			if r.class != 0 {
				held[r.high&1]++
			}
		}
		add()
		require.Len(t, s.directory, 2)
		for half, b := range s.directory {
			require.Len(t, b, fit(held[uint64(half)]+1))
		}
	}
}

func TestTable_ABlockThatIsMostlyEmptyShrinks(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	var s shard
	for range 100 {
		s.add(record{high: random.Uint64(), low: 1, class: 1}, 0, func(block) {})
	}
	require.Len(t, s.directory[0], 128)
	for s.directory[0].count() > 32 {
		for i, r := range s.directory[0] {
			if i > 0 && r.class != 0 {
				s.directory[0].remove(i)
				break
			}
		}
		s.shrink(0)
		require.Len(t, s.directory[0], 128, "it is a quarter full")
	}
	for i, r := range s.directory[0] {
		if i > 0 && r.class != 0 {
			s.directory[0].remove(i)
			break
		}
	}
	s.shrink(0)
	require.Len(t, s.directory[0], fit(2*31), "room for as many again")
	require.Equal(t, 31, s.directory[0].count())
}

// The fingerprints of one block have equal low bits, and maybe equal high bits, but
// their searches begin at all slots.
func TestBlock_SearchesBeginEverywhere(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for _, size := range []int{smallestBlock, largestBlock} {
		b := newBlock(size, 8)
		begun := map[int]int{}
		const names = 100_000
		for range names {
			begun[b.home(fingerprint{high: random.Uint64() << 16 >> 8})]++
		}
		for i := 1; i < size; i++ {
			share := begun[i] * (size - 1)
			require.InDelta(t, names, share, names/4, "place %d of %d", i, size)
		}
		require.Len(t, begun, size-1)
	}
}

// Full accounts are dropped before a block is replaced. It is replaced only if more than
// three quarters are used after that.
func TestTable_ABlockThatDropsEnoughStays(t *testing.T) {
	for _, test := range []struct {
		left   int
		stays  bool
		length int
	}{{0, true, 16}, {11, true, 16}, {12, false, 16}, {13, false, 32}} {
		random := rand.New(rand.NewPCG(1, 1))
		var s shard
		drops := 0
		add := func() {
			r := record{high: random.Uint64(), low: 1, class: 1}
			s.add(r, 0, func(b block) {
				drops++
				for i := 1; b.count() > test.left; {
					if b[i].class == 0 {
						i++
						continue
					}
					b.remove(i)
				}
			})
		}
		for range 13 { // 7/8 of 15
			add()
		}
		require.Zero(t, drops)
		old := s.directory[0]
		add()
		require.Equal(t, 1, drops)
		require.Equal(t, test.left+1, s.directory[0].count())
		require.Len(t, s.directory[0], test.length)
		require.Equal(t, test.stays, &old[0] == &s.directory[0][0], "%d are left", test.left)
	}
}

// The header of a block holds an instant before which none of its accounts is full.
// Before that instant, sweep does not look at the records.
func TestBlock_HeaderHoldsWhenTheFirstIsFull(t *testing.T) {
	store, err := New(Config{})
	require.NoError(t, err)
	c := store.classes
	number := c.pin(charge("a", "user", limiter.PerSecond(1)), false).number
	var s shard
	s.add(record{high: 1, class: number, state: account.State{At: 30}}, 30, func(block) {})
	s.add(record{high: 2, class: number, state: account.State{At: 20}}, 20, func(block) {})
	b := s.directory[0]
	require.EqualValues(t, 20, b[0].state.At)
	s.sweep(b, 19, c)
	require.Equal(t, 2, b.count())
	s.sweep(b, 20, c)
	require.Equal(t, 1, b.count())
	require.EqualValues(t, 30, b[0].state.At)
	b[0].state.At = 40
	s.sweep(b, 39, c)
	require.Equal(t, 1, b.count(), "it is not looked at")
	s.sweep(b, 40, c)
	require.Zero(t, b.count())
}

// Records that all belong to one half do not make it larger than any block.
func TestTable_ABlockThatSplitsUnevenlyStaysInSize(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	var s shard
	for range 112 {
		s.add(record{high: random.Uint64() << 2, low: 1, class: 1}, 0, func(block) {})
	}
	require.Len(t, s.directory, 8, "of which the first two bits tell nothing apart")
	for _, b := range s.directory {
		require.LessOrEqual(t, len(b), largestBlock)
	}
}

func TestTable_TheSmallestBlockStays(t *testing.T) {
	var s shard
	s.add(record{high: 1, low: 1, class: 1}, 0, func(block) {})
	old := s.directory[0]
	s.shrink(0)
	require.Same(t, &old[0], &s.directory[0][0])
}
