package storetest_test

import (
	"time"

	"github.com/ration-go/ration/limiter"
)

// copyBack writes the results and receipts of the charges that were shown to the
// oracle to those of the caller.
func (s *reference) copyBack(
	charges, shown []limiter.Charge, d *limiter.Decision, take bool,
) {
	if s.is("writes to charges of the past") {
		for i := range s.seen {
			s.seen[i].Result = limiter.Result{}
		}
		s.seen = charges
	}
	for i := range charges {
		c := &charges[i]
		if c.Key.Budget == d.Budget && shown[i].Limit == d.Limit {
			d.Limit = c.Limit
		}
		c.Result = shown[i].Result
		s.receipt(c, shown[i].Receipt, take && d.Allowed())
	}
}

func (s *reference) receipt(c *limiter.Charge, written limiter.Receipt, taken bool) {
	switch {
	case s.is("a refusal keeps the receipt") && !taken:
		return
	case s.is("peek writes a receipt") && !written.Valid:
		written = limiter.Receipt{Valid: true, Taken: c.Cost}
	case s.is("shadows have no receipt") && c.Shadow:
		written = limiter.Receipt{}
	}
	if written.Valid {
		written.Taken = c.Cost
	}
	c.Receipt = written
}

// answer returns the decision as the fault makes it, and changes the waits.
func (s *reference) answer(charges []limiter.Charge, d limiter.Decision) limiter.Decision {
	if len(charges) == 0 && s.is("refuses a request without charges") {
		return limiter.Decision{Outcome: limiter.Deny}
	}
	switch s.fault {
	case "the first charge decides", "the shortest wait decides", "shadow decides",
		"the least left decides, whatever the capacity":
		d = s.choose(charges)
	}
	for i := range charges {
		c := &charges[i]
		if c.Result.Outcome != limiter.Deny {
			continue
		}
		c.Result.RetryAfter = s.wait(c)
		if c.Key.Budget == d.Budget && d.Outcome == limiter.Deny {
			d.RetryAfter = c.Result.RetryAfter
		}
	}
	return d
}

func (s *reference) wait(c *limiter.Charge) time.Duration {
	wait := c.Result.RetryAfter
	switch algorithm := c.Limit.Algorithm; {
	case s.is("rounds waits down") && algorithm == limiter.TokenBucket:
		return max(wait-1, 1)
	case s.is("rounds waits up to a millisecond"):
		return (wait + time.Millisecond - 1).Truncate(time.Millisecond)
	case s.is("waits until the whole log is empty") && algorithm == limiter.RollingLog:
		return c.Result.ResetAfter
	case s.is("waits a whole window") && algorithm == limiter.FixedWindow:
		return c.Limit.Per
	}
	return wait
}

// choose returns the decision by a wrong order of the budgets.
func (s *reference) choose(charges []limiter.Charge) limiter.Decision {
	var best *limiter.Charge
	for i := range charges {
		c := &charges[i]
		if (!c.Shadow || s.is("shadow decides")) &&
			(best == nil || s.decides(&c.Result, &best.Result)) {
			best = c
		}
	}
	if best == nil {
		return limiter.Decision{Outcome: limiter.Allow}
	}
	r := &best.Result
	return limiter.Decision{Outcome: r.Outcome, Budget: best.Key.Budget, Limit: best.Limit,
		Remaining: r.Remaining, RetryAfter: r.RetryAfter, ResetAfter: r.ResetAfter}
}

// decides reports whether a result decides rather than another, by the order of the fault.
func (s *reference) decides(r, other *limiter.Result) bool {
	switch {
	case r.Outcome != other.Outcome:
		return r.Outcome > other.Outcome
	case s.is("the first charge decides"):
		return false
	case s.is("the shortest wait decides"):
		return r.RetryAfter < other.RetryAfter
	default:
		return r.RetryAfter > other.RetryAfter || r.Remaining < other.Remaining
	}
}
