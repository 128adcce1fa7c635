package account

// Cap returns the entries that the log has room for.
func (g *Log) Cap() int { return cap(g.entries) }

// Settled settles, and returns the units by which that moved what is used, and
// whether it was a credit.
func (a *Account) Settled(now, at, delta int64) (moved Uint128, credited bool) {
	before := a.Used(now)
	a.Settle(now, at, delta)
	after := a.Used(now)
	if after.less(before) {
		return before.sub(after), true
	}
	return after.sub(before), false
}
