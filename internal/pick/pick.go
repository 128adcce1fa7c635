// Package pick finds which charge of a request decides, for all stores alike.
package pick

import (
	"cmp"
	"strings"

	"github.com/ration-go/ration/internal/account"
	"github.com/ration-go/ration/limiter"
)

// Picker finds the charge that decides (R6 of [limiter.Store]): never, else deny
// with the longest wait, else the least left relative to the capacity; ties by
// key, and of one key the first. A shadow never does. The zero Picker is ready for
// use, for one request.
type Picker struct {
	best           *limiter.Charge // nil where nothing is enforced
	used, capacity account.Uint128 // of the best, in units, for allow
}

// Offer compares a charge that has its result.
func (p *Picker) Offer(c *limiter.Charge, used, capacity account.Uint128) {
	if !c.Shadow && (p.best == nil || p.before(c, used, capacity)) {
		p.best, p.used, p.capacity = c, used, capacity
	}
}

func (p *Picker) before(c *limiter.Charge, used, capacity account.Uint128) bool {
	r, o := &c.Result, &p.best.Result
	switch {
	case r.Outcome != o.Outcome:
		return r.Outcome > o.Outcome
	case r.RetryAfter != o.RetryAfter:
		return r.RetryAfter > o.RetryAfter
	case r.Outcome == limiter.Allow:
		if more := account.CompareRatios(used, capacity, p.used, p.capacity); more != 0 {
			return more > 0
		}
	}
	return CompareKeys(&c.Key, &p.best.Key) < 0
}

// CompareKeys orders keys by budget, principal, route and workload.
func CompareKeys(a, b *limiter.Key) int {
	if a.Budget != b.Budget {
		return strings.Compare(a.Budget, b.Budget)
	}
	return cmp.Or(
		strings.Compare(a.Principal.Kind, b.Principal.Kind),
		strings.Compare(a.Principal.Tenant, b.Principal.Tenant),
		strings.Compare(a.Principal.ID, b.Principal.ID),
		strings.Compare(a.Route, b.Route),
		strings.Compare(a.Workload, b.Workload),
	)
}

// Decide writes the decision.
func (p *Picker) Decide(decision *limiter.Decision) {
	if p.best == nil {
		decision.Outcome = limiter.Allow
		return
	}
	One(p.best, decision)
}

// One writes the decision of a request with a single charge.
func One(c *limiter.Charge, decision *limiter.Decision) {
	if c.Shadow {
		decision.Outcome = limiter.Allow
		return
	}
	r := &c.Result
	decision.Outcome, decision.Budget, decision.Limit = r.Outcome, c.Key.Budget, c.Limit
	decision.Remaining, decision.RetryAfter, decision.ResetAfter =
		r.Remaining, r.RetryAfter, r.ResetAfter
}
