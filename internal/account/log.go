package account

import (
	"slices"
	"sort"
)

// Log is what a rolling log admitted, the oldest first. An entry lives while
// less than Per has passed since it: the left boundary is exclusive.
//
// Each entry holds the sum of all entries up to it, so used and wait cost O(log n) for n
// entries. Entries that have left are dropped when their room is needed. A nil Log is
// empty.
type Log struct {
	entries []entry // the capacity is what the log holds of memory
	base    uint64  // the sum before the first entry

	carries bool  // carries what was left, until carried has left the log
	carried int64 // the instant at which that was carried over
}

// entry is what was admitted at one instant.
type entry struct {
	at   int64
	upto uint64 // the sum of costs up to it, from any start, modulo 2^64
}

// first returns the index of the first entry that lives at now.
func (g *Log) first(now int64, per uint64) int {
	return sort.Search(len(g.entries), func(i int) bool {
		return !gone(g.entries[i].at, now, per)
	})
}

// gone reports whether an entry of the instant at has left the log at now.
func gone(at, now int64, per uint64) bool {
	return at < now && uint64(now)-uint64(at) >= per
}

// before returns the sum of costs before the entry at i.
func (g *Log) before(i int) uint64 {
	if i == 0 {
		return g.base
	}
	return g.entries[i-1].upto
}

// used returns the tokens that were admitted and have not left at now.
func (g *Log) used(now int64, per uint64) uint64 {
	if g == nil {
		return 0
	}
	return g.before(len(g.entries)) - g.before(g.first(now, per))
}

// wait returns the nanoseconds until at most left tokens are used, which are
// fewer than are used now; 0 for an empty log.
func (g *Log) wait(now int64, per, left uint64) int64 {
	if g == nil {
		return 0
	}
	first, total := g.first(now, per), g.before(len(g.entries))
	live := g.entries[first:]
	i := sort.Search(len(live), func(i int) bool { return total-live[i].upto <= left })
	if i == len(live) {
		return 0
	}
	return int64(per - (uint64(now) - uint64(live[i].at)))
}

// add returns the log with cost admitted at now; see push.
func (g *Log) add(now int64, per, cost uint64, tight bool) *Log {
	if g == nil {
		g = &Log{}
	}
	g.push(now, now, per, cost, tight)
	return g
}

// push adds cost at the instant at, which is not before that of any entry. A tight
// log does not grow: where all its entries live, the latest moves up to at. It
// leaves later than it might, never earlier.
func (g *Log) push(at, now int64, per, cost uint64, tight bool) {
	if n := len(g.entries); n > 0 && g.entries[n-1].at == at {
		g.entries[n-1].upto += cost
		return
	}
	g.makeRoom(now, per, tight)
	n := len(g.entries)
	if n == cap(g.entries) {
		g.entries[n-1].at = at
		g.entries[n-1].upto += cost
		return
	}
	g.entries = append(g.entries, entry{at, g.before(n) + cost})
}

// makeRoom drops the entries that have left if the array is full, or if a smaller
// array is enough. The array grows if few have left, unless it is tight.
func (g *Log) makeRoom(now int64, per uint64, tight bool) {
	size, first := cap(g.entries), g.first(now, per)
	live := g.entries[first:]
	want := fit(len(live), size)
	if len(g.entries) < size && want >= size {
		return
	}
	g.base = g.before(first)
	if tight && size > 0 {
		want = min(want, size)
	}
	if want == size {
		g.entries = g.entries[:copy(g.entries, live)]
		return
	}
	g.entries = append(make([]entry, 0, want), live...)
}

// smallestLog is the entries that the smallest array has room for.
const smallestLog = 2

// fit returns the size of an array for so many live entries and more, given the
// size that it has. It changes only if over three quarters are in use, or less
// than an eighth: no entry is moved often, and little room is unused.
func fit(live, size int) int {
	if 4*live > 3*size || 8*live < size {
		size = live + live/2 + 1
	}
	return max(size, smallestLog)
}

// settle corrects the entry of the instant at, or, if the log was made from
// another account since then, the oldest that holds it. A debit that finds
// neither is a new entry: there may have been none, for a cost of 0. If the entry
// has left, a debit is admitted now. A tight log does not grow by it; see push.
func (g *Log) settle(now, at int64, l *Limit, delta int64, tight bool) {
	if gone(at, now, l.Per) {
		if debit := g.debit(now, l, delta); debit > 0 {
			g.push(now, now, l.Per, debit, tight)
		}
		return
	}
	n := len(g.entries)
	i := max(g.first(now, l.Per), sort.Search(n, func(i int) bool { return g.entries[i].at >= at }))
	if delta < 0 {
		if i < n {
			g.credit(i, uint64(-delta))
			g.carries = g.carries && g.used(now, l.Per) > 0
		}
		return
	}
	debit := g.debit(now, l, delta)
	if debit > 0 && i == n {
		g.push(at, now, l.Per, debit, tight)
		return
	}
	g.shift(i, debit)
}

// debit returns what a correction of delta tokens adds to what is used: 0 for a
// credit.
func (g *Log) debit(now int64, l *Limit, delta int64) uint64 {
	used := Uint128{Lo: g.used(now, l.Per)}
	return l.target(used, max(delta, 0)).sub(used).Lo
}

// credit takes tokens off the entry at i, and the entry out where none are left.
func (g *Log) credit(i int, tokens uint64) {
	cost := g.entries[i].upto - g.before(i)
	tokens = min(tokens, cost)
	g.shift(i, -tokens)
	if tokens == cost {
		g.entries = slices.Delete(g.entries, i, i+1)
	}
}

// shift adds tokens to the entry at i.
func (g *Log) shift(i int, tokens uint64) {
	for ; i < len(g.entries); i++ {
		g.entries[i].upto += tokens
	}
}

// newLog returns a log in which used tokens were admitted at now. It carries what
// was left if left is true.
func newLog(now int64, used uint64, left bool) *Log {
	g := &Log{carries: left, carried: now}
	if used > 0 {
		g.entries = append(make([]entry, 0, smallestLog), entry{now, used})
	}
	return g
}
