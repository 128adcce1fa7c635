package redisstore

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/ration-go/ration/internal/account"
	"github.com/ration-go/ration/internal/pick"
	"github.com/ration-go/ration/limiter"
)

// draw is what one request draws on one account. Charges with one key add up.
type draw struct {
	charge *limiter.Charge // the first of its key
	rule   rule
	cost   int64

	// From the reply: the account before the request.
	used        int64 // in units
	at          int64 // the instant of the request for this account
	wait, reset int64 // of a rolling log, in microseconds

	outcome limiter.Outcome
	debited bool
}

// newDraws adds up the charges by key. A limit that the store cannot hold is an
// error; so is a key with two limits, or both enforced and shadow.
func newDraws(charges []limiter.Charge) ([]draw, error) {
	draws := make([]draw, 0, len(charges))
	for i := range charges {
		c := &charges[i]
		r, err := newRule(c.Limit)
		if err != nil {
			return nil, err
		}
		d := find(draws, c)
		if d == nil {
			draws = append(draws, draw{charge: c, rule: r, cost: c.Cost})
			continue
		}
		if d.rule != r || d.charge.Shadow != c.Shadow {
			return nil, wrong("Charges", c.Key.Budget,
				"one key has two limits, or is both enforced and shadow")
		}
		d.cost += min(c.Cost, math.MaxInt64-d.cost)
	}
	return draws, nil
}

// find returns the draw on the account of the charge.
func find(draws []draw, c *limiter.Charge) *draw {
	for i := range draws {
		if draws[i].charge.Key == c.Key {
			return &draws[i]
		}
	}
	return nil
}

// appendArg appends what the script is told about the account.
func (d *draw) appendArg(dst []byte) []byte {
	var shadow int64
	if d.charge.Shadow {
		shadow = 1
	}
	dst = d.rule.appendHead(dst)
	return appendNumbers(dst, min(d.cost, d.rule.capacity+1), shadow)
}

// numbers reads the doubles of a reply.
type numbers struct {
	text string
	bad  bool
}

func (n *numbers) next() int64 {
	if len(n.text) < 8 {
		n.bad = true
		return 0
	}
	f := math.Float64frombits(binary.LittleEndian.Uint64([]byte(n.text[:8])))
	n.text = n.text[8:]
	if f != math.Trunc(f) || math.Abs(f) > most {
		n.bad = true
	}
	return int64(f)
}

// within reads a number from low to high. The script writes no other, so any other
// is no answer.
func (n *numbers) within(low, high int64) int64 {
	number := n.next()
	if number < low || number > high {
		n.bad = true
	}
	return number
}

// read reads the account from the reply to a request at the instant now, of which
// an account may be ahead by so much, and decides it.
func (d *draw) read(n *numbers, now, ahead int64) {
	d.used, d.at = n.within(0, most), n.within(now, now+min(ahead, most))
	d.outcome = d.rule.judge(d.used, d.cost)
	if d.rule.kind == limiter.RollingLog {
		d.wait = n.within(least(d.outcome == limiter.Deny), d.rule.n)
		d.reset = n.within(least(d.used > 0), d.rule.n)
	}
}

// least returns the least wait, in microseconds, that there is or is not.
func least(waits bool) int64 {
	if waits {
		return 1
	}
	return 0
}

// decide decides the request as the script has, and debits the draws.
func decide(draws []draw) (allowed bool) {
	allowed = true
	for i := range draws {
		d := &draws[i]
		allowed = allowed && (d.charge.Shadow || d.outcome == limiter.Allow)
	}
	for i := range draws {
		if d := &draws[i]; allowed && d.outcome == limiter.Allow {
			d.debited = true
			d.used += d.cost * d.rule.p
			if d.cost > 0 {
				d.reset = d.rule.n
			}
		}
	}
	return allowed
}

// result returns the account as it is after the request.
func (d *draw) result() limiter.Result {
	r := limiter.Result{Outcome: d.outcome, Remaining: d.rule.remaining(d.used)}
	var wait time.Duration
	switch d.rule.kind {
	case limiter.TokenBucket:
		r.ResetAfter = d.rule.fill(d.used)
		wait = d.rule.fill(d.used + d.cost*d.rule.p - d.rule.units())
	case limiter.FixedWindow:
		r.ResetAfter = d.rule.left(d.at)
		wait = r.ResetAfter
	case limiter.RollingLog:
		r.ResetAfter, wait = micros(d.reset), micros(d.wait)
	}
	if d.outcome == limiter.Deny {
		r.RetryAfter = wait
	}
	return r
}

// answer writes the results and, where they were taken, the receipts of the
// charges, and returns the decision (R6).
func answer(draws []draw, charges []limiter.Charge, taken bool) limiter.Decision {
	var p pick.Picker
	for i := range charges {
		c := &charges[i]
		d := find(draws, c)
		c.Result, c.Receipt = d.result(), limiter.Receipt{}
		if taken && d.debited {
			c.Receipt = limiter.Receipt{At: d.at * int64(time.Microsecond), Taken: c.Cost, Valid: true}
		}
		p.Offer(c, wide(d.used), wide(d.rule.units()))
	}
	var decision limiter.Decision
	p.Decide(&decision)
	return decision
}

func wide(n int64) account.Uint128 { return account.Uint128{Lo: uint64(n)} }
