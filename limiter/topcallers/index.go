package topcallers

import "sync/atomic"

// index finds the cells that a hash may have, by linear probing. Reading takes no lock
// and may miss a cell while another one is removed; whoever holds the lock of the sketch
// misses none.
type index struct {
	slots [4 * cells]atomic.Uint32 // the number of a cell, plus 1; 0 is empty
}

// probe is a place in the index.
type probe uint32

func (p probe) next() probe { return (p + 1) % (4 * cells) }

// start returns the first place of a hash.
func (*index) start(hash uint64) probe { return probe(hash>>32) % (4 * cells) }

// cell returns the cell at a place, or -1.
func (x *index) cell(p probe) int { return int(x.slots[p].Load()) - 1 }

// insert adds a cell. The lock is held.
func (x *index) insert(hash uint64, cell int) {
	p := x.start(hash)
	for x.cell(p) >= 0 {
		p = p.next()
	}
	x.slots[p].Store(uint32(cell + 1))
}

// remove removes the cell of a hash. It moves cells behind it forward, if they would no
// longer be found. The lock is held.
func (x *index) remove(hash uint64, cell int, hashes *[cells]atomic.Uint64) {
	empty := x.start(hash)
	for x.cell(empty) != cell {
		empty = empty.next()
	}
	for p := empty.next(); x.cell(p) >= 0; p = p.next() {
		first := x.start(hashes[x.cell(p)].Load())
		if distance(first, p) >= distance(empty, p) {
			x.slots[empty].Store(x.slots[p].Load())
			empty = p
		}
	}
	x.slots[empty].Store(0)
}

// distance returns how many steps lead from one place to another.
func distance(from, to probe) probe { return (to - from) % (4 * cells) }
