package memstore

import (
	"github.com/ration-go/ration/internal/account"
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
	p := picker{}
	p.offer(c, used, rule)
	p.decide(decision)
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
	rule    *account.Limit
	name    fingerprint
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
	kept := s.findAll(hits, charges)
	if kept {
		answer(hits, charges, s.instant(read), take, decision)
	}
	s.unlock(&locks)
	return kept
}

// findAll finds what find does of each charge, and reports whether all are there
// and none twice.
func (s *Store) findAll(hits []hit, charges []limiter.Charge) bool {
	for i := range hits {
		h := &hits[i]
		h.record, h.rule = s.find(h.shard, h.name, &charges[i].Limit)
		if h.record == nil {
			return false
		}
		for j := range i {
			if hits[j].record == h.record {
				return false
			}
		}
	}
	return true
}

// answer decides the charges together, debits all or none, and writes results,
// receipts and the decision.
func answer(
	hits []hit, charges []limiter.Charge, now int64, take bool, decision *limiter.Decision,
) {
	allowed := true
	for i := range hits {
		h, c := &hits[i], &charges[i]
		a := account.Account{Limit: h.rule, State: h.record.state}
		h.used = a.Used(now)
		h.outcome = h.rule.Judge(h.used, uint64(c.Cost))
		allowed = allowed && (h.outcome == account.Allow || c.Shadow)
	}
	var p picker
	for i := range hits {
		h, c := &hits[i], &charges[i]
		a := account.Account{Limit: h.rule, State: h.record.state}
		pays, cost := allowed && h.outcome == account.Allow, uint64(c.Cost)
		if pays && cost > 0 {
			h.used = a.Debit(h.used, now, cost)
			if take {
				h.record.state = a.State
			}
		}
		result(c, &a, h.used, now, cost, h.outcome)
		if take {
			receipt(c, pays, now, ownPlace)
		}
		p.offer(c, h.used, h.rule)
	}
	p.decide(decision)
}
