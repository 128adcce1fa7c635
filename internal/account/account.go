// Package account is the exact arithmetic behind one key: a token bucket, a
// fixed window or a rolling log, seen at an instant.
//
// The package reads no clock, locks nothing, and has no keys or stores. Instants are
// nanoseconds since the Unix epoch; callers ensure that they never go back. All
// arithmetic is integer: what is used of an account is counted in units. One token
// is Per units (token bucket) or one unit (window, log), so that a token bucket gains
// exactly Tokens units a nanosecond, and no remainder is ever lost.
//
//	used'(t+dt) = max(0, used(t) - dt*Tokens)
//	balance     = (Capacity*Per - used) / Per   tokens
//
// A token bucket is kept as the instant at which it is full again:
// full = now + used/Tokens nanoseconds, as whole nanoseconds and a remainder in
// Tokens-ths of one. Refilling needs no write, and an account that is full is
// the same as none (GCRA of ITU-T I.371 keeps the same instant, without the
// remainder).
package account

import (
	"math"
	"math/big"
	"slices"
)

// Algorithm says how an account refills. The values are those of the limiter
// package, which converts between the two.
type Algorithm uint8

// The algorithms.
const (
	TokenBucket Algorithm = iota
	FixedWindow
	RollingLog
)

// Limit is a valid limit, prepared for arithmetic. It is immutable.
type Limit struct {
	Algorithm Algorithm
	Tokens    uint64 // tokens per Per
	Per       uint64 // nanoseconds
	Burst     uint64 // capacity in tokens

	unit     uint64  // units in one token
	capacity Uint128 // capacity in units
}

// NewLimit prepares a limit; the numbers are valid, and burst is the capacity
// itself, never 0.
func NewLimit(a Algorithm, tokens, per, burst int64) Limit {
	l := Limit{Algorithm: a, Tokens: uint64(tokens), Per: uint64(per), Burst: uint64(burst), unit: 1}
	if a == TokenBucket {
		l.unit = l.Per
	}
	l.capacity = mul(l.Burst, l.unit)
	return l
}

// FillTime returns the nanoseconds, rounded up, in which an empty account is
// full again, saturating at MaxInt64.
func FillTime(tokens, per, burst int64) int64 {
	return int64(mul(uint64(burst), uint64(per)).ceilDiv(uint64(tokens)))
}

// State is what an account keeps beside its limit and its log.
//
//   - Token bucket: At is the instant at which it is full again, modulo 2^64,
//     and Rest the remainder in Tokens-ths of a nanosecond, with the top bit set
//     where At lies beyond the range of int64.
//   - Fixed window: At is the number of the window since the Unix epoch and Rest
//     the tokens used in it, at most MaxInt64, with the top bit set if the
//     account carries what was left; see [Account.Under].
//   - Rolling log: neither; see [Log].
type State struct {
	At   int64
	Rest uint64
}

// The top bit of Rest.
const (
	beyond    = 1 << 63 // a full instant above MaxInt64: instants end there, refills do not
	carryLeft = 1 << 63 // a window that carries what was left
)

// Account is a limit with the state that is counted under it. A nil Limit is an
// account that was never drawn on, which is full under every limit.
type Account struct {
	Limit *Limit
	State State
	Log   *Log // rolling log only; shared by the copies of an Account
	Tight bool // the log may not grow; it is stricter for it, never looser
}

// LogRoom returns how many entries the log has room for; 0 if there is none.
func (a *Account) LogRoom() int {
	if a.Log == nil {
		return 0
	}
	return cap(a.Log.entries)
}

// LogRoomAfter returns how many entries the log has room for once one more is
// added at now, unless it is Tight.
func (a *Account) LogRoomAfter(now int64) int {
	if a.Log == nil {
		return smallestLog
	}
	n, size := len(a.Log.entries), cap(a.Log.entries)
	want := fit(n-a.Log.first(now, a.Limit.Per), size)
	if n < size {
		want = min(want, size)
	}
	return want
}

// Used returns the units used at now: 0 is full, and more than the capacity is
// debt.
func (a *Account) Used(now int64) Uint128 {
	if a.Limit == nil {
		return Uint128{}
	}
	switch a.Limit.Algorithm {
	case FixedWindow:
		if index, _ := window(now, a.Limit.Per); index == a.State.At {
			return Uint128{Lo: a.State.Rest &^ carryLeft}
		}
		return Uint128{}
	case RollingLog:
		return Uint128{Lo: a.Log.used(now, a.Limit.Per)}
	default:
		ns, rest := a.untilFull(now)
		return mul(ns, a.Limit.Tokens).add(Uint128{Lo: rest})
	}
}

// bucketState returns the state of a token bucket of which used units are used at
// now.
func bucketState(l *Limit, used Uint128, now int64) State {
	ns, rest := used.div(l.Tokens)
	if ns > uint64(math.MaxInt64)-uint64(now) {
		rest |= beyond
	}
	return State{At: int64(uint64(now) + ns), Rest: rest}
}

// window returns the number of the window that now lies in and the nanoseconds
// left of it, at least 1. Windows are whole multiples of per since the epoch.
func window(now int64, per uint64) (index, left int64) {
	p := int64(per)
	index, gone := now/p, now%p
	if gone < 0 {
		index, gone = index-1, gone+p
	}
	return index, p - gone
}

// Outcome is what one account says to a cost.
type Outcome uint8

// The outcomes, numbered as in the limiter package.
const (
	Allow Outcome = iota + 1
	Deny
	Never
)

// Judge says what becomes of cost while used units are used: Never above the
// capacity, Allow for a cost of 0 even in debt, else by the balance.
func (l *Limit) Judge(used Uint128, cost uint64) Outcome {
	switch {
	case cost > l.Burst:
		return Never
	case cost == 0 || !l.capacity.less(l.After(used, cost)):
		return Allow
	default:
		return Deny
	}
}

// After returns the units used once cost is paid.
func (l *Limit) After(used Uint128, cost uint64) Uint128 { return used.add(mul(cost, l.unit)) }

// Remaining returns the whole tokens left while used units are used; 0 in debt.
func (l *Limit) Remaining(used Uint128) int64 {
	whole, _ := l.capacity.floorSub(used).div(l.unit)
	return int64(whole)
}

// Capacity returns the capacity in units, for [CompareRatios].
func (l *Limit) Capacity() Uint128 { return l.capacity }

// TokensUsed returns used in whole tokens, rounded up.
func (l *Limit) TokensUsed(used Uint128) uint64 { return used.ceilDiv(l.unit) }

// Wait returns the least number of nanoseconds after which cost, which is
// denied now, can be paid:
//
//	ceil((used + cost*unit - capacity) / Tokens)
//
// for a token bucket; the rest of the window; or until enough of the oldest
// entries leave the log.
func (a *Account) Wait(used Uint128, now int64, cost uint64) int64 {
	l := a.Limit
	switch l.Algorithm {
	case FixedWindow:
		_, left := window(now, l.Per)
		return left
	case RollingLog:
		return a.Log.wait(now, l.Per, l.Burst-cost)
	default:
		missing := l.After(used, cost).sub(l.capacity)
		return int64(missing.ceilDiv(l.Tokens))
	}
}

// Reset returns the nanoseconds until the account is full again, rounded up; for
// a fixed window until the window ends, used or not.
func (a *Account) Reset(now int64) int64 {
	switch a.Limit.Algorithm {
	case FixedWindow:
		_, left := window(now, a.Limit.Per)
		return left
	case RollingLog:
		return a.Log.wait(now, a.Limit.Per, 0)
	default:
		ns, rest := a.untilFull(now)
		if rest > 0 && ns < math.MaxInt64 {
			ns++
		}
		return int64(ns)
	}
}

// Full reports whether nothing is used of the account at now.
func (a *Account) Full(now int64) bool { return a.Used(now).isZero() }

// untilFull returns the time until a token bucket is full again, in nanoseconds
// and Tokens-ths of one.
func (a *Account) untilFull(now int64) (ns, rest uint64) {
	rest = a.State.Rest
	if rest&beyond == 0 && a.State.At < now {
		return 0, 0
	}
	return uint64(a.State.At) - uint64(now), rest &^ beyond
}

// Debit takes cost from the account, which has used units used at now and whose
// balance is known to suffice, and returns what is used then.
func (a *Account) Debit(used Uint128, now int64, cost uint64) Uint128 {
	if a.Limit.Algorithm == RollingLog {
		a.Log = a.Log.add(now, a.Limit.Per, cost, a.Tight)
		return a.Limit.After(used, cost)
	}
	used = a.Limit.After(used, cost)
	a.set(used, now)
	return used
}

// set stores the units used at now in a bucket or a window.
func (a *Account) set(used Uint128, now int64) {
	if a.Limit.Algorithm == FixedWindow {
		index, _ := window(now, a.Limit.Per)
		rest := used.Lo
		if index == a.State.At {
			rest |= a.State.Rest & carryLeft
		}
		a.State = State{At: index, Rest: rest}
		return
	}
	a.State = bucketState(a.Limit, used, now)
}

// SettleUnder corrects what was taken at the instant at under the limit charged,
// which may differ from the account's. If its window has ended or its log entry has
// left, under either limit, a credit changes nothing and a debit counts as taken now.
// See [Account.Settle].
func (a *Account) SettleUnder(charged *Limit, now, at, delta int64) {
	if charged.gone(at, now) {
		if delta <= 0 {
			return
		}
		at = now
	}
	a.Settle(now, at, delta)
}

// gone reports whether what was taken at the instant at no longer counts at now: its
// window has ended, or its entry has left the log. A token bucket has no such end.
func (l *Limit) gone(at, now int64) bool {
	switch l.Algorithm {
	case FixedWindow:
		then, _ := window(at, l.Per)
		index, _ := window(now, l.Per)
		return then != index
	case RollingLog:
		return gone(at, now, l.Per)
	default:
		return false
	}
}

// Settle corrects what was taken at the instant at, under the account's limit, by
// delta tokens: a negative delta credits, never above the capacity; a positive one
// debits, never below minus the capacity. If the window of at has ended, or its log
// entry has left, a credit changes nothing and a debit counts as taken now. An
// account that a credit fills is the same as one that was never drawn on.
func (a *Account) Settle(now, at, delta int64) {
	l := a.Limit
	if l.Algorithm == RollingLog {
		if a.Log == nil {
			a.Log = &Log{}
		}
		a.Log.settle(now, at, l, delta, a.Tight)
		return
	}
	if delta < 0 && l.gone(at, now) {
		return
	}
	used := l.target(a.Used(now), delta)
	if used.isZero() {
		a.State = FullState
		return
	}
	a.set(used, now)
}

// target returns what is used after a correction of delta tokens, clamped at
// full and at minus the capacity; debts above that (after a change of the
// limit) stay. A window or a log counts at most MaxInt64 tokens.
func (l *Limit) target(used Uint128, delta int64) Uint128 {
	if delta < 0 {
		return used.floorSub(mul(uint64(-delta), l.unit))
	}
	lowest := l.capacity.add(l.capacity)
	if l.Algorithm != TokenBucket {
		lowest.Lo = min(lowest.Lo, math.MaxInt64)
	}
	if lowest.less(used) {
		return used
	}
	target := l.After(used, uint64(delta))
	if lowest.less(target) {
		return lowest
	}
	return target
}

// Balance returns the tokens left while used units are used, exactly; negative
// in debt.
func (l *Limit) Balance(used Uint128) *big.Rat {
	left := new(big.Int).Sub(l.capacity.big(), used.big())
	return new(big.Rat).SetFrac(left, new(big.Int).SetUint64(l.unit))
}

func (u Uint128) big() *big.Int {
	hi := new(big.Int).SetUint64(u.Hi)
	return hi.Lsh(hi, 64).Add(hi, new(big.Int).SetUint64(u.Lo))
}

// Clone returns a copy of the account that shares nothing with it.
func (a Account) Clone() Account {
	if a.Log != nil {
		log := *a.Log
		log.entries = slices.Clone(log.entries)
		a.Log = &log
	}
	return a
}
