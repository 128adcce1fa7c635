package storetest_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"time"

	"github.com/ration-go/ration/internal/account"
	"github.com/ration-go/ration/limiter"
)

// answer writes the results and the receipts, and returns the decision.
func (s *reference) answer(
	draws []draw, charges []limiter.Charge, now int64, taken bool,
) limiter.Decision {
	if s.is("writes to charges of the past") {
		for i := range s.seen {
			s.seen[i].Result = limiter.Result{}
		}
	}
	if s.is("writes to charges of the past") {
		s.seen = charges
	}
	var best *draw
	for i := range draws {
		d := &draws[i]
		d.result = s.result(d)
		for j := range charges {
			if c := &charges[j]; c.Key == d.charge.Key {
				c.Result = d.result
				s.receipt(c, d, now, taken)
			}
		}
		if (!d.charge.Shadow || s.is("shadow decides")) && (best == nil || s.before(d, best)) {
			best = d
		}
	}
	if best == nil && len(charges) == 0 && s.is("refuses a request without charges") {
		return limiter.Decision{Outcome: limiter.Deny}
	}
	if best == nil {
		return limiter.Decision{Outcome: limiter.Allow}
	}
	return limiter.Decision{
		Outcome: best.result.Outcome, Budget: best.charge.Key.Budget, Limit: best.charge.Limit,
		Remaining: best.result.Remaining, RetryAfter: best.result.RetryAfter,
		ResetAfter: best.result.ResetAfter,
	}
}

func (s *reference) receipt(c *limiter.Charge, d *draw, now int64, taken bool) {
	if !s.is("a refusal keeps the receipt") || taken {
		c.Receipt = limiter.Receipt{}
	}
	if c.Shadow && s.is("shadows have no receipt") {
		return
	}
	if taken && d.outcome == limiter.Allow || s.is("peek writes a receipt") {
		c.Receipt = limiter.NewReceipt(now, c.Cost, 0)
	}
}

func (s *reference) result(d *draw) limiter.Result {
	a := d.account.Account
	r := limiter.Result{
		Outcome:    d.outcome,
		Remaining:  a.Limit.Remaining(d.used),
		ResetAfter: time.Duration(a.Reset(d.now) * s.step),
	}
	if d.outcome == limiter.Deny && d.cost > 0 && d.cost <= a.Limit.Burst {
		r.RetryAfter = s.wait(d)
	}
	return r
}

func (s *reference) wait(d *draw) time.Duration {
	a := d.account.Account
	wait := a.Wait(d.used, d.now, d.cost)
	bucket := a.Limit.Algorithm == account.TokenBucket
	switch {
	case s.is("rounds waits down") && bucket:
		wait = max(wait-1, 1)
	case s.is("rounds waits up to a millisecond"):
		wait = (wait + 999_999) / 1_000_000 * 1_000_000
	case s.is("waits until the whole log is empty") && a.Limit.Algorithm == account.RollingLog:
		wait = a.Reset(d.now)
	case s.is("waits a whole window") && a.Limit.Algorithm == account.FixedWindow:
		wait = int64(a.Limit.Per)
	}
	return time.Duration(wait * s.step)
}

func (s *reference) before(d, other *draw) bool {
	a, b := d.account.Limit, other.account.Limit
	switch {
	case s.is("the first charge decides") && d.outcome == other.outcome:
		return false
	case d.outcome != other.outcome:
		return d.outcome > other.outcome
	case d.result.RetryAfter != other.result.RetryAfter && !s.is("the shortest wait decides"):
		return d.result.RetryAfter > other.result.RetryAfter
	case d.result.RetryAfter != other.result.RetryAfter:
		return d.result.RetryAfter < other.result.RetryAfter
	case s.is("the least left decides, whatever the capacity"):
		return d.result.Remaining < other.result.Remaining
	case d.outcome == limiter.Allow:
		more := account.CompareRatios(d.used, a.Capacity(), other.used, b.Capacity())
		if more != 0 {
			return more > 0
		}
	}
	return d.charge.Key.Compare(other.charge.Key) < 0
}

func (s *reference) Settle(_ context.Context, charges []limiter.Charge) error {
	if !s.is("settles one by one") {
		if err := s.checkSettle(charges); err != nil {
			return err
		}
	}
	now := s.clock()
	s.mu.Lock()
	defer s.mu.Unlock()
	now = s.advance(now)
	for i := range charges {
		if s.is("settles one by one") {
			if err := s.checkSettle(charges[i : i+1]); err != nil {
				return err
			}
		}
		if i > 1 && s.is("settles two charges only") {
			break
		}
		s.correct(&charges[i], now)
	}
	return nil
}

func (s *reference) checkSettle(charges []limiter.Charge) error {
	err := limiter.CheckSettle(charges)
	var cost *limiter.CostError
	switch {
	case errors.As(err, &cost) && s.is("credits more than was taken"):
		return nil
	case errors.As(err, &cost) && s.is("a credit that is too large consumes the receipt"):
		charges[0].Receipt = limiter.Receipt{}
	case errors.Is(err, limiter.ErrReceipt) && s.is("settles without a receipt"):
		return nil
	case errors.Is(err, limiter.ErrReceipt) && s.is("a missing receipt has another error"):
		return fmt.Errorf("nothing to settle")
	}
	return err
}

// late reports whether the window of at has ended at now, or its entry has left.
func (s *reference) late(l *account.Limit, at, now int64) bool {
	per := int64(l.Per)
	switch l.Algorithm {
	case account.FixedWindow:
		return at/per != now/per
	case account.RollingLog:
		return now-at >= per
	default:
		return false
	}
}

func (s *reference) correct(c *limiter.Charge, now int64) {
	if s.prepare(c.Limit) != nil {
		return
	}
	id := s.id(c.Key)
	a := s.accounts[id]
	if a.Limit == nil {
		a.Account, _ = a.Under(s.rules[c.Limit], now)
	}
	at, _, _, _ := c.Receipt.Taken()
	if s.is("corrects the window of now") {
		at = now
	}
	delta := c.Cost
	if s.is("forgets late debits") && s.late(a.Limit, at, now) {
		delta = min(delta, 0)
	}
	left := a.Limit.Remaining(a.Used(now))
	capacity := c.Limit.Capacity()
	if s.is("credits above the capacity") && left-delta > capacity {
		a.banked += uint64(left - delta - capacity)
	}
	if s.is("a debit stops at zero") {
		delta = min(delta, left)
	}
	if s.is("loses concurrent corrections") {
		s.mu.Unlock()
		runtime.Gosched()
		s.mu.Lock()
	}
	if s.is("debts have no floor") && delta > 0 {
		a.Debit(a.Used(now), now, uint64(delta))
	} else if delta > math.MinInt64 {
		a.Settle(now, at, delta)
	}
	s.accounts[id] = a
	if !s.is("a receipt can be used twice") {
		c.Receipt = limiter.Receipt{}
	}
}
