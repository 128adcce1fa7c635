package memstore

import (
	"github.com/ration-go/ration/internal/account"
	"github.com/ration-go/ration/internal/pick"
	"github.com/ration-go/ration/limiter"
)

// The fast path decides the common requests: the account of each charge is its own, has
// the charge's limit and is not a log. Of several charges, each account has a record; that
// of a single charge may need a new one. For other requests the fast path changes nothing
// and returns false; then run decides.

// decideOne decides a request of one charge, if the fast path can.
func (s *Store) decideOne(c *limiter.Charge, take bool, decision *limiter.Decision) bool {
	var last caller
	f, number := s.hash.key(&c.Key, &last)
	sh, read, cost := &s.shards[number], s.readNow(), uint64(c.Cost)
	sh.mu.Lock()
	r := sh.find(f)
	class := s.fastClass(r, c, last.names, take)
	if class == nil {
		sh.mu.Unlock()
		return false
	}
	now := s.instant(read)
	a := account.Account{Limit: &class.rule, State: account.FullState}
	if r != nil {
		a.State = r.state
	}
	used := a.Used(now)
	outcome := class.rule.Judge(used, cost)
	if outcome == account.Allow && cost > 0 {
		used = a.Debit(used, now, cost)
		switch {
		case r == nil:
			if !s.addFast(sh, f, class, &a, now) {
				sh.mu.Unlock()
				return false
			}
		case take:
			r.state = a.State
		}
	}
	sh.mu.Unlock()
	result(c, &a, used, now, cost, outcome)
	pick.One(c, decision)
	if take {
		receipt(c, outcome == account.Allow, now, ownAccount)
	}
	return true
}

// fastClass returns the class of the charge, whose account has the record r or none. It
// returns nil if the fast path cannot decide.
func (s *Store) fastClass(r *record, c *limiter.Charge, n *names, take bool) *class {
	if r != nil {
		if class := s.classes.class(r.class); class.is(&c.Limit) && !class.isLog() {
			return class
		}
		return nil
	}
	class := n.class(&c.Limit)
	if class == nil || class.isLog() || !take || c.Cost == 0 || c.Cost > class.limit.Burst {
		return nil
	}
	return class
}

// addFast adds a record for the account of f, which has none, and reports whether there
// was room. The record of a full account is replaced if the search for f meets one.
func (s *Store) addFast(sh *shard, f fingerprint, c *class, a *account.Account, now int64) bool {
	if r := sh.findFull(f, c, now, s.classes); r != nil { // its place is now that of f
		r.high, r.low, r.state = f.high, f.low, a.State
		sh.expectFull(f, now, a)
		return true
	}
	if !sh.takeOften(c) {
		return false
	}
	sh.insert(record{high: f.high, low: f.low, class: c.number, state: a.State},
		now, a, s.classes)
	return true
}

// findFast returns the record of f and its limit. It returns nil if there is none, if its
// limit is not l, or if it is a log.
func (s *Store) findFast(sh *shard, f fingerprint, l *limiter.Limit) (*record, *account.Limit) {
	r := sh.find(f)
	if r == nil {
		return nil, nil
	}
	class := s.classes.class(r.class)
	if !class.is(l) || class.isLog() {
		return nil, nil
	}
	return r, &class.rule
}

// maxFast is the most charges of a request that the fast path decides.
const maxFast = 4

// hit is one of several charges on the fast path.
type hit struct {
	shard       *shard
	record      *record
	fingerprint fingerprint
	account     account.Account
	used        account.Uint128
	outcome     account.Outcome
}

// decideSeveral decides a request of 2 to maxFast charges, if the fast path can.
func (s *Store) decideSeveral(
	charges []limiter.Charge, take bool, decision *limiter.Decision,
) bool {
	var space [maxFast]hit
	var locks lockSet
	var last caller
	hits := space[:len(charges)]
	for i := range hits {
		h := &hits[i]
		f, number := s.hash.key(&charges[i].Key, &last)
		h.fingerprint, h.shard = f, s.addLock(&locks, number)
	}
	read := s.readNow()
	s.lock(&locks)
	if !s.findAll(hits, charges) {
		s.unlock(&locks)
		return false
	}
	now := s.instant(read)
	allowed := judgeAll(hits, charges, now)
	if allowed {
		debitAll(hits, charges, now, take)
	}
	s.unlock(&locks)
	var p pick.Picker
	for i := range hits {
		h, c := &hits[i], &charges[i]
		result(c, &h.account, h.used, now, uint64(c.Cost), h.outcome)
		if take {
			receipt(c, allowed && h.outcome == account.Allow, now, ownAccount)
		}
		p.Offer(c, h.used, h.account.Limit.Capacity())
	}
	p.Decide(decision)
	return true
}

// findAll finds the record of each charge, and reports whether the fast path can decide
// all of them and no two are the same.
func (s *Store) findAll(hits []hit, charges []limiter.Charge) bool {
	for i := range hits {
		h := &hits[i]
		r, rule := s.findFast(h.shard, h.fingerprint, &charges[i].Limit)
		if r == nil {
			return false
		}
		for j := range i {
			if hits[j].record == r {
				return false
			}
		}
		h.record, h.account.Limit, h.account.State = r, rule, r.state
	}
	return true
}

// judgeAll decides each charge, and reports whether the request is allowed.
func judgeAll(hits []hit, charges []limiter.Charge, now int64) bool {
	allowed := true
	for i := range hits {
		h, c := &hits[i], &charges[i]
		h.used = h.account.Used(now)
		h.outcome = h.account.Limit.Judge(h.used, uint64(c.Cost))
		allowed = allowed && (h.outcome == account.Allow || c.Shadow)
	}
	return allowed
}

// debitAll debits the charges that can pay.
func debitAll(hits []hit, charges []limiter.Charge, now int64, take bool) {
	for i := range hits {
		h, cost := &hits[i], uint64(charges[i].Cost)
		if h.outcome != account.Allow || cost == 0 {
			continue
		}
		h.used = h.account.Debit(h.used, now, cost)
		if take {
			h.record.state = h.account.State
		}
	}
}
