package account

import "math"

// Under returns the account as it is counted under l from now on, with the
// units used then. It changes nothing: the caller stores the result or drops
// it. A change of limit never mints tokens:
//
//   - full stays full;
//   - token bucket to token bucket: refilled to now by the old limit, then
//     balance' = min(floor(balance*Per')/Per', Capacity');
//   - windows of one length and logs of one length carry what was used;
//   - all else: what was used, in tokens rounded up, counts as used now.
func (a Account) Under(l *Limit, now int64) (Account, Uint128) {
	used := a.Used(now)
	if a.Limit == l {
		return a, used
	}
	if used.isZero() {
		return Account{Limit: l, State: emptyState}, used
	}
	old := a.Limit
	if old.Algorithm == l.Algorithm {
		if old.Algorithm == TokenBucket {
			return l.bucket(old.rebase(used, l), now)
		}
		if old.Per == l.Per {
			return Account{Limit: l, State: a.State, Log: a.Log}, used
		}
	}
	tokens := old.TokensUsed(used)
	switch l.Algorithm {
	case FixedWindow:
		index, _ := window(now, l.Per)
		return Account{Limit: l, State: State{At: index, Rest: tokens}}, Uint128{Lo: tokens}
	case RollingLog:
		log := newLog(now, tokens)
		return Account{Limit: l, Log: log}, Uint128{Lo: log.used(now, l.Per)}
	default:
		return l.bucket(mul(tokens, l.unit), now)
	}
}

// emptyState is full under every algorithm, at every instant.
var emptyState = State{At: math.MinInt64}

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
