package memstore

// evictFull makes room for the new accounts that have none, by dropping accounts that
// are full. A charge whose account still has no room uses an overflow account.
func (s *Store) evictFull(draws []draw, now int64, take bool) {
	for s.searchAll(draws, now) {
		readmit(draws)
	}
	for i := range draws {
		if !leads(draws, i) {
			continue
		}
		if s.useOverflow(draws, i); take && draws[i].overflow {
			s.overflowTakes.Add(1)
		}
	}
}

// searchAll searches once for each account that has no room. It reports whether all
// places must be given out again: full accounts were dropped, and an account still has no
// room or was dropped itself. Otherwise Take could use a place that the Peek before it
// made and did not count.
func (s *Store) searchAll(draws []draw, now int64) (again bool) {
	dropped, missing := false, false
	for i := range draws {
		d := &draws[i]
		if !d.noRoom {
			continue
		}
		found, some := s.search(d, draws, now)
		d.admitted, d.noRoom = found, !found
		if d.cost == 0 { // no record is needed
			d.giveBack()
		}
		dropped, missing = dropped || some, missing || !found
	}
	for i := range draws { // the searches moved and dropped records
		d := &draws[i]
		if d.record == nil {
			continue
		}
		if d.record = d.shard.find(d.fingerprint); d.record == nil {
			d.pin(s, false)
			missing = true
		}
	}
	return dropped && missing
}

// readmit gives all places back and takes them again in the order of the charges.
func readmit(draws []draw) {
	for i := range draws {
		draws[i].giveBack()
	}
	for i := range draws {
		if d := &draws[i]; leads(draws, i) && d.record == nil {
			d.admit()
		}
	}
}

// searchBlocks is how many blocks a search looks through after the account's own.
const searchBlocks = 8

// search drops full accounts until there is room for the account of d, one of draws. It
// reports whether it took places and whether it dropped accounts. The fingerprint
// determines the blocks, so that Take searches where Peek did. A block whose shard is
// locked is skipped: to wait for a second lock could be a deadlock.
func (s *Store) search(d *draw, draws []draw, now int64) (found, dropped bool) {
	if len(d.shard.directory) > 0 {
		dropped = d.shard.sweep(d.shard.directory[d.shard.at(d.fingerprint)], now, s.classes)
	}
	if d.shard.take(d.class) {
		return true, dropped
	}
	s.reclaim(d.class.pool, draws)
	for i := range uint32(searchBlocks) {
		if d.shard.take(d.class) {
			return true, dropped
		}
		other, at := &s.shards[uint8(d.fingerprint.low+i)&s.hash.mask], d.fingerprint.low>>8+i
		switch {
		case other == d.shard:
			dropped = other.sweepNear(at, now, s.classes) || dropped
		case other.mu.TryLock():
			dropped = other.sweepNear(at, now, s.classes) || dropped
			other.giveAll(d.class.pool.region)
			other.mu.Unlock()
		}
	}
	return d.shard.take(d.class), dropped
}

// useOverflow moves the draw at i to an overflow account if there is no room for its own.
func (s *Store) useOverflow(draws []draw, i int) {
	d := &draws[i]
	if d.record != nil || d.admitted || !d.noRoom {
		return
	}
	d.overflow = true
	d.toOverflow(s)
	for j := range i {
		o := &draws[j]
		if !leads(draws, j) || !o.overflow || o.shard != d.shard || o.fingerprint != d.fingerprint {
			continue
		}
		if !d.stricter(o) {
			d.join(o)
			return
		}
		o.join(d)
		break
	}
	d.record = d.shard.find(d.fingerprint)
}

// stricter reports whether d, rather than o, is the lead of an overflow account: an
// enforced charge before a shadow, then the one with the smaller capacity.
func (d *draw) stricter(o *draw) bool {
	if d.charge.Shadow != o.charge.Shadow {
		return o.charge.Shadow
	}
	return d.charge.Limit.Capacity() < o.charge.Limit.Capacity()
}
