package memstore

// crowd finds places for the new accounts that were not admitted.
func (s *Store) crowd(draws []draw, now int64, take bool) {
	for s.searchAll(draws, now) {
		readmit(draws)
	}
	for i := range draws {
		if !leads(draws, i) {
			continue
		}
		if s.relocate(draws, i); take && draws[i].overflow {
			s.overflowTakes.Add(1)
		}
	}
}

// searchAll looks for places for the accounts that have none. It reports whether the
// places must be given out again, because full accounts were dropped while an account
// still has no place or was itself one of them. Without this, a Take could find places
// that the Peek before it made but did not use.
func (s *Store) searchAll(draws []draw, now int64) (again bool) {
	dropped, missing := false, false
	for i := range draws {
		d := &draws[i]
		if !d.homeless {
			continue
		}
		found, some := s.search(d, now)
		d.admitted, d.homeless = found && d.cost > 0, !found
		if found && d.cost == 0 { // it needs no record
			d.class.pool.add(-d.class.fresh)
		}
		dropped, missing = dropped || some, missing || !found
	}
	for i := range draws { // the search moved records
		d := &draws[i]
		if d.record == nil {
			continue
		}
		if d.record = d.shard.find(d.name); d.record == nil { // was full, and was dropped
			d.pin(s, false)
			missing = true
		}
	}
	return dropped && missing
}

// readmit gives out the places again, in the order of the charges.
func readmit(draws []draw) {
	for i := range draws {
		if d := &draws[i]; d.admitted {
			d.class.pool.add(-d.class.fresh)
			d.admitted = false
		}
	}
	for i := range draws {
		if d := &draws[i]; leads(draws, i) && d.record == nil {
			d.admit()
		}
	}
}

// searched is how many blocks, besides its own, a new account looks through for
// full accounts to drop.
const searched = 8

// search looks for a place, and reports whether it has taken one and whether it has
// dropped accounts. The name says where, so that Take looks where Peek did. Where a
// shard is busy it looks on, since waiting for a second lock could be for ever.
func (s *Store) search(d *draw, now int64) (found, dropped bool) {
	if len(d.shard.directory) > 0 {
		dropped = d.shard.sweep(d.shard.directory[d.shard.at(d.name)], now, s.classes)
	}
	for i := range uint32(searched) {
		if d.class.pool.admit(d.class.fresh) {
			return true, dropped
		}
		other, at := &s.shards[uint8(d.name.low+i)&s.hash.mask], d.name.low>>8+i
		switch {
		case other == d.shard:
			dropped = other.sweepNear(at, now, s.classes) || dropped
		case other.mu.TryLock():
			dropped = other.sweepNear(at, now, s.classes) || dropped
			other.mu.Unlock()
		}
	}
	return d.class.pool.admit(d.class.fresh), dropped
}

// relocate gives the draw at i an overflow account if there is no place for its own.
func (s *Store) relocate(draws []draw, i int) {
	d := &draws[i]
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
