package memstore

import "sync/atomic"

// How room is found for an account:
//
//	Store.classes  catalog   one
//	  regions      region    two parts of MaxAccounts: addresses, all other callers
//	    pools      pool      one for each budget, which has an equal share of the region
//	      known    class     one for each limit of the budget; a record has its number
//	Store.shards   shard
//	  stocks       stock     places that the shard has taken from a pool beforehand
//	  directory    block     records, one for each account that is not full
//
// An account takes one place, a rolling log more. A new account takes its place from a
// stock of its shard, or from the pool. If neither has one, full accounts are dropped
// (see evict.go); if there are none, the charge uses an overflow account, whose place is
// reserved. A dropped account gives its place back to a stock or to the pool.

// places returns how many places an account takes: one for its record, and one for
// every two entries that its rolling log has room for. A place is the unit of
// Config.MaxAccounts.
func places(entries int) int64 { return 1 + int64(entries+1)/2 }

// region is a part of the cap: one is for addresses, one for all other callers.
type region struct {
	id        uint64       // tells apart the overflow accounts of both
	cap       int64        // in places; see [places]
	overflows int64        // overflow accounts of one budget, at most: one in each shard
	live      atomic.Int64 // places taken
	stocks    atomic.Int64 // active stocks of its pools
	pools     atomic.Int64 // budgets that share it
	planned   atomic.Bool  // plan was called
}

// pool is what one budget holds of a region.
type pool struct {
	name         string
	region       *region
	live         atomic.Int64 // places taken, overflow accounts and stocks included
	stocks       atomic.Int64 // active stocks
	overflowLive atomic.Int64 // places taken by overflow accounts
	overflowSize atomic.Int64 // places that each of those takes, at most

	planned int  // plans that name the budget; the catalog's mu guards both
	counted bool // the pool is one of region.pools
}

// assumedBudgets is how many budgets share a region, at least, before plan is called.
const assumedBudgets = 4

// room reports whether the pool's share has n places left.
func (p *pool) room(n int64) bool {
	return p.live.Load()+n <= p.share() && p.region.live.Load()+n <= p.region.cap
}

// admit takes n places if the pool's share has them, and reports whether it has.
func (p *pool) admit(n int64) bool {
	for {
		live := p.live.Load()
		if live+n > p.share() {
			return false
		}
		if p.live.CompareAndSwap(live, live+n) {
			break
		}
	}
	if p.region.live.Add(n) > p.region.cap {
		p.add(-n)
		return false
	}
	return true
}

func (p *pool) countStocks(n int64) {
	p.stocks.Add(n)
	p.region.stocks.Add(n)
}

func (p *pool) add(n int64) {
	p.live.Add(n)
	p.region.live.Add(n)
}

// share returns how many places the budget may take, overflow accounts included.
// Places for overflow accounts that do not exist yet are reserved.
func (p *pool) share() int64 {
	budgets := p.region.pools.Load()
	if !p.region.planned.Load() {
		budgets = max(budgets, assumedBudgets)
	}
	reserved := p.region.overflows*p.overflowSize.Load() - p.overflowLive.Load()
	return max(p.region.cap/max(budgets, 1)-reserved, 1)
}
