package account

import "math"

// Under returns the account as it is counted under l from now on, with the
// units used then. It changes nothing: the caller stores the result or drops
// it. A change of limit never mints tokens:
//
//   - full stays full;
//   - token bucket to token bucket: refilled to now by the old limit, then
//     balance' = min(floor(balance*Per')/Per', Capacity');
//   - between a token bucket and a window or a log: left' = min(floor(left),
//     Capacity'), in tokens, and a debt stays;
//   - windows and logs carry what was used, also between each other. If the
//     length or the algorithm changes, it counts as used now.
//
// The last two alone would mint: a bucket of 10 with 5 left becomes a window of 5
// with nothing used, and that a window of 10 with nothing used. So a window or log
// that was made from a bucket carries what is left to the next limit, too, until
// that window ends or Per has passed since.
func (a Account) Under(l *Limit, now int64) (Account, Uint128) {
	used := a.Used(now)
	if a.Limit == l {
		return a, used
	}
	if used.isZero() {
		return Account{Limit: l, State: FullState}, used
	}
	old := a.Limit
	if old.Algorithm == TokenBucket && l.Algorithm == TokenBucket {
		return l.bucket(old.rebase(used, l), now)
	}
	left := a.carriesLeft(now)
	if old.Algorithm == l.Algorithm && old.Per == l.Per && !left {
		return Account{Limit: l, State: a.State, Log: a.Log}, used
	}
	tokens := used.Lo // of a window or a log
	if left || l.Algorithm == TokenBucket {
		tokens = old.carry(used, l)
	}
	return l.start(tokens, left, now)
}

// carriesLeft reports whether a change of the limit carries what is left of the
// account to a window or a log, rather than what was used.
func (a *Account) carriesLeft(now int64) bool {
	switch a.Limit.Algorithm {
	case FixedWindow:
		return a.State.Rest&carryLeft != 0
	case RollingLog:
		return a.Log.carries && !gone(a.Log.carried, now, a.Limit.Per)
	default:
		return true
	}
}

// carry returns the tokens to count as used under next, so that what is left of
// used units of l is left there, at most the capacity. Debts are kept.
func (l *Limit) carry(used Uint128, next *Limit) uint64 {
	if l.capacity.less(used) {
		return next.Burst + used.sub(l.capacity).ceilDiv(l.unit)
	}
	left, _ := l.capacity.sub(used).div(l.unit)
	return next.Burst - min(left, next.Burst)
}

// start returns an account of which so many tokens are used at now.
func (l *Limit) start(tokens uint64, left bool, now int64) (Account, Uint128) {
	if l.Algorithm == TokenBucket {
		return l.bucket(mul(tokens, l.unit), now)
	}
	tokens = min(tokens, math.MaxInt64)
	a := Account{Limit: l}
	if l.Algorithm == RollingLog {
		a.Log = newLog(now, tokens, left)
	} else {
		index, _ := window(now, l.Per)
		a.State = State{At: index, Rest: tokens}
		if left {
			a.State.Rest |= carryLeft
		}
	}
	return a, Uint128{Lo: tokens}
}

// FullState is full under every algorithm, at every instant.
var FullState = State{At: math.MinInt64}

// bucket returns a token bucket of the limit with used units used at now,
// saturated as its state is.
func (l *Limit) bucket(used Uint128, now int64) (Account, Uint128) {
	a := Account{Limit: l, State: bucketState(l, used, now)}
	return a, a.Used(now)
}

// rebase converts the units used under l to those of next, so that the balance
// is rounded down to next's unit and clamped at its capacity. Debts are kept.
func (l *Limit) rebase(used Uint128, next *Limit) Uint128 {
	if l.capacity.less(used) {
		whole, rest := used.sub(l.capacity).div(l.Per)
		debt := mul(whole, next.Per).add(Uint128{Lo: mul(rest, next.Per).ceilDiv(l.Per)})
		return next.capacity.add(debt)
	}
	whole, rest := l.capacity.sub(used).div(l.Per)
	part, _ := mul(rest, next.Per).div(l.Per)
	balance := mul(whole, next.Per).add(Uint128{Lo: part})
	return next.capacity.floorSub(balance)
}
