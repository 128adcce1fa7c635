package oracle

import (
	"math"
	"math/big"
	"time"

	"github.com/ration-go/ration/limiter"
)

// Account is one account. Its values are never changed in place: each method
// returns a new account. Methods want the account as Refilled returns it.
type Account struct {
	rules  *Rules
	Limit  limiter.Limit // with Burst spelled out
	latest *big.Int      // the latest instant, where each account keeps its own

	// A token bucket: so much at that instant, below zero in debt.
	Balance *big.Rat
	at      *big.Int

	// A fixed window: so much used in the window with that number.
	window *big.Int
	used   *big.Int

	// A rolling log, oldest first, every instant once.
	entries []entry

	// A window or a log that was made from what was left of a bucket: when that
	// was, or nil. Once that window has ended, or Per has passed, it is history.
	Carried *big.Int
}

type entry struct{ at, count *big.Int }

// NewAccount is full (R3).
func NewAccount(r *Rules, l limiter.Limit, now *big.Int) Account {
	a := Account{rules: r, Limit: l, latest: now}
	switch l.Algorithm {
	case limiter.TokenBucket:
		a.Balance, a.at = rat(integer(l.Burst)), now
	case limiter.FixedWindow:
		a.window, a.used = windowAt(l, now), integer(0)
	}
	return a
}

// windowAt returns the number of the window of an instant: windows are whole
// multiples of Per since the Unix epoch (R11).
func windowAt(l limiter.Limit, at *big.Int) *big.Int {
	window, _ := new(big.Int).DivMod(at, integer(int64(l.Per)), new(big.Int))
	return window
}

// Gone reports whether a log entry has left at now: the left boundary is
// exclusive (R11).
func Gone(l limiter.Limit, entry, now *big.Int) bool {
	return entry.Cmp(sub(now, integer(int64(l.Per)))) <= 0
}

// Refilled is the account at now.
func (a Account) Refilled(now *big.Int) Account {
	switch a.Limit.Algorithm {
	case limiter.TokenBucket:
		// tokens = min(capacity, tokens + elapsed*Tokens/Per)
		back := new(big.Rat).Mul(rat(sub(now, a.at)), a.Rate())
		a.Balance = minRat(rat(integer(a.Limit.Burst)), back.Add(a.Balance, back))
		a.at = now
	case limiter.FixedWindow:
		if window := windowAt(a.Limit, now); window.Cmp(a.window) != 0 {
			a.window, a.used, a.Carried = window, integer(0), nil
		}
	case limiter.RollingLog:
		for len(a.entries) > 0 && Gone(a.Limit, a.entries[0].at, now) {
			a.entries = a.entries[1:]
		}
		if a.Carried != nil && Gone(a.Limit, a.Carried, now) {
			a.Carried = nil
		}
	}
	return a
}

// Rate is in tokens per nanosecond.
func (a Account) Rate() *big.Rat { return big.NewRat(a.Limit.Tokens, int64(a.Limit.Per)) }

// Spent returns what was used of a refilled account.
func (a Account) Spent() *big.Rat {
	switch a.Limit.Algorithm {
	case limiter.TokenBucket:
		return new(big.Rat).Sub(rat(integer(a.Limit.Burst)), a.Balance)
	default:
		return rat(a.total())
	}
}

// total returns what was used of a refilled window or log.
func (a Account) total() *big.Int {
	if a.Limit.Algorithm == limiter.FixedWindow {
		return a.used
	}
	total := new(big.Int)
	for _, e := range a.entries {
		total.Add(total, e.count)
	}
	return total
}

// Left returns the balance of a refilled account.
func (a Account) Left() *big.Rat {
	return new(big.Rat).Sub(rat(integer(a.Limit.Burst)), a.Spent())
}

func (a Account) Full() bool { return a.Spent().Sign() == 0 }

// Under is a refilled account under another limit (R10).
func (a Account) Under(l limiter.Limit, now *big.Int) Account {
	if l == a.Limit {
		return a
	}
	if a.Full() {
		return NewAccount(a.rules, l, now)
	}
	was, bucket := a.Limit, limiter.TokenBucket
	switch {
	case was.Algorithm == bucket && l.Algorithm == bucket:
		a.Limit = l
		a.Balance = minRat(a.roundDown(), rat(integer(l.Burst)))
		return a.saturated()
	case was.Algorithm == bucket || l.Algorithm == bucket || a.Carried != nil:
		// What is left is carried, in whole tokens, at most the new capacity.
		left := minInt(floor(a.Left()), integer(l.Burst))
		a = NewAccount(a.rules, l, now).started(sub(integer(l.Burst), left), now)
		a.Carried = now
		return a
	case was.Algorithm == l.Algorithm && was.Per == l.Per:
		a.Limit = l
		return a
	}
	// Another window length: what was used counts as used now.
	return NewAccount(a.rules, l, now).started(a.total(), now)
}

// started is a full account of which so many tokens are used at now.
func (a Account) started(used, now *big.Int) Account {
	if a.Limit.Algorithm == limiter.TokenBucket {
		return a.Debited(used, now).saturated()
	}
	return a.Debited(minInt(used, a.most()), now)
}

// most is the most tokens that a window or a log counts.
func (a Account) most() *big.Int {
	if a.rules.Most > 0 {
		return integer(a.rules.Most)
	}
	return integer(math.MaxInt64)
}

// saturated is a bucket that is full again within the range of a time.Duration,
// whatever debt it was given by a change of limit, and has no more units used
// than the store counts.
func (a Account) saturated() Account {
	if a.rules.Most > 0 {
		used := new(big.Rat).Quo(rat(integer(a.rules.Most)), rat(integer(a.rules.unit(a.Limit))))
		least := used.Sub(rat(integer(a.Limit.Burst)), used)
		if a.Balance.Cmp(least) < 0 {
			a.Balance = least
		}
		return a
	}
	if !floor(a.untilFull()).IsInt64() {
		longest := new(big.Rat).Mul(rat(integer(math.MaxInt64)), a.Rate())
		a.Balance = longest.Sub(rat(integer(a.Limit.Burst)), longest)
	}
	return a
}

// untilFull is for a token bucket, in nanoseconds.
func (a Account) untilFull() *big.Rat { return new(big.Rat).Quo(a.Spent(), a.Rate()) }

// roundDown rounds the balance down to the unit of the limit.
func (a Account) roundDown() *big.Rat {
	unit := rat(integer(a.rules.unit(a.Limit)))
	units := floor(new(big.Rat).Mul(a.Balance, unit))
	return new(big.Rat).Quo(rat(units), unit)
}

// Debited is a refilled account after paying cost.
func (a Account) Debited(cost, now *big.Int) Account {
	switch a.Limit.Algorithm {
	case limiter.TokenBucket:
		a.Balance = new(big.Rat).Sub(a.Balance, rat(cost))
	case limiter.FixedWindow:
		a.used = add(a.used, cost)
	case limiter.RollingLog:
		a.entries = merged(a.entries, now, cost)
	}
	return a
}

// merged returns the entries with count more at an instant, which may be a
// negative count of at most what is there. Entries of nothing are left out.
func merged(entries []entry, at, count *big.Int) []entry {
	var result []entry
	for _, e := range entries {
		if e.at.Cmp(at) > 0 && count.Sign() > 0 {
			result, count = append(result, entry{at, count}), integer(0)
		}
		if e.at.Cmp(at) == 0 {
			e.count, count = add(e.count, count), integer(0)
		}
		if e.count.Sign() > 0 {
			result = append(result, e)
		}
	}
	if count.Sign() > 0 {
		result = append(result, entry{at, count})
	}
	return result
}

// judge is R4 and R7 for a refilled account.
func (a Account) judge(cost *big.Int) limiter.Outcome {
	switch {
	case cost.Cmp(integer(a.Limit.Burst)) > 0:
		return limiter.Never
	case cost.Sign() == 0 || a.Left().Cmp(rat(cost)) >= 0:
		return limiter.Allow
	default:
		return limiter.Deny
	}
}

// wait returns the least W after which a refilled account that denies cost
// allows it.
func (a Account) wait(cost, now *big.Int) *big.Int {
	if a.Limit.Algorithm != limiter.RollingLog {
		if a.Limit.Algorithm == limiter.FixedWindow {
			return a.reset(now)
		}
		// ceil((cost-tokens)*Per/Tokens)
		short := new(big.Rat).Sub(rat(cost), a.Balance)
		return a.rules.steps(short.Quo(short, a.Rate()))
	}
	total := add(a.total(), cost)
	for _, e := range a.entries {
		total = sub(total, e.count)
		if total.Cmp(integer(a.Limit.Tokens)) <= 0 {
			return a.leaves(e, now)
		}
	}
	panic("a cost above the capacity waits for ever")
}

// leaves returns how long after now an entry is gone.
func (a Account) leaves(e entry, now *big.Int) *big.Int {
	return sub(add(e.at, integer(int64(a.Limit.Per))), now)
}

// reset returns how long after now the account is full; a fixed window always
// says the rest of the window.
func (a Account) reset(now *big.Int) *big.Int {
	switch a.Limit.Algorithm {
	case limiter.TokenBucket:
		return a.rules.steps(a.untilFull())
	case limiter.FixedWindow:
		end := new(big.Int).Mul(add(a.window, integer(1)), integer(int64(a.Limit.Per)))
		return sub(end, now)
	default:
		if len(a.entries) == 0 {
			return integer(0)
		}
		return a.leaves(a.entries[len(a.entries)-1], now)
	}
}

// Kept reports whether the account still has what was taken at an instant: its
// window, or its entry.
func (a Account) Kept(taken, now *big.Int) bool {
	switch l := a.Limit; l.Algorithm {
	case limiter.FixedWindow:
		return windowAt(l, taken).Cmp(a.window) == 0
	case limiter.RollingLog:
		return !Gone(l, taken, now)
	default:
		return true
	}
}

// Settled is a refilled account after a correction of what was taken at an
// instant (R9): debits stop at minus the capacity, credits at the capacity. Of
// what was taken in a window or an entry that has gone, a credit is nothing and a
// debit is taken now.
func (a Account) Settled(correction, taken, now *big.Int) Account {
	l := a.Limit
	if !a.Kept(taken, now) {
		if correction.Sign() < 0 {
			return a
		}
		taken = now
	}
	if correction.Sign() <= 0 {
		return a.credited(new(big.Int).Neg(correction), a.place(taken))
	}
	room := floor(new(big.Rat).Add(a.Left(), rat(integer(l.Burst))))
	if l.Algorithm != limiter.TokenBucket {
		room = minInt(room, sub(a.most(), a.total()))
	} else if correction.Cmp(room) > 0 {
		a.Balance = minRat(a.Balance, rat(integer(-l.Burst)))
		return a
	}
	return a.Debited(minInt(correction, maxInt(room, integer(0))), a.place(taken))
}

// place returns the instant at which a log holds what was taken then: that
// instant, or that of the oldest entry after it, where a change of limit has
// moved what was used to its own instant.
func (a Account) place(taken *big.Int) *big.Int {
	for _, e := range a.entries {
		if e.at.Cmp(taken) >= 0 {
			return e.at
		}
	}
	return taken
}

func (a Account) credited(credit, taken *big.Int) Account {
	switch a.Limit.Algorithm {
	case limiter.TokenBucket:
		lifted := new(big.Rat).Add(a.Balance, rat(credit))
		a.Balance = minRat(lifted, rat(integer(a.Limit.Burst)))
	case limiter.FixedWindow:
		a.used = maxInt(integer(0), sub(a.used, credit))
	case limiter.RollingLog:
		for _, e := range a.entries {
			if e.at.Cmp(taken) == 0 {
				given := new(big.Int).Neg(minInt(credit, e.count))
				a.entries = merged(a.entries, taken, given)
			}
		}
	}
	return a
}

// Remaining is in whole tokens, at least 0.
func (a Account) Remaining() int64 { return maxInt(integer(0), floor(a.Left())).Int64() }

// duration saturates at the range of a time.Duration, 292 years.
func duration(ns *big.Int) time.Duration {
	if !ns.IsInt64() {
		return math.MaxInt64
	}
	return time.Duration(ns.Int64())
}

func integer(n int64) *big.Int   { return big.NewInt(n) }
func rat(n *big.Int) *big.Rat    { return new(big.Rat).SetInt(n) }
func add(x, y *big.Int) *big.Int { return new(big.Int).Add(x, y) }
func sub(x, y *big.Int) *big.Int { return new(big.Int).Sub(x, y) }
func floor(x *big.Rat) *big.Int  { return new(big.Int).Div(x.Num(), x.Denom()) }
func ceil(x *big.Rat) *big.Int   { y := floor(new(big.Rat).Neg(x)); return y.Neg(y) }

func minInt(x, y *big.Int) *big.Int {
	if x.Cmp(y) < 0 {
		return x
	}
	return y
}

func maxInt(x, y *big.Int) *big.Int {
	if x.Cmp(y) > 0 {
		return x
	}
	return y
}

func minRat(x, y *big.Rat) *big.Rat {
	if x.Cmp(y) < 0 {
		return x
	}
	return y
}
