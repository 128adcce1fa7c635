package memstore

import (
	"time"

	"github.com/ration-go/ration/internal/account"
	"github.com/ration-go/ration/internal/pick"
	"github.com/ration-go/ration/limiter"
)

// answer decides, debits and writes the results, with the locks held.
func (s *Store) answer(draws []draw, now int64, take bool, decision *limiter.Decision) {
	allowed, changed := s.judge(draws, now)
	if changed && take {
		s.rebase(draws, now)
	}
	if allowed {
		s.debit(draws, now, take)
	}
	conclude(draws, now, decision)
	if take {
		receipts(draws, now, allowed)
	}
}

// judge brings each account to now and decides it. It reports whether the request
// is allowed, and whether an account is kept under another limit.
func (s *Store) judge(draws []draw, now int64) (allowed, changed bool) {
	allowed = true
	for i := range draws {
		d := &draws[i]
		if d.lead != i {
			continue
		}
		if d.record != nil && d.record.class == d.number {
			d.load(d.class)
			d.used = d.account.Used(now)
		} else {
			d.convert(s, now)
			changed = changed || d.record != nil
		}
		d.outcome = d.class.rule.Judge(d.used, d.cost)
		allowed = allowed && (d.outcome == account.Allow || d.charge.Shadow)
	}
	return allowed, changed
}

// convert brings an account that is not kept, or under another limit, to the
// charge's limit.
func (d *draw) convert(s *Store, now int64) {
	if d.record != nil {
		d.load(s.classes.class(d.record.class))
	}
	d.account, d.used = d.account.Under(&d.class.rule, now)
}

// recount counts the places that the record takes now, where its log has grown or
// shrunk, or is new.
func (d *draw) recount(c *class) {
	if more := places(d.account.LogRoom()) - d.places; more != 0 {
		c.take(more)
	}
}

// load reads the account from its record.
func (d *draw) load(stored *class) {
	d.account = d.shard.load(d.record, stored)
	d.places = places(d.account.LogRoom())
}

// debit takes the costs of an allowed request. Records are written before any is
// added, which may move others.
func (s *Store) debit(draws []draw, now int64, take bool) {
	added := false
	for i := range draws {
		d := &draws[i]
		if d.lead != i || d.outcome != account.Allow || d.cost == 0 {
			continue
		}
		if !take {
			d.account = d.account.Clone()
		}
		d.account.Tight = d.class.tight(&d.account, now)
		d.used = d.account.Debit(d.used, now, d.cost)
		switch {
		case !take:
		case d.record == nil:
			added = true
		default:
			d.save(s, now)
		}
	}
	if added {
		s.addRecords(draws, now)
	}
}

// rebase carries the balances of accounts that cannot pay over to limits that
// they show for the first time, so that they refill by those from now on.
func (s *Store) rebase(draws []draw, now int64) {
	for i := range draws {
		d := &draws[i]
		if leads(draws, i) && d.outcome == account.Deny && d.record != nil &&
			d.record.class != d.number {
			d.save(s, now)
		}
	}
}

// save writes the account to its record, counts the places that it takes then, and
// moves it to the charge's class, under which it may be full earlier.
func (d *draw) save(s *Store, now int64) {
	stored := d.class
	if d.record.class != d.number {
		stored = s.classes.class(d.record.class)
	}
	d.shard.save(d.record, d.number, d.account, stored.isLog())
	d.recount(d.class)
	if stored != d.class {
		d.shard.expect(d.name, now, &d.account)
		d.class.refs.Add(1)
		stored.unpin()
	}
}

// addRecords adds records for the accounts that have none and were debited.
func (s *Store) addRecords(draws []draw, now int64) {
	for i := range draws {
		d := &draws[i]
		if leads(draws, i) && d.record == nil && d.outcome == account.Allow && d.cost > 0 {
			if !d.admitted { // an overflow account, for which room is set aside
				d.class.take(d.class.fresh)
			}
			d.admitted = false
			s.insert(d, now)
		}
	}
}

// insert adds a record for the account, whose place is taken already.
func (s *Store) insert(d *draw, now int64) {
	r := record{high: d.name.high, low: d.name.low}
	d.shard.save(&r, d.number, d.account, false)
	d.class.refs.Add(1)
	d.shard.add(r, fullAt(now, &d.account), func(b block) { d.shard.sweep(b, now, s.classes) })
}

// conclude writes the results and the decision.
func conclude(draws []draw, now int64, decision *limiter.Decision) {
	var p pick.Picker
	for i := range draws {
		if d := &draws[i]; d.lead == i {
			result(d.charge, &d.account, d.used, now, d.cost, d.outcome)
			d.charge.Result.Overflow = d.overflow
			p.Offer(d.charge, d.used, d.class.rule.Capacity())
		}
	}
	p.Decide(decision)
	for i := range draws { // which may come before their leads
		draws[i].charge.Result = root(draws, i).charge.Result
	}
}

// result writes the result of a charge whose account, as a, has used units used
// at now.
func result(
	c *limiter.Charge, a *account.Account, used account.Uint128, now int64, cost uint64,
	outcome account.Outcome,
) {
	r := &c.Result
	r.Outcome = limiter.Outcome(outcome)
	r.Remaining = a.Limit.Remaining(used)
	r.ResetAfter = time.Duration(a.Reset(now))
	r.RetryAfter, r.Overflow = 0, false
	if outcome == account.Deny {
		r.RetryAfter = time.Duration(a.Wait(used, now, cost))
	}
}

// receipts writes the receipts of the charges whose accounts paid, and takes away
// what the others had.
func receipts(draws []draw, now int64, allowed bool) {
	for i := range draws {
		lead, place := root(draws, i), uint64(ownPlace)
		if lead.overflow {
			place = overflowPlace
		}
		receipt(draws[i].charge, allowed && lead.outcome == account.Allow, now, place)
	}
}

func receipt(c *limiter.Charge, paid bool, now int64, place uint64) {
	if !paid {
		c.Receipt = limiter.Receipt{}
		return
	}
	c.Receipt = limiter.Receipt{At: now, Taken: c.Cost, Place: place, Valid: true}
}
