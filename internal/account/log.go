package account

import (
	"math"
	"slices"
)

// Entry is the cost that was admitted at one instant.
type Entry struct {
	At   int64
	Cost uint64
}

// Log is the entries of a rolling log, the oldest first. An entry lives while
// less than Per has passed since it: the left boundary is exclusive.
//
// A log of n entries costs O(log n) to find what lives, O(n) to sum it, and an
// entry is dropped when the next is added. A nil Log is empty.
type Log struct{ entries []Entry }

// live returns the entries that have not left at now.
func (g *Log) live(now int64, per uint64) []Entry {
	if g == nil {
		return nil
	}
	low, high := 0, len(g.entries)
	for low < high {
		if mid := (low + high) / 2; gone(g.entries[mid].At, now, per) {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return g.entries[low:]
}

// gone reports whether an entry of the instant at has left the log at now.
func gone(at, now int64, per uint64) bool {
	return at < now && uint64(now)-uint64(at) >= per
}

func (g *Log) used(now int64, per uint64) uint64 { return sum(g.live(now, per)) }

func sum(entries []Entry) (total uint64) {
	for _, e := range entries {
		total += e.Cost
	}
	return total
}

// wait returns the nanoseconds until at most left tokens are used, which are
// fewer than are used now; 0 for an empty log.
func (g *Log) wait(now int64, per, left uint64) int64 {
	live := g.live(now, per)
	used := sum(live)
	for _, e := range live {
		if used -= e.Cost; used <= left {
			return int64(per - (uint64(now) - uint64(e.At)))
		}
	}
	return 0
}

// add returns the log with cost admitted at now, and drops what has left.
func (g *Log) add(now int64, per, cost uint64) *Log {
	if g == nil {
		g = &Log{}
	}
	live := g.live(now, per)
	if n := len(live); n > 0 && live[n-1].At == now {
		live[n-1].Cost += cost
		return g
	}
	if len(g.entries) == cap(g.entries) && len(live) <= len(g.entries)/2 {
		live = g.entries[:copy(g.entries, live)]
	}
	g.entries = append(live, Entry{now, cost})
	return g
}

// settle corrects the entry of the instant at, or, where the log was made from
// another account since then, the oldest that holds it. A debit that finds
// neither is a new entry: there may have been none, for a cost of 0.
func (g *Log) settle(now, at int64, l *Limit, delta int64) (moved Uint128, credited bool) {
	if gone(at, now, l.Per) {
		return Uint128{}, false
	}
	live := g.live(now, l.Per)
	i := slices.IndexFunc(live, func(e Entry) bool { return e.At >= at })
	if delta < 0 {
		if i < 0 {
			return Uint128{}, false
		}
		credit := min(uint64(-delta), live[i].Cost)
		live[i].Cost -= credit
		if live[i].Cost == 0 {
			g.entries = slices.Delete(live, i, i+1)
		}
		return Uint128{Lo: credit}, true
	}
	used := Uint128{Lo: sum(live)}
	debit := l.target(used, delta).sub(used)
	switch {
	case debit.isZero():
	case i < 0:
		g.entries = append(live, Entry{at, debit.Lo})
	default:
		live[i].Cost += debit.Lo
	}
	return debit, false
}

// newLog returns a log in which used tokens were admitted at now.
func newLog(now int64, used uint64) *Log {
	if used == 0 {
		return nil
	}
	return &Log{entries: []Entry{{now, min(used, math.MaxInt64)}}}
}
