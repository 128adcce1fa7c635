package memstore

import (
	"github.com/ration-go/ration/internal/account"
	"github.com/ration-go/ration/internal/pick"
	"github.com/ration-go/ration/limiter"
)

// decideOne is the fast path for a request of one charge. The account must be the key's
// own, have the charge's limit, and be no log; either it has a record, or there is room
// for one. Otherwise decideOne changes nothing and returns false; then run decides.
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
