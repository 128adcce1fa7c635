package memstore

import (
	"math"

	"github.com/ration-go/ration/internal/account"
)

// record is one account. The class 0 is a free place.
type record struct {
	high  uint64 // the fingerprint of its key
	low   uint32
	class uint32 // the number of its limit; 0 is a free place
	state account.State
}

func (r *record) fingerprint() fingerprint { return fingerprint{r.high, r.low} }

// block is a small hash table with linear probing. Its first record is a header
// without a class: high counts the records, low is the depth, the number of hash
// bits that all its records share, and state.At is an instant before which none
// of its accounts is full.
type block []record

const (
	smallestBlock = 16
	largestBlock  = 128
)

func newBlock(size int, depth uint32) block {
	b := make(block, size)
	b[0].low = depth
	b[0].state.At = math.MaxInt64
	return b
}

func (b block) count() int    { return int(b[0].high) }
func (b block) depth() uint32 { return b[0].low }

// expect notes that an account is full at the instant at.
func (b block) expect(at int64) { b[0].state.At = min(b[0].state.At, at) }

// roomy reports whether one more record keeps the block at most 7/8 full.
func (b block) roomy() bool { return 8*(b.count()+1) <= 7*(len(b)-1) }

// home returns the place where the search for f begins.
func (b block) home(f fingerprint) int {
	return 1 + int(uint64(uint32(f.high>>24))*uint64(len(b)-1)>>32)
}

// next returns the place after i.
func (b block) next(i int) int {
	if i++; i < len(b) {
		return i
	}
	return 1
}

// index returns the place of the record of f, or 0.
func (b block) index(f fingerprint) int {
	for i := b.home(f); b[i].class != 0; i = b.next(i) {
		if b[i].high == f.high && b[i].low == f.low {
			return i
		}
	}
	return 0
}

// add puts a record, which is not there yet, into a roomy block.
func (b block) add(r record) {
	i := b.home(r.fingerprint())
	for b[i].class != 0 {
		i = b.next(i)
	}
	b[i] = r
	b[0].high++
}

// remove takes the record at i out and moves those up that probed past it.
func (b block) remove(i int) {
	b[0].high--
	for hole, j := i, b.next(i); ; j = b.next(j) {
		if b[j].class == 0 {
			b[hole] = record{}
			return
		}
		// The record at j may move into the hole unless its home lies between.
		if home := b.home(b[j].fingerprint()); !between(hole, home, j) {
			b[hole] = b[j]
			hole = j
		}
	}
}

// between reports whether home lies in the cyclic range (hole, j].
func between(hole, home, j int) bool {
	if hole < j {
		return hole < home && home <= j
	}
	return hole < home || home <= j
}

// table is the blocks of one shard, found by the low bits of the fingerprint
// (extendible hashing): a block that is full grows, up to 128 records, and then
// splits in two. That copies one block, and the directory if it must double.
type table struct {
	directory []block // 2^depth places; blocks of less depth stand in several
	depth     uint32
}

// at returns the number of the block of f.
func (t *table) at(f fingerprint) int { return int(f.high & uint64(len(t.directory)-1)) }

func (t *table) find(f fingerprint) *record {
	if len(t.directory) == 0 {
		return nil
	}
	b := t.directory[t.at(f)]
	if i := b.index(f); i > 0 {
		return &b[i]
	}
	return nil
}

// add puts a record, which is not there yet and is full at the instant full, into
// the table, in whose block drop removes what is full again.
func (t *table) add(r record, full int64, drop func(block)) {
	if len(t.directory) == 0 {
		t.directory = []block{newBlock(smallestBlock, 0)}
	}
	for {
		i := t.at(r.fingerprint())
		b := t.directory[i]
		if b.roomy() {
			b.add(r)
			b.expect(full)
			return
		}
		if drop(b); 8*b.count() > 6*(len(b)-1) {
			t.grow(i)
		}
	}
}

// grow makes room in the block at i: it gets larger, or splits.
func (t *table) grow(i int) {
	old := t.directory[i]
	if len(old) < largestBlock {
		t.put(i, sized(old.count()+1, old.depth()), old)
		return
	}
	depth := old.depth()
	if depth == t.depth {
		t.directory = append(t.directory, t.directory...)
		t.depth++
	}
	bit := uint64(1) << depth
	ones := 0
	for j := range old[1:] {
		if r := &old[1+j]; r.class != 0 && r.high&bit != 0 {
			ones++
		}
	}
	low := i & int(bit-1)
	t.put(low, sized(old.count()-ones+1, depth+1), old)
	t.put(low|int(bit), sized(ones+1, depth+1), old)
}

// sized returns an empty block with room for n records and some more.
func sized(n int, depth uint32) block {
	size := smallestBlock
	for size < largestBlock && 8*n > 7*(size-1) {
		size += 16 // sizes that fill the allocator's classes: 16 to 64, 96, 128
		if size > 64 {
			size += 16
		}
	}
	return newBlock(size, depth)
}

// put places a fresh block at i, with those records of old that belong there.
func (t *table) put(i int, fresh, old block) {
	step := 1 << fresh.depth()
	fresh.expect(old[0].state.At)
	for j := range old[1:] {
		if r := old[1+j]; r.class != 0 && int(r.high)&(step-1) == i&(step-1) {
			fresh.add(r)
		}
	}
	for j := i & (step - 1); j < len(t.directory); j += step {
		t.directory[j] = fresh
	}
}

// shrink makes the block at i smaller where it is mostly empty.
func (t *table) shrink(i int) {
	if old := t.directory[i]; len(old) > smallestBlock && 4*old.count() < len(old) {
		t.put(i, sized(2*old.count(), old.depth()), old)
	}
}
