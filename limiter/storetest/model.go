package storetest

import (
	"math/big"
	"time"

	"github.com/ration-go/ration/limiter"
)

// model is the promise by slow and obvious means: rational numbers for token
// buckets, lists of all that was taken for windows and logs. It knows no clock
// that goes back.
type model struct {
	step     int64 // the store's resolution in nanoseconds
	accounts map[limiter.Key]*balance
}

func newModel(step time.Duration) *model {
	return &model{int64(step), map[limiter.Key]*balance{}}
}

// balance is one account of the model.
type balance struct {
	limit limiter.Limit
	step  int64
	used  *big.Rat // tokens used of a token bucket at the instant at
	at    int64
	took  []entry // all that a window or a log took
}

type entry struct{ at, cost int64 }

func rat(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

// usedAt returns the tokens used at now.
//
//	used'(t+dt) = max(0, used(t) - dt*Tokens/Per)
func (b *balance) usedAt(now int64) *big.Rat {
	if b.limit.Algorithm == limiter.TokenBucket {
		gained := new(big.Rat).Mul(rat(now-b.at), b.rate())
		used := new(big.Rat).Sub(b.used, gained)
		if used.Sign() < 0 {
			return rat(0)
		}
		return used
	}
	var used int64
	for _, e := range b.took {
		if b.counts(e, now) {
			used += e.cost
		}
	}
	return rat(used)
}

// rate returns tokens per nanosecond.
func (b *balance) rate() *big.Rat { return big.NewRat(b.limit.Tokens, int64(b.limit.Per)) }

// counts reports whether a window or a log at now still holds what was taken.
func (b *balance) counts(e entry, now int64) bool {
	per := int64(b.limit.Per)
	if b.limit.Algorithm == limiter.FixedWindow {
		return window(e.at, per) == window(now, per)
	}
	return e.at > now-per
}

// window returns the number of the window of an instant, rounded down.
func window(at, per int64) int64 {
	n := at / per
	if at%per < 0 {
		n--
	}
	return n
}

// until returns the least wait after which at most want tokens are used.
func (b *balance) until(now int64, want *big.Rat) time.Duration {
	per := int64(b.limit.Per)
	switch b.limit.Algorithm {
	case limiter.FixedWindow:
		return time.Duration((window(now, per)+1)*per - now)
	case limiter.RollingLog:
		return b.leave(now, want)
	}
	used := b.usedAt(now)
	if used.Cmp(want) <= 0 {
		return 0
	}
	wait := new(big.Rat).Sub(used, want)
	wait.Quo(wait, b.rate())
	return time.Duration(ceil(wait.Quo(wait, rat(b.step))) * b.step)
}

// leave returns the wait until enough of the oldest entries have left the log.
func (b *balance) leave(now int64, want *big.Rat) time.Duration {
	per := int64(b.limit.Per)
	least := now + per
	for _, at := range append(b.took, entry{at: now - per}) {
		if gone := at.at + per; now <= gone && gone < least && b.usedAt(gone).Cmp(want) <= 0 {
			least = gone
		}
	}
	return time.Duration(least - now)
}

func floor(r *big.Rat) int64 { return new(big.Int).Div(r.Num(), r.Denom()).Int64() }

func ceil(r *big.Rat) int64 { return -floor(new(big.Rat).Neg(r)) }

func (b *balance) capacity() *big.Rat { return rat(b.limit.Capacity()) }

// left returns the tokens left at now, negative in debt.
func (b *balance) left(now int64) *big.Rat {
	return new(big.Rat).Sub(b.capacity(), b.usedAt(now))
}

func (b *balance) judge(now, cost int64) limiter.Outcome {
	switch {
	case cost > b.limit.Capacity():
		return limiter.Never
	case cost == 0 || b.left(now).Cmp(rat(cost)) >= 0:
		return limiter.Allow
	default:
		return limiter.Deny
	}
}

func (b *balance) debit(now, cost int64) {
	b.used, b.at = new(big.Rat).Add(b.usedAt(now), rat(cost)), now
	b.took = append(b.took, entry{now, cost})
}

// result returns the state at now, with the wait for a cost that is denied.
func (b *balance) result(now, cost int64, outcome limiter.Outcome) limiter.Result {
	r := limiter.Result{Outcome: outcome, ResetAfter: b.until(now, rat(0))}
	if left := b.left(now); left.Sign() > 0 {
		r.Remaining = floor(left)
	}
	if outcome == limiter.Deny {
		r.RetryAfter = b.until(now, new(big.Rat).Sub(b.capacity(), rat(cost)))
	}
	return r
}

// settle corrects by delta what was taken at the instant at.
func (b *balance) settle(now, at, delta int64) {
	if b.limit.Algorithm != limiter.TokenBucket && !b.counts(entry{at: at}, now) {
		if delta < 0 {
			return
		}
		at = now
	}
	if b.limit.Algorithm == limiter.RollingLog && delta < 0 {
		b.uncount(at, -delta)
		return
	}
	used := b.usedAt(now)
	moved := rat(delta)
	if room := new(big.Rat).Add(b.capacity(), b.left(now)); moved.Cmp(room) > 0 {
		moved = room
	}
	if floor := new(big.Rat).Neg(used); moved.Cmp(floor) < 0 {
		moved = floor
	}
	b.used, b.at = used.Add(used, moved), now
	b.took = append(b.took, entry{at, moved.Num().Int64()})
}

// uncount takes credit tokens away from the entries of one instant.
func (b *balance) uncount(at, credit int64) {
	for i := range b.took {
		if e := &b.took[i]; e.at == at {
			n := min(e.cost, credit)
			e.cost, credit = e.cost-n, credit-n
		}
	}
}

// change carries the balance of a token bucket over to another, without minting.
func (b *balance) change(l limiter.Limit, now int64) {
	used, left := b.usedAt(now), b.left(now)
	b.limit, b.at = l, now
	if used.Sign() == 0 {
		b.used = used
		return
	}
	unit := rat(int64(l.Per) / b.step)
	left = new(big.Rat).Quo(rat(floor(left.Mul(left, unit))), unit)
	if left.Cmp(b.capacity()) > 0 {
		left = b.capacity()
	}
	b.used = new(big.Rat).Sub(b.capacity(), left)
}
