package limiter

import (
	"context"
	"slices"
)

// Explain says what Take would decide now, and why, for operators and support pages. It
// changes no balance, and an Observer gets no decision, but only the call of the store.
// Take would report the same event, except that
//
//   - Charges are the caller's to keep,
//   - they include those of budgets whose LimitFor answered [Unlimited] or [Blocked],
//     which have that limit and no account, and
//   - if one is Blocked, the others are there, too, with their balances as they are: at
//     a cost of 0. If the store fails, they are not.
//
// The charges are the budgets that apply: each with its key, its limit, what it costs
// here, and its own Result. Decision.RetryAfter says when the request could be allowed.
// Err is the error that Explain returns, which is one that [Limiter.Take] would return;
// if it is not a *[StoreError], the Decision is zero. Cost: one Peek of the store.
func (l *Limiter) Explain(ctx context.Context, c Caller, cost int64) (DecisionEvent, error) {
	q := l.borrow(&c, cost)
	defer l.giveBack(q)
	var aside []Charge
	q.aside = &aside
	err := l.peek(ctx, q)
	if err == nil && q.blocked != nil && len(q.charges) > 0 {
		for i := range q.charges {
			q.charges[i].Cost = 0
		}
		if _, failed := l.store.Peek(ctx, q.charges); failed != nil {
			q.charges = q.charges[:0] // their balances are not known; the decision stands
		}
	}
	e := q.event
	e.Charges, e.Err = append(slices.Clone(q.charges), aside...), err
	return e, err
}

// setAside keeps, for Explain, the charge of a budget that needs no account.
func (q *request) setAside(b *budget, c *Charge, o Outcome) {
	if q.aside == nil {
		return
	}
	*q.aside = append(*q.aside, Charge{Key: c.Key, Limit: c.Limit, Cost: b.cost(q.event.Cost),
		Shadow: b.Shadow, Result: Result{Outcome: o}})
}
