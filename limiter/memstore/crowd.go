package memstore

// crowd finds places for the new accounts that were not admitted.
func (s *Store) crowd(draws []draw, now int64, take bool) {
	for i := range draws {
		if d := &draws[i]; d.homeless && d.cost > 0 {
			d.admitted = s.search(d, now)
		}
	}
	for i := range draws { // the search moved records
		if !leads(draws, i) {
			continue
		}
		if s.relocate(draws, i); take && draws[i].overflow {
			s.overflowTakes.Add(1)
		}
	}
}

// searched is how many blocks, besides its own, a new account looks through for
// full accounts to drop.
const searched = 8

// search looks for a place, and reports whether it has taken one. The name says
// where, so that Take looks where Peek did. Where a shard is busy it looks on,
// since waiting for a second lock could be for ever.
func (s *Store) search(d *draw, now int64) bool {
	if len(d.shard.directory) > 0 {
		d.shard.sweep(d.shard.directory[d.shard.at(d.name)], now, s.classes)
	}
	for i := range uint32(searched) {
		if d.class.pool.admit(d.class.fresh) {
			return true
		}
		other, at := &s.shards[uint8(d.name.low+i)&s.hash.mask], d.name.low>>8+i
		switch {
		case other == d.shard:
			other.sweepNear(at, now, s.classes)
		case other.mu.TryLock():
			other.sweepNear(at, now, s.classes)
			other.mu.Unlock()
		}
	}
	return d.class.pool.admit(d.class.fresh)
}

// relocate finds the account of the draw at i again, and gives it an overflow
// account where there is no place for its own.
func (s *Store) relocate(draws []draw, i int) {
	d := &draws[i]
	if d.record != nil {
		if d.record = d.shard.find(d.name); d.record == nil { // was full, and was dropped
			d.pin(s, false)
			d.admit()
		}
	}
	if d.record != nil || d.admitted || !d.homeless {
		return
	}
	d.overflow = true
	d.spill(s)
	for j := range i {
		if o := &draws[j]; leads(draws, j) && o.overflow && o.shard == d.shard && o.name == d.name {
			if !d.stricter(o) {
				d.join(o)
				return
			}
			o.join(d)
			break
		}
	}
	d.record = d.shard.find(d.name)
}

// stricter reports whether d stands for an overflow account rather than o: one that
// is enforced before a shadow, then one that holds less.
func (d *draw) stricter(o *draw) bool {
	if d.charge.Shadow != o.charge.Shadow {
		return o.charge.Shadow
	}
	return d.charge.Limit.Capacity() < o.charge.Limit.Capacity()
}
