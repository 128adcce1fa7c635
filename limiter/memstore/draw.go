package memstore

import (
	"math"

	"github.com/ration-go/ration/internal/account"
	"github.com/ration-go/ration/limiter"
)

// draw is what one charge draws on its account. Charges that share an account
// add up in the first of them, their lead.
type draw struct {
	charge *limiter.Charge
	shard  *shard
	record *record // where the account is kept; nil while it is full
	class  *class  // the charge's limit
	name   fingerprint
	cost   uint64
	lead   int // index of the draw that stands for the account; its own at first

	places  int64           // that record takes
	account account.Account // at the instant of the request, under the charge's limit
	used    account.Uint128
	number  uint32 // of class
	outcome account.Outcome

	pinned   bool // class is held until the end of the request
	admitted bool // a place for a new record is taken
	homeless bool // there is no place for a new record
	overflow bool // drawn on an overflow account
}

// Where the account of a receipt is.
const (
	ownPlace = iota
	overflowPlace
)

// place finds the shard and the name of each charge's account.
func (s *Store) place(draws []draw, charges []limiter.Charge, locks *lockSet) {
	var last caller
	for i := range draws {
		d, c := &draws[i], &charges[i]
		name, number := s.hash.key(&c.Key, &last)
		d.charge, d.name, d.shard, d.cost, d.lead = c, name, s.addLock(locks, number), uint64(c.Cost), i
	}
}

// join adds up the charges of one key. One key with two limits, or both enforced
// and shadow, is an error.
func join(draws []draw) error {
	for i := 1; i < len(draws); i++ {
		d := &draws[i]
		for j := range i {
			first := &draws[j]
			if first.name != d.name {
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

// same reports whether the limits are equal, with their capacities spelled out.
func same(a, b limiter.Limit) bool {
	a.Burst, b.Burst = a.Capacity(), b.Capacity()
	return a == b
}

// join adds the draw up in lead.
func (d *draw) join(lead *draw) {
	d.lead = lead.lead
	if lead.cost += d.cost; lead.cost < d.cost {
		lead.cost = math.MaxUint64
	}
}

// root returns the draw that stands for the account of the draw at i.
func root(draws []draw, i int) *draw {
	for draws[i].lead != i {
		i = draws[i].lead
	}
	return &draws[i]
}

// leads reports whether the draw at i stands for its account.
func leads(draws []draw, i int) bool { return draws[i].lead == i }

// locate finds the accounts. Where a new one has no place in its budget's share,
// it looks for full accounts to drop, and else draws on an overflow account.
func (s *Store) locate(draws []draw, now int64, take bool) error {
	crowded := false
	for i := range draws {
		d := &draws[i]
		if !leads(draws, i) || d.kept(s) {
			continue
		}
		if err := d.charge.Limit.Validate(); err != nil {
			return err
		}
		d.pin(s, false)
		if d.record == nil {
			d.admit()
			crowded = crowded || d.homeless
		}
	}
	if crowded {
		s.crowd(draws, now, take)
	}
	return nil
}

// kept finds the record of the draw, and reports whether the charge's limit is
// the one that it is kept under: the common case.
func (d *draw) kept(s *Store) bool {
	d.record = d.shard.find(d.name)
	if d.record == nil {
		return false
	}
	d.number = d.record.class
	d.class = s.classes.class(d.number)
	return d.class.is(&d.charge.Limit)
}

// admit takes a place for a new record, where one will be needed.
func (d *draw) admit() {
	room := d.class.pool.room(d.class.fresh)
	if d.cost > 0 && room {
		d.class.pool.add(d.class.fresh)
		d.admitted = true
	}
	d.homeless = !room
}

// pin holds the class of the charge's limit until the end of the request.
func (d *draw) pin(s *Store, overflow bool) {
	if d.pinned {
		d.class.unpin()
	}
	d.class, d.number = s.classes.pin(d.charge, overflow)
	d.pinned = true
}

// release gives up what a request held: pins, and places that it did not use.
func release(draws []draw) {
	for i := range draws {
		d := &draws[i]
		if d.admitted {
			d.class.pool.add(-d.class.fresh)
		}
		if d.pinned {
			d.class.unpin()
		}
	}
}
