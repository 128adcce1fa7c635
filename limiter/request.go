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
	part    bool      // an earlier part of the request was charged
	earlier []payment // what earlier parts have paid
	covered []*budget // budgets whose accounts they have paid in full
}

// payment is what an earlier part of a request has paid to one account.
type payment struct {
	key   Key
	limit Limit
	cost  int64
	fixed bool // of a PerRequest budget
}

// payments appends what the charges have paid.
func (q *request) payments(to []payment) []payment {
	for i := range q.charges {
		c := &q.charges[i]
		to = append(to, payment{c.Key, c.Limit, c.Cost, q.budgets[i].PerRequest})
	}
	return to
}

// paid returns what earlier parts have paid to an account, if they have charged it.
func (q *request) paid(k *Key) (charged bool, sum int64) {
	for i := range q.earlier {
		if q.earlier[i].key == *k {
			charged, sum = true, sum+q.earlier[i].cost
		}
	}
	return charged, sum
}

func (l *Limiter) borrow() *request {
	if q, ok := l.requests.Get().(*request); ok {
		return q
	}
	return new(request)
}

func (l *Limiter) giveBack(q *request) {
	q.charges, q.budgets, q.shadows = q.charges[:0], q.budgets[:0], q.shadows[:0]
	q.blocked, q.exempt, q.gated, q.part, q.earlier = nil, false, false, false, nil
	q.covered = q.covered[:0]
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
	charge.Cost = cost
	if b.PerRequest {
		charge.Cost = 1
	}
	if q.part && q.cover(b, charge) {
		return
	}
	charge.Shadow = b.Shadow
	charge.Result, charge.Receipt = Result{}, Receipt{}
	q.charges = q.charges[:n+1]
	q.budgets = append(q.budgets, b)
}

// cover leaves of a charge what earlier parts have not paid, and reports whether they
// have paid all. A cost that no account could ever pay stays whole.
func (q *request) cover(b *budget, c *Charge) bool {
	charged, paid := q.paid(&c.Key)
	switch {
	case !charged || c.Cost > c.Limit.Capacity():
		return false
	case c.Cost <= paid:
		q.covered = append(q.covered, b)
		return true
	default:
		c.Cost -= paid
		return false
	}
}

// bounds reports whether a budget that bounds b is charged already.
func (q *request) bounds(b *budget) bool {
	bounds := func(charged *budget) bool { return charged.bounds(b) }
	return slices.ContainsFunc(q.budgets, bounds) || slices.ContainsFunc(q.covered, bounds)
}
