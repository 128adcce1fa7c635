package storetest

import (
	"math/big"

	"github.com/ration-go/ration/limiter"
)

// draw is what one request draws on one account of the model.
type draw struct {
	charge  limiter.Charge // the first of its key; Cost is the sum
	account *balance
	outcome limiter.Outcome
	result  limiter.Result
}

// decide decides the charges at now, writes their results and returns the
// decision; take says whether an allowed request is debited.
func (m *model) decide(now int64, charges []limiter.Charge, take bool) limiter.Decision {
	draws := m.draws(now, charges)
	allowed := true
	for i := range draws {
		d := &draws[i]
		d.outcome = d.account.judge(now, d.charge.Cost)
		allowed = allowed && (d.charge.Shadow || d.outcome == limiter.Allow)
	}
	var best *draw
	for i := range draws {
		d := &draws[i]
		if allowed && d.outcome == limiter.Allow {
			d.account.debit(now, d.charge.Cost)
		}
		d.result = d.account.result(now, d.charge.Cost, d.outcome)
		if !d.charge.Shadow && (best == nil || d.before(best, now)) {
			best = d
		}
		for j := range charges {
			if charges[j].Key == d.charge.Key {
				charges[j].Result = d.result
			}
		}
		if take && (d.outcome == limiter.Deny || allowed) {
			m.accounts[d.charge.Key] = d.account
		}
	}
	return best.decision()
}

// draws adds up the charges by key, each on a copy of its account.
func (m *model) draws(now int64, charges []limiter.Charge) []draw {
	var draws []draw
next:
	for _, c := range charges {
		for i := range draws {
			if sum := &draws[i].charge; sum.Key == c.Key {
				sum.Cost += c.Cost
				continue next
			}
		}
		draws = append(draws, draw{charge: c, account: m.account(now, c)})
	}
	return draws
}

// account returns a copy of the account of c, under the limit of c.
func (m *model) account(now int64, c limiter.Charge) *balance {
	b := m.accounts[c.Key]
	if b == nil {
		return &balance{limit: c.Limit, step: m.step, used: rat(0), at: now}
	}
	mine := *b
	mine.took = append([]entry(nil), b.took...)
	l, old := c.Limit, b.limit
	l.Burst, old.Burst = l.Capacity(), old.Capacity()
	if l != old {
		mine.change(c.Limit, now)
	}
	return &mine
}

// before reports whether d decides rather than other: never, then deny with the
// longest wait, then the least left relative to the capacity, then by key.
func (d *draw) before(other *draw, now int64) bool {
	if d.outcome != other.outcome {
		return d.outcome > other.outcome
	}
	if d.result.RetryAfter != other.result.RetryAfter {
		return d.result.RetryAfter > other.result.RetryAfter
	}
	if d.outcome == limiter.Allow {
		mine := new(big.Rat).Quo(d.account.left(now), d.account.capacity())
		its := new(big.Rat).Quo(other.account.left(now), other.account.capacity())
		if c := mine.Cmp(its); c != 0 {
			return c < 0
		}
	}
	return d.charge.Key.Compare(other.charge.Key) < 0
}

// decision returns the answer of the budget that decides; none decides nothing.
func (d *draw) decision() limiter.Decision {
	if d == nil {
		return limiter.Decision{Outcome: limiter.Allow}
	}
	return limiter.Decision{
		Outcome: d.outcome, Budget: d.charge.Key.Budget, Limit: d.charge.Limit,
		Remaining: d.result.Remaining, RetryAfter: d.result.RetryAfter,
		ResetAfter: d.result.ResetAfter,
	}
}
