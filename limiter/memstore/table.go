package memstore

import (
	"math"

	"github.com/ration-go/ration/internal/account"
)

// record is one account, or a free slot.
type record struct {
	high  uint64 // high and low are the fingerprint of its key
	low   uint32
	class uint32 // the number of its class; 0 is a free slot
	state account.State
}

func (r *record) fingerprint() fingerprint { return fingerprint{r.high, r.low} }

// block is a small hash table with linear probing. Its first record is a header: high
// is the number of records, low is the depth, which is the number of hash bits that
// all records share, and state.At is an instant before which no account is full.
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

// expectFull lowers the instant in the header to at, when an account will be full.
func (b block) expectFull(at int64) { b[0].state.At = min(b[0].state.At, at) }

// hasRoom reports whether the block is at most 7/8 full after one more record.
func (b block) hasRoom() bool { return 8*(b.count()+1) <= 7*(len(b)-1) }

// home returns the slot at which the search for f begins.
func (b block) home(f fingerprint) int {
	return 1 + int(uint64(uint32(f.high>>24))*uint64(len(b)-1)>>32)
}

// next returns the slot after i.
func (b block) next(i int) int {
	if i++; i < len(b) {
		return i
	}
	return 1
}

// index returns the slot of the record of f, or 0 if there is none.
func (b block) index(f fingerprint) int {
	for i := b.home(f); b[i].class != 0; i = b.next(i) {
		if b[i].high == f.high && b[i].low == f.low {
			return i
		}
	}
	return 0
}

// add adds a record that is not in the block yet. The block must have room.
func (b block) add(r record) {
	i := b.home(r.fingerprint())
	for b[i].class != 0 {
		i = b.next(i)
	}
	b[i] = r
	b[0].high++
}

// remove removes the record at i, and moves records that were placed after their home
// because of it.
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

// table is the blocks of one shard. The low bits of the fingerprint choose the block
// (extendible hashing). A block without room grows up to 128 slots and then splits in
// two. That copies one block, and the directory if it must double.
type table struct {
	directory []block // 2^depth entries; a block of less depth has several
	depth     uint32
}

// at returns the index of the block of f in the directory.
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

// add adds a record that is not in the table yet; its account is full at the instant
// full. If the block has no room, add first calls drop, which removes full accounts.
func (t *table) add(r record, full int64, drop func(block)) {
	if len(t.directory) == 0 {
		t.directory = []block{newBlock(smallestBlock, 0)}
	}
	for {
		i := t.at(r.fingerprint())
		b := t.directory[i]
		if b.hasRoom() {
			b.add(r)
			b.expectFull(full)
			return
		}
		if drop(b); 8*b.count() > 6*(len(b)-1) {
			t.grow(i)
		}
	}
}

// grow replaces the block at i by a larger one, or splits it.
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

// sized returns an empty block with room for n records, if a block can have that.
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

// put copies the records of old that belong at i to the empty block fresh, and enters
// that in the directory.
func (t *table) put(i int, fresh, old block) {
	step := 1 << fresh.depth()
	fresh.expectFull(old[0].state.At)
	for j := range old[1:] {
		if r := old[1+j]; r.class != 0 && int(r.high)&(step-1) == i&(step-1) {
			fresh.add(r)
		}
	}
	for j := i & (step - 1); j < len(t.directory); j += step {
		t.directory[j] = fresh
	}
}

// shrink replaces the block at i by a smaller one if it is less than a quarter full.
func (t *table) shrink(i int) {
	if old := t.directory[i]; len(old) > smallestBlock && 4*old.count() < len(old) {
		t.put(i, sized(2*old.count(), old.depth()), old)
	}
}
