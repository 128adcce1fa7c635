package memstore

// stock is places of one class that a shard has taken from the budget before it needs
// them, each with a reference to the class. So most new and dropped accounts change
// nothing that the cores share.
type stock struct {
	class  *class // the last one of which an account was added
	free   int64
	active bool // the stock may hold places, and is counted in pool.stocks
}

const (
	stockCount = 8  // stocks of a shard; the number of a class chooses one
	stockBatch = 16 // places that are taken from the budget at once
)

func (s *shard) stock(c *class) *stock { return &s.stocks[c.number%stockCount] }

// take takes the places of a new account and a reference to its class, and reports
// whether there was room.
func (s *shard) take(c *class) bool {
	if st := s.stock(c); st.class == c && st.free > 0 {
		st.free--
		return true
	}
	return c.admit(1)
}

// takeOften is take for the fast path. The second time that it is called for a class, it
// takes a batch, unless the budget has little room left.
func (s *shard) takeOften(c *class) bool {
	st := s.stock(c)
	switch {
	case st.class != c:
		st.giveAll()
		st.class = c
	case st.free == 0 && c.pool.room(stockBatch*c.pool.region.overflows) && c.admit(stockBatch):
		if !st.active {
			st.active = true
			c.pool.countStocks(1)
		}
		st.free = stockBatch
	}
	return s.take(c)
}

// give gives back the places of an account and its reference to the class.
func (s *shard) give(c *class, places int64) {
	st := s.stock(c)
	if st.class != c || !st.active {
		c.release(places)
		c.unpin()
		return
	}
	if st.free++; st.free > 4*stockBatch {
		st.giveBack(2 * stockBatch)
	}
}

func (st *stock) giveBack(n int64) {
	st.free -= n
	st.class.pool.add(-n)
	st.class.refs.Add(-n)
}

// giveAll gives back all places, so that the stock holds none until its next batch.
func (st *stock) giveAll() {
	if st.active {
		pool := st.class.pool
		st.giveBack(st.free) // after which the pool may be forgotten
		st.active = false
		pool.countStocks(-1)
	}
}

// giveAll gives back the places of all stocks whose budgets share the region; nil is
// all regions.
func (s *shard) giveAll(r *region) {
	for i := range s.stocks {
		if st := &s.stocks[i]; st.active && (r == nil || st.class.pool.region == r) {
			st.giveAll()
		}
	}
}

// reclaim takes places back from the stocks, if they may be why p has no room. The
// shards of held are locked already; others that are locked keep theirs.
func (s *Store) reclaim(p *pool, held []draw) {
	if p.stocks.Load() == 0 && (p.region.stocks.Load() == 0 || p.region.live.Load()+2 <= p.region.cap) {
		return
	}
	for i := range held {
		held[i].shard.giveAll(p.region)
	}
	for i := range s.shards {
		if sh := &s.shards[i]; sh.mu.TryLock() {
			sh.giveAll(p.region)
			sh.mu.Unlock()
		}
	}
}

// reclaimAll takes all places back from the stocks. No lock may be held.
func (s *Store) reclaimAll() {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		sh.giveAll(nil)
		sh.mu.Unlock()
	}
}
