package memstore

import (
	"github.com/ration-go/ration/internal/account"
	"github.com/ration-go/ration/internal/pick"
	"github.com/ration-go/ration/limiter"
)

// Short ways for the common requests: each charge is on an account of its own,
// which is kept, under the charge's limit, and is no log. They report whether that
// was so; if not, nothing has happened and run decides.

// one decides one charge.
func (s *Store) one(c *limiter.Charge, take bool, decision *limiter.Decision) bool {
	var last caller
	name, number := s.hash.key(&c.Key, &last)
	sh, read := &s.shards[number], s.readHook()
	sh.mu.Lock()
	r, rule := s.find(sh, name, &c.Limit)
	if r == nil {
		sh.mu.Unlock()
		return false
	}
	now := s.instant(read)
	cost := uint64(c.Cost)
	a := account.Account{Limit: rule, State: r.state}
	used := a.Used(now)
	outcome := rule.Judge(used, cost)
	if outcome == account.Allow && cost > 0 {
		used = a.Debit(used, now, cost)
		if take {
			r.state = a.State
		}
	}
	sh.mu.Unlock()
	result(c, &a, used, now, cost, outcome)
	if take {
		receipt(c, outcome == account.Allow, now, ownPlace)
	}
	var p pick.Picker
	p.Offer(c, used, rule.Capacity())
	p.Decide(decision)
	return true
}

// find returns the record of a name and its limit, or nil where that is not l or
// the account is a log.
func (s *Store) find(sh *shard, name fingerprint, l *limiter.Limit) (*record, *account.Limit) {
	r := sh.find(name)
	if r == nil {
		return nil, nil
	}
	class := s.classes.class(r.class)
	if !class.is(l) || class.isLog() {
		return nil, nil
	}
	return r, &class.rule
}

// few is how many charges have a short way.
const few = 4

// hit is one of several charges.
type hit struct {
	shard   *shard
	record  *record
	name    fingerprint
	account account.Account
	used    account.Uint128
	outcome account.Outcome
}

// several decides a few charges.
func (s *Store) several(charges []limiter.Charge, take bool, decision *limiter.Decision) bool {
	var space [few]hit
	var locks lockSet
	var last caller
	hits := space[:len(charges)]
	for i := range hits {
		h := &hits[i]
		name, number := s.hash.key(&charges[i].Key, &last)
		h.name, h.shard = name, s.addLock(&locks, number)
	}
	read := s.readHook()
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
			receipt(c, allowed && h.outcome == account.Allow, now, ownPlace)
		}
		p.Offer(c, h.used, h.account.Limit.Capacity())
	}
	p.Decide(decision)
	return true
}

// findAll finds what find does of each charge, and reports whether all are there
// and none twice.
func (s *Store) findAll(hits []hit, charges []limiter.Charge) bool {
	for i := range hits {
		h := &hits[i]
		r, rule := s.find(h.shard, h.name, &charges[i].Limit)
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

// judgeAll decides the charges, and reports whether the request is allowed.
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

// debitAll debits what can be paid.
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
