package memstore

import (
	"math"

	"github.com/ration-go/ration/internal/account"
	"github.com/ration-go/ration/limiter"
)

// draw is one charge while it is decided. The costs of charges on the same account are
// added up in one of them, the lead: the first, or on an overflow account the strictest.
type draw struct {
	charge      *limiter.Charge
	shard       *shard
	record      *record     // nil if the account has none, which means that it is full
	class       *class      // of the charge's limit
	names       *names      // of the key; nil if they are not cached
	fingerprint fingerprint // of the key
	cost        uint64      // of all charges that this one leads
	lead        int         // index of the draw that leads this one, often its own

	places  int64           // of the record
	account account.Account // at the instant of the request, under the charge's limit
	used    account.Uint128 // of the account
	outcome account.Outcome

	pinned   bool // class is unpinned when the request ends
	admitted bool // places for a new record and a reference to class are taken
	noRoom   bool // the share has no places for a new record
	overflow bool // the account is an overflow account
}

// Values of Receipt.Place.
const (
	ownAccount = iota
	overflowAccount
)

// prepare finds the fingerprint and the shard of each charge's account, and adds the
// shards to locks.
func (s *Store) prepare(draws []draw, charges []limiter.Charge, locks *lockSet) {
	var last caller
	for i := range draws {
		d, c := &draws[i], &charges[i]
		f, number := s.hash.key(&c.Key, &last)
		d.charge, d.fingerprint, d.shard = c, f, s.addLock(locks, number)
		d.names = last.names
		d.cost, d.lead = uint64(c.Cost), i
	}
}

// join adds up the charges of the same key. It is an error if they have different
// limits, or if only some of them are shadows.
func join(draws []draw) error {
	for i := 1; i < len(draws); i++ {
		d := &draws[i]
		for j := range i {
			first := &draws[j]
			if first.fingerprint != d.fingerprint {
				continue
			}
			if !same(first.charge.Limit, d.charge.Limit) || first.charge.Shadow != d.charge.Shadow {
				return wrong("Charges", d.charge.Key.Budget,
					"one key has two limits, or is both enforced and shadow")
			}
			d.join(first)
			break
		}
	}
	return nil
}

// same reports whether the limits are equal. A Burst of 0 is Tokens.
func same(a, b limiter.Limit) bool {
	a.Burst, b.Burst = a.Capacity(), b.Capacity()
	return a == b
}

// join makes lead the lead of d and adds the cost of d to its cost.
func (d *draw) join(lead *draw) {
	d.lead = lead.lead
	if lead.cost += d.cost; lead.cost < d.cost {
		lead.cost = math.MaxUint64
	}
}

// root returns the lead of the draw at i.
func root(draws []draw, i int) *draw {
	for draws[i].lead != i {
		i = draws[i].lead
	}
	return &draws[i]
}

// leads reports whether the draw at i is the lead of its account.
func leads(draws []draw, i int) bool { return draws[i].lead == i }

// locate finds the account of each charge. If the share of a budget has no place for
// a new account, see evictFull.
func (s *Store) locate(draws []draw, now int64, take bool) error {
	noRoom := false
	for i := range draws {
		d := &draws[i]
		if !leads(draws, i) || d.find(s) || d.admitFast() {
			continue
		}
		if err := d.charge.Limit.Validate(); err != nil {
			return err
		}
		d.pin(s, false)
		if d.record == nil {
			d.names.remember(d.class)
			d.admit()
			noRoom = noRoom || d.noRoom
		}
	}
	if noRoom {
		s.evictFull(draws, now, take)
	}
	return nil
}

// find finds the record of the draw, and reports whether it is kept under the charge's
// limit, which is the common case.
func (d *draw) find(s *Store) bool {
	d.record = d.shard.find(d.fingerprint)
	if d.record == nil {
		return false
	}
	d.class = s.classes.class(d.record.class)
	return d.class.is(&d.charge.Limit)
}

// admitFast takes a place for the record that the draw needs, if it has none and its
// class is remembered. A draw that does not pay may have no use for one.
func (d *draw) admitFast() bool {
	if d.record != nil || d.cost == 0 {
		return false
	}
	c := d.names.class(&d.charge.Limit)
	if c == nil || c.isLog() || !d.shard.takeOften(c) {
		return false
	}
	d.class, d.admitted = c, true
	return true
}

// admit takes places for a new record, if the request may need one.
func (d *draw) admit() {
	room := d.shard.take(d.class)
	d.admitted, d.noRoom = room, !room
	if d.cost == 0 {
		d.giveBack()
	}
}

// giveBack gives back the places for a new record, if they are taken.
func (d *draw) giveBack() {
	if d.admitted {
		d.shard.give(d.class, d.class.newPlaces)
		d.admitted = false
	}
}

// pin sets the class of the draw and pins it until the request ends.
func (d *draw) pin(s *Store, overflow bool) {
	if d.pinned {
		d.class.unpin()
	}
	d.class = s.classes.pin(d.charge, overflow)
	d.pinned = true
}

// release unpins the classes, and gives back the places that were not used.
func release(draws []draw) {
	for i := range draws {
		d := &draws[i]
		d.giveBack()
		if d.pinned {
			d.class.unpin()
		}
	}
}
