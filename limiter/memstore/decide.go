package memstore

import (
	"time"

	"github.com/ration-go/ration/internal/account"
	"github.com/ration-go/ration/internal/pick"
	"github.com/ration-go/ration/limiter"
)

// answer decides the request, debits and writes the results. The locks are held.
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

// judge decides each account at now. It reports whether the request is allowed, and
// whether a record has another limit than its charge.
func (s *Store) judge(draws []draw, now int64) (allowed, changed bool) {
	allowed = true
	for i := range draws {
		d := &draws[i]
		if d.lead != i {
			continue
		}
		if d.record != nil && d.record.class == d.class.number {
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

// convert sets the account of a draw that has no record, or one with another limit,
// converted to the charge's limit.
func (d *draw) convert(s *Store, now int64) {
	if d.record != nil {
		d.load(s.classes.class(d.record.class))
	}
	d.account, d.used = d.account.Under(&d.class.rule, now)
}

// recount adjusts the places that are counted for the record, if its log was added,
// has grown or has shrunk.
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

// debit debits an allowed request. It writes existing records before it adds new
// ones, since adding may move records.
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
		if d.account.Tight = d.class.tight(&d.account, now); d.account.Tight {
			s.reclaim(d.class.pool, draws)
			d.account.Tight = d.class.tight(&d.account, now)
		}
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

// rebase saves the accounts that cannot pay and whose limit has changed, so that they
// refill by the new limit from now on.
func (s *Store) rebase(draws []draw, now int64) {
	for i := range draws {
		d := &draws[i]
		if leads(draws, i) && d.outcome == account.Deny && d.record != nil &&
			d.record.class != d.class.number {
			d.save(s, now)
		}
	}
}

// save writes the account to its record, under the charge's class.
func (d *draw) save(s *Store, now int64) {
	stored := d.class
	if d.record.class != d.class.number {
		stored = s.classes.class(d.record.class)
	}
	d.shard.save(d.record, d.class, d.account, stored.isLog())
	d.recount(d.class)
	if stored != d.class { // then it may be full earlier
		d.shard.expectFull(d.fingerprint, now, &d.account)
		d.class.refs.Add(1)
		stored.unpin()
	}
}

// addRecords adds records for the debited accounts that have none.
func (s *Store) addRecords(draws []draw, now int64) {
	for i := range draws {
		d := &draws[i]
		if leads(draws, i) && d.record == nil && d.outcome == account.Allow && d.cost > 0 {
			if !d.admitted { // an overflow account, whose places are reserved
				d.class.takeOne()
			}
			d.admitted = false
			s.insert(d, now)
		}
	}
}

// insert adds a record for the account. Its places and its reference to the class are
// taken already.
func (s *Store) insert(d *draw, now int64) {
	r := record{high: d.fingerprint.high, low: d.fingerprint.low}
	d.shard.save(&r, d.class, d.account, false)
	d.shard.insert(r, now, &d.account, s.classes)
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
	for i := range draws { // a lead may come after the draws that it leads
		draws[i].charge.Result = root(draws, i).charge.Result
	}
}

// result writes the result of a charge on the account a, of which used is used at now.
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

// receipts writes the receipts of the charges that were debited and clears the others.
func receipts(draws []draw, now int64, allowed bool) {
	for i := range draws {
		lead, place := root(draws, i), uint64(ownAccount)
		if lead.overflow {
			place = overflowAccount
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
