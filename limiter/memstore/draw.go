package memstore

import (
	"math"
	"math/bits"
	"time"

	"github.com/ration-go/ration/internal/account"
	"github.com/ration-go/ration/limiter"
)

// draw is what one charge draws on its account. Charges that share an account
// add up in the first of them, their lead.
type draw struct {
	charge *limiter.Charge
	lead   int // index of the draw that stands for the account; its own at first
	own    fingerprint
	shard  *shard
	cost   uint64

	record *record // where the account is kept; nil while it is full
	class  *class  // the charge's limit
	number uint32

	account account.Account
	used    account.Uint128
	outcome account.Outcome

	pinned   bool // class is held until the end of the request
	admitted bool // a place for a new record is taken
	overflow bool // drawn on an overflow account
}

// placeInOverflow marks a receipt of an overflow account.
const placeInOverflow = 1

// lockSet is the shards that one request locks: often only one.
type lockSet struct {
	only *shard
	many [shardCount / 64]uint64 // a bit for each, where there are several
}

func (s *Store) addLock(set *lockSet, number uint8) {
	set.many[number/64] |= 1 << (number % 64)
	switch sh := &s.shards[number]; {
	case set.only == nil:
		set.only = sh
	case set.only != sh:
		set.only = &s.several
	}
}

// lock locks in ascending order, so that requests cannot wait for one another.
func (s *Store) lock(set *lockSet) {
	if set.only != &s.several && set.only != nil {
		set.only.mu.Lock()
		return
	}
	s.each(set, func(sh *shard) { sh.mu.Lock() })
}

func (s *Store) unlock(set *lockSet) {
	if set.only != &s.several && set.only != nil {
		set.only.mu.Unlock()
		return
	}
	s.each(set, func(sh *shard) { sh.mu.Unlock() })
}

func (s *Store) each(set *lockSet, do func(*shard)) {
	for i, word := range set.many {
		for ; word != 0; word &= word - 1 {
			do(&s.shards[64*i+bits.TrailingZeros64(word)])
		}
	}
}

// place finds the shard and the name of each charge's account.
func (s *Store) place(draws []draw, charges []limiter.Charge, set *lockSet) {
	var buffer keyBuffer
	var last *limiter.Principal
	var principal []byte
	for i := range draws {
		d, c := &draws[i], &charges[i]
		if last == nil || *last != c.Key.Principal {
			last = &c.Key.Principal
			principal = appendPrincipal(buffer[:0], last)
		}
		var number uint8
		d.own, number = s.hash.key(principal, &c.Key)
		d.charge, d.lead, d.cost, d.shard = c, i, uint64(c.Cost), &s.shards[number]
		s.addLock(set, number)
	}
}

// name places the charges and adds up those of one key. Keys of one key with two
// limits, or enforced and shadow, are an error.
func (s *Store) name(draws []draw, charges []limiter.Charge, set *lockSet) error {
	s.place(draws, charges, set)
	for i := 1; i < len(draws); i++ {
		for j := range i {
			first := &draws[j]
			if first.own != draws[i].own {
				continue
			}
			if !same(first.charge.Limit, charges[i].Limit) || first.charge.Shadow != charges[i].Shadow {
				return &limiter.ConfigError{Field: "Charges", Value: charges[i].Key.Budget,
					Reason: "one key has two limits, or is both enforced and shadow"}
			}
			draws[i].join(first)
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
	lead.cost = saturate(lead.cost+d.cost, d.cost)
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

// locate finds the accounts, decides each, and reports whether the request is
// allowed. Where a new account has no place in its budget's share, it looks for
// full accounts to drop, and else draws on an overflow account.
func (s *Store) locate(draws []draw, now int64) (allowed bool, err error) {
	crowded := false
	for i := range draws {
		d := &draws[i]
		if !leads(draws, i) {
			continue
		}
		if d.record = d.shard.find(d.own); d.record != nil {
			stored := s.classes.class(d.record.class)
			if stored.is(&d.charge.Limit) {
				d.class, d.number = stored, d.record.class
				continue
			}
		}
		if err := d.charge.Limit.Validate(); err != nil {
			return false, err
		}
		d.pin(s, false)
		if d.record == nil && d.cost > 0 {
			d.admitted = d.class.pool.admit(d.class.size)
			crowded = crowded || !d.admitted
		}
	}
	if crowded {
		s.crowd(draws, now)
	}
	allowed = true
	for i := range draws {
		if d := &draws[i]; leads(draws, i) {
			d.load(s, now)
			d.outcome = d.class.rule.Judge(d.used, d.cost)
			allowed = allowed && (d.outcome == account.Allow || d.charge.Shadow)
		}
	}
	return allowed, nil
}

// pin holds the class of the charge's limit until the end of the request.
func (d *draw) pin(s *Store, spill bool) {
	if d.pinned {
		d.class.unpin()
	}
	d.class, d.number = s.classes.pin(d.charge, spill)
	d.pinned = true
}

// crowd finds places for the new accounts that were not admitted.
func (s *Store) crowd(draws []draw, now int64) {
	for i := range draws {
		d := &draws[i]
		if !leads(draws, i) || d.record != nil || d.admitted || d.cost == 0 {
			continue
		}
		d.admitted = s.search(d, now)
	}
	for i := range draws { // the search moved records
		if leads(draws, i) {
			s.relocate(draws, i)
		}
	}
}

// searched is how many blocks, besides its own, a new account looks through for
// full accounts to drop.
const searched = 8

// search looks for a place, and reports whether it has taken one. Where a shard
// is busy it looks on, since waiting for a second lock could be for ever.
func (s *Store) search(d *draw, now int64) bool {
	if len(d.shard.directory) > 0 {
		d.shard.sweep(d.shard.directory[d.shard.at(d.own)], now, s.classes)
	}
	for range searched {
		if d.class.pool.admit(d.class.size) {
			return true
		}
		other := &s.shards[s.hand.Add(1)%shardCount]
		if other.mu.TryLock() {
			other.sweep(other.step(), now, s.classes)
			other.mu.Unlock()
		}
	}
	return d.class.pool.admit(d.class.size)
}

func (s *Store) relocate(draws []draw, i int) {
	d := &draws[i]
	if d.record != nil {
		if d.record = d.shard.find(d.own); d.record == nil { // was full, and was dropped
			d.pin(s, false)
			d.admitted = d.class.pool.admit(d.class.size)
		}
	}
	if d.record != nil || d.admitted || d.cost == 0 {
		return
	}
	d.overflow = true
	d.pin(s, true)
	name := s.hash.overflow(d.class.pool)
	for j := range i {
		if o := &draws[j]; leads(draws, j) && o.overflow && o.shard == d.shard && o.own == name {
			d.join(o)
			return
		}
	}
	d.own = name
	d.record = d.shard.find(name)
}

// load brings the account to now, under the charge's limit.
func (d *draw) load(s *Store, now int64) {
	if d.record != nil && d.record.class == d.number {
		d.account = d.shard.load(d.record, d.class)
		d.used = d.account.Used(now)
		return
	}
	if d.record != nil {
		d.account = d.shard.load(d.record, s.classes.class(d.record.class))
	}
	d.account, d.used = d.account.Under(&d.class.rule, now)
}

// apply debits the accounts of an allowed request. A refused one changes no
// balance; where it shows a new limit and cannot pay, the balance is carried
// over to it. Records are written before any is added, which may move others.
func (s *Store) apply(draws []draw, now int64, allowed, take bool) {
	added := false
	for i := range draws {
		d := &draws[i]
		if !leads(draws, i) {
			continue
		}
		debit := allowed && d.outcome == account.Allow && d.cost > 0
		if debit {
			if !take {
				d.account = d.account.Clone()
			}
			d.used = d.account.Debit(d.used, now, d.cost)
		}
		if take && d.overflow {
			s.overflowTakes.Add(1)
		}
		if d.record == nil {
			added = added || debit && take
		} else if take && (debit || d.outcome == account.Deny && d.record.class != d.number) {
			d.save(s, now)
		}
	}
	if !added {
		return
	}
	for i := range draws {
		d := &draws[i]
		if leads(draws, i) && d.record == nil && d.outcome == account.Allow && d.cost > 0 {
			if !d.admitted { // an overflow account, for which room is set aside
				d.class.take(d.class.size)
			}
			d.admitted = false
			s.insert(d, d.own, d.account, now)
		}
	}
}

// save writes the account to its record, and moves it to the charge's class,
// under which it may be full earlier.
func (d *draw) save(s *Store, now int64) {
	if d.record.class == d.number {
		d.shard.save(d.record, d.number, d.account, d.class.isLog())
		return
	}
	stored := s.classes.class(d.record.class)
	d.shard.save(d.record, d.number, d.account, stored.isLog())
	d.shard.expect(d.own, now, &d.account)
	d.class.refs.Add(1)
	d.class.take(d.class.size)
	stored.release(stored.size)
	stored.unpin()
}

// insert adds a record for the account, whose place is taken already.
func (s *Store) insert(d *draw, name fingerprint, a account.Account, now int64) {
	r := record{high: name.high, low: name.low}
	d.shard.save(&r, d.number, a, false)
	d.class.refs.Add(1)
	d.shard.add(r, fullAt(now, &a), func(b block) { d.shard.sweep(b, now, s.classes) })
}

// release gives up what a request held: pins, and places that it did not use.
func release(draws []draw) {
	for i := range draws {
		d := &draws[i]
		if d.admitted {
			d.class.pool.add(-d.class.size)
		}
		if d.pinned {
			d.class.unpin()
		}
	}
}

// pick writes the results and receipts, and the decision (R6).
func pick(draws []draw, now int64, taken bool, decision *limiter.Decision) {
	best := -1
	for i := range draws {
		d := &draws[i]
		lead := root(draws, i)
		d.answer(lead, now, taken)
		if !d.charge.Shadow && (best < 0 || decidesBefore(draws, i, best)) {
			best = i
		}
	}
	if best < 0 {
		decision.Outcome = limiter.Allow
		return
	}
	c := draws[best].charge
	decision.Outcome, decision.Budget, decision.Limit = c.Result.Outcome, c.Key.Budget, c.Limit
	decision.Remaining = c.Result.Remaining
	decision.RetryAfter, decision.ResetAfter = c.Result.RetryAfter, c.Result.ResetAfter
}

// answer writes the charge's result, which is that of its lead, and its receipt.
func (d *draw) answer(lead *draw, now int64, taken bool) {
	c := d.charge
	c.Receipt = limiter.Receipt{}
	if taken && lead.outcome == account.Allow {
		var place uint64
		if lead.overflow {
			place = placeInOverflow
		}
		c.Receipt = limiter.NewReceipt(now, c.Cost, place)
	}
	if d != lead {
		c.Result = lead.charge.Result
		return
	}
	c.Result = limiter.Result{
		Outcome:    limiter.Outcome(d.outcome),
		Remaining:  d.class.rule.Remaining(d.used),
		ResetAfter: time.Duration(d.account.Reset(now)),
	}
	if d.outcome == account.Deny {
		c.Result.RetryAfter = time.Duration(d.account.Wait(d.used, now, d.cost))
	}
}

// decidesBefore reports whether the charge at i decides rather than the best so
// far: never, else deny with the longest wait, else the least left; ties by key.
func decidesBefore(draws []draw, i, best int) bool {
	charge, other := draws[i].charge, draws[best].charge
	r, o := &charge.Result, &other.Result
	switch {
	case r.Outcome != o.Outcome:
		return r.Outcome > o.Outcome
	case r.RetryAfter != o.RetryAfter:
		return r.RetryAfter > o.RetryAfter
	case r.Outcome == limiter.Allow:
		a, b := root(draws, i), root(draws, best)
		x, y := a.account.Limit.Capacity(), b.account.Limit.Capacity()
		if more := account.CompareRatios(a.used, x, b.used, y); more != 0 {
			return more > 0
		}
	}
	return charge.Key.Compare(other.Key) < 0
}

// saturate returns sum, or the largest number where adding part wrapped around.
func saturate(sum, part uint64) uint64 {
	if sum < part {
		return math.MaxUint64
	}
	return sum
}
