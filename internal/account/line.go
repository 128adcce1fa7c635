package account

import "math"

// Line is the sum of the costs that wait to be paid from one account, one after
// the other. Its methods cost O(1), and O(log n) for a rolling log of n entries,
// however many wait. The zero Line is empty.
type Line struct{ total Uint128 }

// Join adds a cost to the line.
func (l *Line) Join(cost uint64) { l.total = l.total.add(Uint128{Lo: cost}) }

// Leave takes a cost, which has joined, off the line.
func (l *Line) Leave(cost uint64) { l.total = l.total.sub(Uint128{Lo: cost}) }

// Wait returns the least number of nanoseconds after which the account, of which
// used units are used at now, can have paid the line and then cost. With total =
// the line + cost, that is
//
//	token bucket: ceil((used + total*unit - capacity) / Tokens)
//	fixed window: the rest of this window, and Per for each further Tokens
//	rolling log:  until total mod Tokens fit, and Per for each further Tokens
//
// No order of payments is faster. The order of the line takes longer only if a
// cost does not fit into what is left of a window or a log, so that this part
// stays unused, or if less than a nanosecond's refill is lost at the capacity.
func (l Line) Wait(a *Account, used Uint128, now int64, cost uint64) int64 {
	rule, total := a.Limit, l.total.add(Uint128{Lo: cost})
	if total.Hi > 0 {
		total = Uint128{Lo: math.MaxUint64} // the bound stays a bound
	}
	needed := rule.After(used, total.Lo)
	if !rule.capacity.less(needed) {
		return 0
	}
	missing := needed.sub(rule.capacity)
	switch rule.Algorithm {
	case FixedWindow:
		_, left := window(now, rule.Per)
		return later(left, missing.ceilDiv(rule.Burst)-1, rule.Per)
	case RollingLog:
		rounds := (total.Lo - 1) / rule.Burst
		last := total.Lo - rounds*rule.Burst
		wait := int64(0)
		if rule.capacity.less(rule.After(used, last)) {
			wait = a.Log.wait(now, rule.Per, rule.Burst-last)
		}
		return later(wait, rounds, rule.Per)
	default:
		return int64(missing.ceilDiv(rule.Tokens))
	}
}

// later returns wait and n times per, saturating at MaxInt64.
func later(wait int64, n, per uint64) int64 {
	sum := mul(n, per).add(Uint128{Lo: uint64(wait)})
	return int64(sum.ceilDiv(1))
}
