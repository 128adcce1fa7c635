package limiter

import (
	"context"
	"slices"
)

// request is the charges of one request and the budgets that they belong to. It is
// pooled; elements beyond the length of its slices are stale.
type request struct {
	charges []Charge
	budgets []*budget
	blocked *budget   // the first by name whose LimitFor answered Blocked
	shadows []*budget // shadow budgets whose LimitFor did
	exempt  bool      // by Config.Gate
	gated   bool      // Config.Gate has been asked already
	part    bool      // paid has been paid; budgets PerRequest have counted the request
	paid    int64
}

func (l *Limiter) borrow() *request {
	if q, ok := l.requests.Get().(*request); ok {
		return q
	}
	return new(request)
}

func (l *Limiter) giveBack(q *request) {
	q.charges, q.budgets, q.shadows = q.charges[:0], q.budgets[:0], q.shadows[:0]
	q.blocked, q.exempt, q.gated, q.part, q.paid = nil, false, false, false, 0
	l.requests.Put(q)
}

// prepare makes the charges of a request. decided is true if no store call is
// needed, because d is written or err is not nil.
func (q *request) prepare(
	ctx context.Context, l *Limiter, c *Caller, cost int64, d *Decision,
) (decided bool, err error) {
	if l.store == nil {
		return true, errZero("Limiter", "New")
	}
	if err := checkCost(cost); err != nil {
		return true, err
	}
	if err := ctx.Err(); err != nil {
		return true, err
	}
	if l.gate != nil && !q.gated && !q.part {
		answer := l.gate(ctx, *c)
		if q.exempt = answer.Exempt && !answer.Blocked; answer.Exempt || answer.Blocked {
			*d = answer.decision()
			return true, nil
		}
	}
	if err := q.fill(ctx, l, c, cost); err != nil {
		return true, err
	}
	switch {
	case q.blocked != nil:
		*d = Decision{Outcome: Never, Budget: q.blocked.Name, Limit: Blocked}
	case len(q.charges) == 0:
		d.Outcome = Allow
	default:
		return false, nil
	}
	return true, nil
}

// fill makes one charge for each budget that applies to c. Budgets by workload
// come after those that bound them, and only with one of those.
func (q *request) fill(ctx context.Context, l *Limiter, c *Caller, cost int64) error {
	nobody := c.Principal.Nobody()
	c.trim()
	for _, b := range l.loaded() {
		if !b.applies(c.Route) || b.Scope&ByWorkload != 0 && !q.bounds(b) {
			continue
		}
		if nobody && b.Scope.principals() {
			return ErrNobody
		}
		q.add(ctx, l, b, c, cost)
	}
	return nil
}

func (q *request) add(ctx context.Context, l *Limiter, b *budget, c *Caller, cost int64) {
	n := len(q.charges)
	q.charges = slices.Grow(q.charges, 1)
	charge := &q.charges[:n+1][n]
	b.key(c, &charge.Key)
	charge.Limit = b.Limit
	if b.LimitFor != nil {
		k := &charge.Key
		charge.Limit = b.limitFor(ctx, Caller{k.Principal, k.Route, k.Workload}, l)
	}
	switch charge.Limit.Algorithm {
	case unlimited:
		return
	case blocked:
		if b.Shadow {
			q.shadows = append(q.shadows, b)
		} else if q.blocked == nil || b.Name < q.blocked.Name {
			q.blocked = b
		}
		return
	}
	charge.Cost = q.cost(b, charge.Limit, cost)
	charge.Shadow = b.Shadow
	charge.Result, charge.Receipt = Result{}, Receipt{}
	q.charges = q.charges[:n+1]
	q.budgets = append(q.budgets, b)
}

// cost returns what a budget is charged for a request that costs cost. If a part
// is paid, that is the rest, unless no account could ever pay the whole.
func (q *request) cost(b *budget, l Limit, cost int64) int64 {
	switch {
	case b.PerRequest && q.part:
		return 0
	case b.PerRequest:
		return 1
	case cost > l.Capacity():
		return cost
	default:
		return cost - q.paid
	}
}

// bounds reports whether a budget that bounds b is charged already.
func (q *request) bounds(b *budget) bool {
	for _, charged := range q.budgets {
		if charged.bounds(b) {
			return true
		}
	}
	return false
}
