package account

import "iter"

// Entries yields the instant and the tokens of each entry of a rolling log that
// has not left it at now, the oldest first. Other accounts have none.
func (a *Account) Entries(now int64) iter.Seq2[int64, uint64] {
	return func(yield func(int64, uint64) bool) {
		if a.Log == nil {
			return
		}
		for i := a.Log.first(now, a.Limit.Per); i < len(a.Log.entries); i++ {
			e := a.Log.entries[i]
			if !yield(e.at, e.upto-a.Log.before(i)) {
				return
			}
		}
	}
}

// Carried reports whether a window or a log carries what is left to the next limit,
// and since when; see [Account.Under]. For a window that is now.
func (a *Account) Carried(now int64) (since int64, ok bool) {
	switch a.Limit.Algorithm {
	case FixedWindow:
		index, _ := window(now, a.Limit.Per)
		return now, index == a.State.At && a.carriesLeft(now)
	case RollingLog:
		if a.Log != nil && a.carriesLeft(now) {
			return a.Log.carried, true
		}
	}
	return 0, false
}

// Carry makes a window, or a log, one that carries what is left since the given
// instant.
func (a *Account) Carry(since int64) {
	if a.Limit.Algorithm == FixedWindow {
		a.State.Rest |= carryLeft
		return
	}
	if a.Log == nil {
		a.Log = &Log{}
	}
	a.Log.carries, a.Log.carried = true, since
}
