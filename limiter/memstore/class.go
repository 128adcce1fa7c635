package memstore

import (
	"sync"
	"sync/atomic"

	"github.com/ration-go/ration/internal/account"
	"github.com/ration-go/ration/internal/kind"
	"github.com/ration-go/ration/limiter"
)

// region is the part of the cap for one sort of callers: by address, or all
// others.
type region struct {
	sort    uint64 // in the names of its overflow accounts
	cap     int64
	spills  int64 // the most overflow accounts of one budget: one in each shard
	live    atomic.Int64
	pools   atomic.Int64 // budgets that share it
	planned atomic.Bool  // the budgets were announced
}

// pool is what one budget holds of a region.
type pool struct {
	name   string
	region *region
	live   atomic.Int64 // places taken, overflow accounts included
	spills atomic.Int64 // places taken by overflow accounts
	spill  atomic.Int64 // places that one of those takes, at most

	planned int  // how often it was announced; the catalog's mu guards both
	counted bool // among the budgets that share the region
}

// unplanned is how many budgets a store reckons with before it knows them.
const unplanned = 4

// room reports whether the pool's share has n places left.
func (p *pool) room(n int64) bool {
	return p.live.Load()+n <= p.share() && p.region.live.Load()+n <= p.region.cap
}

// admit takes n places of the pool's share, or none.
func (p *pool) admit(n int64) bool {
	if !p.room(n) {
		return false
	}
	p.add(n)
	return true
}

func (p *pool) add(n int64) {
	p.live.Add(n)
	p.region.live.Add(n)
}

// share returns how many places the budget may take for keys of its own.
func (p *pool) share() int64 {
	budgets := p.region.pools.Load()
	if !p.region.planned.Load() {
		budgets = max(budgets, unplanned)
	}
	// Room for the overflow accounts that are not there yet is set aside.
	aside := p.region.spills*p.spill.Load() - p.spills.Load()
	return max(p.region.cap/max(budgets, 1)-aside, 1)
}

// class is a limit of a budget, for one sort of callers. Records name it by its
// number.
type class struct {
	pool  *pool
	limit limiter.Limit // with Burst spelled out
	rule  account.Limit
	fresh int64        // places that a new account takes
	spill bool         // of overflow accounts
	refs  atomic.Int64 // records and requests that hold the number
}

// take counts places without asking whether there are any, and release gives
// them back.
func (c *class) take(n int64) {
	c.pool.add(n)
	if c.spill {
		c.pool.spills.Add(n)
	}
}

func (c *class) release(n int64) { c.take(-n) }

// is reports whether the class has the limit.
func (c *class) is(l *limiter.Limit) bool {
	return c.limit.Tokens == l.Tokens && c.limit.Per == l.Per && c.limit.Burst == l.Capacity() &&
		c.limit.Algorithm == l.Algorithm
}

type poolID struct {
	budget    string
	addresses bool
}

type classID struct {
	poolID
	limit    limiter.Limit
	overflow bool // of an overflow account, not of a key's own
}

// places returns how many places an account takes whose rolling log has room for
// so many entries: one for the record, and one for each two entries.
func places(entries int) int64 { return 1 + int64(entries+1)/2 }

// catalog numbers the classes. Numbers that nothing holds are used again once
// there are many, so that limits made up for each caller do not fill memory.
type catalog struct {
	regions [2]*region // others, addresses

	mu      sync.RWMutex // guards what follows
	pools   map[poolID]*pool
	numbers map[classID]uint32
	free    []uint32
	recycle int // the number of classes at which to look for unused ones

	classes atomic.Pointer[[]atomic.Pointer[class]] // by number; 0 is none
}

func newCatalog(maxAccounts, shards int) *catalog {
	quarter := int64(maxAccounts) / 4
	c := &catalog{
		regions: [2]*region{
			{sort: 0, cap: int64(maxAccounts) - quarter, spills: int64(shards)},
			{sort: 1, cap: quarter, spills: int64(shards)},
		},
		pools:   map[poolID]*pool{},
		numbers: map[classID]uint32{},
		recycle: 1024,
	}
	classes := make([]atomic.Pointer[class], 16)
	c.classes.Store(&classes)
	return c
}

func (c *catalog) class(number uint32) *class { return (*c.classes.Load())[number].Load() }

// plan announces budgets, which share the cap evenly, as often as by is.
func (c *catalog) plan(budgets []string, by int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, r := range c.regions {
		for _, name := range budgets {
			p := c.pool(poolID{name, i == 1})
			if p.planned += by; p.planned <= 0 {
				p.planned = 0
				p.counted = false
				r.pools.Add(-1)
			}
		}
		r.planned.Store(true)
	}
	if by < 0 {
		c.forget()
	}
}

// forget removes the budgets that nobody announces and that hold nothing, with
// their limits; mu is held. Requests that are under way hold a class. A budget that
// is charged again, as by a late Settle, is a new one.
func (c *catalog) forget() {
	unused := map[poolID]bool{}
	for id, p := range c.pools {
		if p.planned == 0 && p.live.Load() == 0 {
			unused[id] = true
		}
	}
	if len(unused) == 0 {
		return
	}
	for id, number := range c.numbers {
		switch {
		case !unused[id.poolID]:
		case c.class(number).refs.Load() > 0:
			unused[id.poolID] = false
		default:
			c.drop(id, number)
		}
	}
	for id, still := range unused {
		if !still {
			continue
		}
		if p := c.pools[id]; p.counted {
			p.region.pools.Add(-1)
		}
		delete(c.pools, id)
	}
}

// drop makes the number of a class free; nothing holds it, and mu is held.
func (c *catalog) drop(id classID, number uint32) {
	delete(c.numbers, id)
	c.free = append(c.free, number)
}

// pool returns the pool, made where it is new, as one that shares the region; mu
// is held.
func (c *catalog) pool(id poolID) *pool {
	r := c.regions[0]
	if id.addresses {
		r = c.regions[1]
	}
	p := c.pools[id]
	if p == nil {
		p = &pool{name: id.budget, region: r}
		p.spill.Store(1)
		c.pools[id] = p
	}
	if !p.counted {
		p.counted = true
		r.pools.Add(1)
	}
	return p
}

// pin returns the class of a charge and its number, which stays valid until
// unpin.
func (c *catalog) pin(charge *limiter.Charge, overflow bool) (*class, uint32) {
	id := classID{
		poolID:   poolID{charge.Key.Budget, charge.Key.Principal.Kind == kind.Address},
		limit:    charge.Limit,
		overflow: overflow,
	}
	id.limit.Burst = charge.Limit.Capacity()
	c.mu.RLock()
	number, known := c.numbers[id]
	if known {
		c.class(number).refs.Add(1)
	}
	c.mu.RUnlock()
	if !known {
		number = c.intern(id)
	}
	return c.class(number), number
}

func (c *class) unpin() { c.refs.Add(-1) }

// intern numbers a class and pins it.
func (c *catalog) intern(id classID) uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	number, known := c.numbers[id]
	if known {
		c.class(number).refs.Add(1)
		return number
	}
	l := id.limit
	added := &class{pool: c.pool(id.poolID), limit: l, spill: id.overflow}
	added.rule = account.NewLimit(account.Algorithm(l.Algorithm), l.Tokens, int64(l.Per), l.Burst)
	added.refs.Store(1)
	empty := account.Account{Limit: &added.rule}
	if added.fresh = 1; added.isLog() {
		added.fresh = places(empty.LogRoomAfter(0))
		added.pool.spill.Store(added.fresh) // the log of an overflow account does not grow
	}
	number = c.unused()
	(*c.classes.Load())[number].Store(added)
	c.numbers[id] = number
	return number
}

// unused returns a number that nothing holds. It looks through the classes only
// after they have doubled.
func (c *catalog) unused() uint32 {
	if len(c.free) == 0 && len(c.numbers) >= c.recycle {
		for id, number := range c.numbers {
			if c.class(number).refs.Load() == 0 {
				c.drop(id, number)
			}
		}
		c.recycle = max(1024, 2*len(c.numbers))
	}
	if n := len(c.free); n > 0 {
		number := c.free[n-1]
		c.free = c.free[:n-1]
		return number
	}
	number := len(c.numbers) + 1
	if classes := *c.classes.Load(); number == len(classes) {
		grown := make([]atomic.Pointer[class], 2*len(classes))
		for i := range classes {
			grown[i].Store(classes[i].Load())
		}
		c.classes.Store(&grown)
	}
	return uint32(number)
}

// tight reports whether the log of an account of the class may not grow by another
// entry at now: it is an overflow account, or the share is used up.
func (c *class) tight(a *account.Account, now int64) bool {
	if !c.isLog() {
		return false
	}
	more := places(a.LogRoomAfter(now)) - places(a.LogRoom())
	return c.spill || more > 0 && !c.pool.room(more)
}

func (c *class) isLog() bool { return c.rule.Algorithm == account.RollingLog }
