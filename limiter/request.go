package limiter

import (
	"context"
	"slices"
)

// request is one request: its charges, and the budgets that they belong to. It is
// pooled; elements beyond the length of its slices are stale.
type request struct {
	event   DecisionEvent // as it is reported: its caller, its cost, its decision
	charges []Charge
	budgets []*budget
	all     *[]*budget // of the limiter
	applied int        // how many of them apply to the route
	blocked *budget    // the first by name whose LimitFor answered Blocked
	shadows []*budget  // shadow budgets whose LimitFor did
	exempt  bool       // by Config.Gate
	gated   bool       // Config.Gate has been asked already
	aside   *[]Charge  // for Explain: those of budgets that are Unlimited or Blocked
	part    bool       // an earlier part of the request was charged
	earlier []payment  // what earlier parts have paid
	covered []*budget  // budgets whose accounts they have paid in full
}

// payment is what an earlier part of a request has paid to one account.
type payment struct {
	budget *budget
	caller *Caller // of that part
	cost   int64
}

// is reports whether the account of p has the key.
func (p *payment) is(k *Key) bool {
	if p.budget.Name != k.Budget {
		return false
	}
	var own Key
	p.budget.key(p.caller, &own)
	return own == *k
}

// paid returns what earlier parts have paid to an account, if they have charged it.
func (q *request) paid(k *Key) (charged bool, sum int64) {
	for i := range q.earlier {
		if p := &q.earlier[i]; p.is(k) {
			charged, sum = true, sum+p.cost
		}
	}
	return charged, sum
}

// borrow returns a request of c, which it trims.
func (l *Limiter) borrow(c *Caller, cost int64) *request {
	q, pooled := l.requests.Get().(*request)
	if !pooled {
		q = &request{event: DecisionEvent{Limiter: l.name, Store: l.can.Name}}
	}
	c.trim()
	q.event.Caller, q.event.Cost = *c, cost
	return q
}

func (l *Limiter) giveBack(q *request) {
	q.event.Decision, q.event.Charges, q.event.Err = Decision{}, nil, nil
	q.charges, q.budgets, q.shadows = q.charges[:0], q.budgets[:0], q.shadows[:0]
	q.blocked, q.exempt, q.gated, q.part = nil, false, false, false
	q.all, q.applied, q.aside = nil, 0, nil
	clear(q.earlier) // the callers are parts of contexts
	q.earlier, q.covered = q.earlier[:0], q.covered[:0]
	l.requests.Put(q)
}

// prepare makes the charges of a request. decided is true if no store call is
// needed, because the decision is made or err is not nil.
func (q *request) prepare(ctx context.Context, l *Limiter) (decided bool, err error) {
	if l.store == nil {
		return true, errZero("Limiter", "New")
	}
	if err := checkCost(q.event.Cost); err != nil {
		return true, err
	}
	if err := ctx.Err(); err != nil {
		return true, err
	}
	if l.gate != nil && !q.gated && !q.part {
		answer := l.gate(ctx, q.event.Caller)
		if q.exempt = answer.Exempt && !answer.Blocked; answer.Exempt || answer.Blocked {
			q.event.Decision = answer.decision()
			return true, nil
		}
	}
	if err := q.fill(ctx, l); err != nil {
		return true, err
	}
	switch {
	case q.blocked != nil:
		q.event.Decision = Decision{Outcome: Never, Budget: q.blocked.Name, Limit: Blocked}
	case len(q.charges) == 0:
		q.event.Decision.Outcome = Allow
	default:
		return false, nil
	}
	return true, nil
}

// fill makes one charge for each budget that applies. Budgets by workload come after
// those that bound them, and only with one of those.
func (q *request) fill(ctx context.Context, l *Limiter) error {
	c := &q.event.Caller
	nobody := c.Principal.Nobody()
	q.all, q.applied = l.budgets.Load(), 0
	for _, b := range *q.all {
		if !b.applies(c.Route) {
			continue
		}
		q.applied++
		if b.Scope&ByWorkload != 0 && !q.bounds(b) {
			continue
		}
		if nobody && b.Scope.principals() {
			return ErrNobody
		}
		q.add(ctx, l, b, c, q.event.Cost)
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
		q.setAside(b, charge, Allow)
		return
	case blocked:
		q.setAside(b, charge, Never)
		if b.Shadow {
			q.shadows = append(q.shadows, b)
		} else if q.blocked == nil || b.Name < q.blocked.Name {
			q.blocked = b
		}
		return
	}
	charge.Cost = b.cost(cost)
	if q.part && q.cover(b, charge) {
		return
	}
	charge.Shadow = b.Shadow
	charge.Result, charge.Receipt = Result{}, Receipt{}
	q.charges = q.charges[:n+1]
	q.budgets = append(q.budgets, b)
}

// charged returns budgets of which those have been charged that apply to the route.
func (q *request) charged() *[]*budget {
	if len(q.budgets) == q.applied { // no LimitFor answered Unlimited or Blocked
		return q.all
	}
	own := slices.Clone(q.budgets)
	return &own
}

// cost returns what a request of that cost pays here.
func (b *budget) cost(cost int64) int64 {
	if b.PerRequest {
		return 1
	}
	return cost
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
