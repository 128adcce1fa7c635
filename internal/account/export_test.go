package account

// Cap returns the entries that the log has room for.
func (g *Log) Cap() int { return cap(g.entries) }
