package memstore

import (
	"github.com/ration-go/ration/internal/account"
	"github.com/ration-go/ration/limiter"
)

// one is the common request without the detours: one charge, on an account that
// is kept, under the charge's limit, and is no log. It reports whether that was
// so; if not, nothing has happened and run decides.
func (s *Store) one(c *limiter.Charge, take bool, decision *limiter.Decision) bool {
	name, number := s.name(&c.Key)
	sh, read := &s.shards[number], s.readHook()
	sh.mu.Lock()
	r := sh.find(name)
	if r == nil {
		sh.mu.Unlock()
		return false
	}
	class := s.classes.class(r.class)
	if !class.is(&c.Limit) || class.isLog() {
		sh.mu.Unlock()
		return false
	}
	now := s.instant(read)
	cost := uint64(c.Cost)
	a := account.Account{Limit: &class.rule, State: r.state}
	used := a.Used(now)
	outcome := class.rule.Judge(used, cost)
	if outcome == account.Allow && cost > 0 {
		used = a.Debit(used, now, cost)
		if take {
			r.state = a.State
		}
	}
	sh.mu.Unlock()
	result(c, &a, used, now, cost, outcome)
	if take {
		c.Receipt = limiter.Receipt{}
		if outcome == account.Allow {
			c.Receipt = limiter.NewReceipt(now, c.Cost, 0)
		}
	}
	decide(c, decision)
	return true
}

// name returns the fingerprint of a key and the number of its shard.
func (s *Store) name(k *limiter.Key) (fingerprint, uint8) {
	principal := s.hash.principal(&k.Principal)
	l := s.hash.named(principal, k.Route, &placeRoute)
	l = s.hash.named(l, k.Budget, &placeBudget)
	if k.Workload != "" {
		l = s.hash.brought(l, k.Workload, &placeWorkload)
	}
	name := l.fingerprint()
	return name, principal.shard(name)
}

// decide writes the decision of the charge that decides; a shadow never does.
func decide(c *limiter.Charge, decision *limiter.Decision) {
	if c.Shadow {
		decision.Outcome = limiter.Allow
		return
	}
	r := &c.Result
	decision.Outcome, decision.Budget, decision.Limit = r.Outcome, c.Key.Budget, c.Limit
	decision.Remaining, decision.RetryAfter, decision.ResetAfter =
		r.Remaining, r.RetryAfter, r.ResetAfter
}
