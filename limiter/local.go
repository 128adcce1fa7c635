package limiter

import (
	"context"
	"math/bits"
	"time"
)

// local asks the local side of the store what the store was asked, for the enforced
// budgets that are Local. Afterwards the charges of q are those of these budgets, with
// the limits that they have there. It returns the policy that has answered: a budget
// that has no share now, or whose share can never pay, is [Closed]. The policy is 0 if
// the caller has left meanwhile.
func (q *request) local(ctx context.Context, l *Limiter, ask storeCall) (Decision, FailurePolicy) {
	q.keepLocal()
	limits := make([]Limit, len(q.charges)) // of the budgets
	var never, closed Decision              // of the first budget by name
	for i := range q.charges {
		c := &q.charges[i]
		limits[i] = c.Limit
		share, err := l.can.Share(c.Limit, q.budgets[i].PerRequest)
		if err == nil {
			err = l.can.Local.Check(share)
		}
		switch {
		case c.Cost > c.Limit.Capacity():
			never = firstByName(never, Decision{Outcome: Never, Budget: c.Key.Budget, Limit: c.Limit})
		case err != nil, c.Cost > share.Capacity():
			closed = firstByName(closed, closedBy(c.Key.Budget, c.Limit))
		}
		c.Limit, c.Result, c.Receipt = share, Result{}, Receipt{}
	}
	switch {
	case never.Outcome != 0:
		return never, Local
	case closed.Outcome != 0:
		return closed, Closed
	}
	d, err := ask(l.can.Local, ctx, q.charges)
	if err == nil && !d.valid() {
		err = errUndecided
	}
	if err != nil && ctx.Err() != nil {
		return Decision{}, 0
	}
	for i := range q.charges {
		c := &q.charges[i]
		if err != nil {
			closed = firstByName(closed, closedBy(c.Key.Budget, limits[i]))
		} else if c.Key.Budget == d.Budget {
			d.Limit = limits[i]
			d.RetryAfter = min(d.RetryAfter, limits[i].timeFor(c.Cost))
		}
	}
	if err != nil {
		return closed, Closed
	}
	return d, Local
}

// keepLocal drops all charges but those of the enforced budgets that are Local.
func (q *request) keepLocal() {
	n := 0
	for i, b := range q.budgets {
		if !b.Shadow && b.OnError == Local {
			q.charges[n], q.budgets[n] = q.charges[i], b
			n++
		}
	}
	q.charges, q.budgets = q.charges[:n], q.budgets[:n]
}

// timeFor returns the time in which cost tokens come back, rounded up. cost is at most
// the capacity, so that it is less than 2^63 ns.
func (l *Limit) timeFor(cost int64) time.Duration {
	high, low := bits.Mul64(uint64(cost), uint64(l.Per))
	low, carry := bits.Add64(low, uint64(l.Tokens-1), 0)
	wait, _ := bits.Div64(high+carry, low, uint64(l.Tokens))
	return time.Duration(wait)
}
