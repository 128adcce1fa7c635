package redisstore

import (
	"encoding/binary"
	"math"
	"strings"
	"time"

	"github.com/ration-go/ration/internal/account"
	"github.com/ration-go/ration/internal/pick"
	"github.com/ration-go/ration/limiter"
)

// read reads the line's reply: its accounts as they were before it at the instant
// now. An account's own instant may exceed now by at most ahead. The error is that of the
// line.
func (l *line) read(n *numbers, now, ahead int64) error {
	if n.byte() != 0 {
		text := n.bytes(int(n.byte()) + int(n.byte())<<8)
		return storeError(lineError(strings.TrimPrefix(text, "-")), true)
	}
	if l.verb > take && len(l.runs) > 0 {
		return nil
	}
	for j := range l.draws {
		d := &l.draws[j]
		d.used, d.at = n.within(0, most), n.within(now, now+min(ahead, most))
		if d.rule.kind == limiter.RollingLog {
			d.reset = n.within(int64(bit(d.used > 0)), d.rule.n)
		}
	}
	l.replay(n)
	return nil
}

// lineError is the error of a line in a reply.
type lineError string

func (e lineError) Error() string { return string(e) }

// RedisError marks an error that the server has replied.
func (lineError) RedisError() {}

// replay decides the runs as the script has, and reads their waits.
func (l *line) replay(n *numbers) {
	for i, r := range l.runs {
		admitted := r.count
		for j := range r.draws {
			d, o := &l.draws[j], &r.draws[j]
			o.used = d.used
			if i > 0 {
				before := &l.runs[i-1].draws[j]
				o.used = before.used + before.debits*before.cost*d.rule.p
			}
			if !d.shadow {
				admitted = min(admitted, o.fits(&d.rule))
			}
		}
		for j := range r.draws {
			d, o := &l.draws[j], &r.draws[j]
			if l.verb == take && o.cost > 0 {
				o.debits = min(admitted, o.fits(&d.rule))
			}
			if d.rule.kind == limiter.RollingLog {
				o.wait = n.within(int64(bit(o.refuses(&d.rule, r.count))), d.rule.n)
			}
		}
	}
}

// refuses reports whether the account cannot pay for a request of so many, but could if
// it were full.
func (o *runDraw) refuses(r *rule, count int64) bool {
	return o.cost > 0 && o.cost <= r.capacity && count > o.debits && o.fits(r) == o.debits
}

// fits returns how many requests of the run the account could pay.
func (o *runDraw) fits(r *rule) int64 {
	switch {
	case o.cost == 0:
		return math.MaxInt64
	case o.cost > r.capacity:
		return 0
	default:
		return max(r.units()-o.used, 0) / (o.cost * r.p)
	}
}

// answer writes the results and, if they were taken, the receipts of a request's
// charges, and returns its decision (R6). place is how many requests of the run were
// before it.
func (l *line) answer(r *run, place int64, charges []limiter.Charge) (d limiter.Decision) {
	allowed := true
	for j := range l.draws {
		if d := &l.draws[j]; !d.shadow {
			allowed = allowed && d.rule.judge(r.draws[j].usedBefore(d, place), r.draws[j].cost) ==
				limiter.Allow
		}
	}
	var p pick.Picker
	for i := range charges {
		c := &charges[i]
		j := l.draw(i)
		d, o := &l.draws[j], &r.draws[j]
		used := o.usedBefore(d, place)
		outcome := d.rule.judge(used, o.cost)
		c.Receipt = limiter.Receipt{}
		if allowed && outcome == limiter.Allow {
			used += o.cost * d.rule.p
			if l.verb == take {
				c.Receipt = limiter.Receipt{At: d.at * int64(time.Microsecond), Taken: c.Cost, Valid: true}
			}
		}
		c.Result = d.result(outcome, used, o)
		p.Offer(c, wide(used), wide(d.rule.units()))
	}
	p.Decide(&d)
	return d
}

// usedBefore returns what is used before the request of that place in the run.
func (o *runDraw) usedBefore(d *draw, place int64) int64 {
	return o.used + min(place, o.debits)*o.cost*d.rule.p
}

// result returns the account as it is when used units are used after the request.
func (d *draw) result(outcome limiter.Outcome, used int64, o *runDraw) limiter.Result {
	r := limiter.Result{Outcome: outcome, Remaining: d.rule.remaining(used)}
	var wait time.Duration
	switch d.rule.kind {
	case limiter.TokenBucket:
		r.ResetAfter = d.rule.fill(used)
		wait = d.rule.fill(used + o.cost*d.rule.p - d.rule.units())
	case limiter.FixedWindow:
		r.ResetAfter = d.rule.left(d.at)
		wait = r.ResetAfter
	case limiter.RollingLog:
		r.ResetAfter, wait = micros(d.reset), micros(o.wait)
		if used > d.used {
			r.ResetAfter = micros(d.rule.n)
		}
	}
	if outcome == limiter.Deny {
		r.RetryAfter = wait
	}
	return r
}

func wide(n int64) account.Uint128 { return account.Uint128{Lo: uint64(n)} }

// numbers reads a reply.
type numbers struct {
	text string
	bad  bool
}

// bytes reads a number of bytes.
func (n *numbers) bytes(count int) string {
	if count > len(n.text) {
		n.bad = true
		return ""
	}
	text := n.text[:count]
	n.text = n.text[count:]
	return text
}

func (n *numbers) byte() byte {
	if text := n.bytes(1); text != "" {
		return text[0]
	}
	return 0
}

// within reads a double that is an integer from low to high. The script writes no
// other, so any other is no answer.
func (n *numbers) within(low, high int64) int64 {
	text := n.bytes(8)
	if text == "" {
		return low
	}
	f := math.Float64frombits(binary.LittleEndian.Uint64([]byte(text)))
	if f != math.Trunc(f) || math.Abs(f) > most || int64(f) < low || int64(f) > high {
		n.bad = true
		return low
	}
	return int64(f)
}
