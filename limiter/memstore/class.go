package memstore

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/ration-go/ration/internal/account"
	"github.com/ration-go/ration/internal/kind"
	"github.com/ration-go/ration/limiter"
)

// class is one limit of one budget in one region. A record refers to it by number.
type class struct {
	pool      *pool
	number    uint32
	limit     limiter.Limit // Burst is the capacity, never 0
	rule      account.Limit
	newPlaces int64        // places that a new account takes
	overflow  bool         // the limit of an overflow account, not of a key's own
	refs      atomic.Int64 // records, stocks and requests that hold the number; see dropped
}

// dropped is added to the references of a class whose number is free.
const dropped = math.MinInt64 / 2

// take adds n places to what the pool uses, even if there is no room.
func (c *class) take(n int64) {
	c.pool.add(n)
	if c.overflow {
		c.pool.overflowLive.Add(n)
	}
}

// takeOne takes the places of one account and a reference, even if there is no room.
func (c *class) takeOne() {
	c.take(c.newPlaces)
	c.refs.Add(1)
}

// admit takes the places of n new accounts and a reference for each, if the share has
// room and the class is not dropped.
func (c *class) admit(n int64) bool {
	if c.refs.Add(n) > 0 && c.pool.admit(n*c.newPlaces) {
		return true
	}
	c.refs.Add(-n)
	return false
}

// release gives places back.
func (c *class) release(n int64) { c.take(-n) }

// is reports whether the limit of the class equals l.
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
	overflow bool
}

// catalog numbers the classes. Once there are many, numbers that are not in use are
// given to new classes, so memory stays bounded if each caller has a limit of its own.
type catalog struct {
	regions [2]*region // others, addresses

	mu      sync.RWMutex // guards what follows
	pools   map[poolID]*pool
	known   map[classID]*class
	free    []uint32
	recycle int // the number of classes at which unused ones are looked for

	classes atomic.Pointer[[]atomic.Pointer[class]] // by number; 0 is none
}

func newCatalog(maxAccounts, shards int) *catalog {
	quarter := int64(maxAccounts) / 4
	c := &catalog{
		regions: [2]*region{
			{id: 0, cap: int64(maxAccounts) - quarter, overflows: int64(shards)},
			{id: 1, cap: quarter, overflows: int64(shards)},
		},
		pools:   map[poolID]*pool{},
		known:   map[classID]*class{},
		recycle: 1024,
	}
	classes := make([]atomic.Pointer[class], 16)
	c.classes.Store(&classes)
	return c
}

func (c *catalog) class(number uint32) *class { return (*c.classes.Load())[number].Load() }

// plan adds by, 1 or -1, to how often each budget is planned. Budgets that are planned
// share the cap evenly.
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

// forget removes the budgets that are not planned and hold no account, with their
// limits. A budget stays if a request in flight uses one of its classes. If a removed
// budget is charged again, as by a late Settle, it is a new one. The caller holds mu.
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
	for id, class := range c.known {
		if unused[id.poolID] && !c.drop(id, class) {
			unused[id.poolID] = false
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

// drop frees the number of a class, if it is not in use. The caller holds mu.
func (c *catalog) drop(id classID, unused *class) bool {
	if !unused.refs.CompareAndSwap(0, dropped) {
		return false
	}
	delete(c.known, id)
	c.free = append(c.free, unused.number)
	return true
}

// pool returns the pool with this id, a new one if there is none, and counts it as one
// that shares its region. The caller holds mu.
func (c *catalog) pool(id poolID) *pool {
	r := c.regions[0]
	if id.addresses {
		r = c.regions[1]
	}
	p := c.pools[id]
	if p == nil {
		p = &pool{name: id.budget, region: r}
		p.overflowSize.Store(1)
		c.pools[id] = p
	}
	if !p.counted {
		p.counted = true
		r.pools.Add(1)
	}
	return p
}

// pin returns the class of a charge, whose number is valid until unpin.
func (c *catalog) pin(charge *limiter.Charge, overflow bool) *class {
	id := classID{
		poolID:   poolID{charge.Key.Budget, charge.Key.Principal.Kind == kind.Address},
		limit:    charge.Limit,
		overflow: overflow,
	}
	id.limit.Burst = charge.Limit.Capacity()
	c.mu.RLock()
	known := c.known[id]
	if known != nil {
		known.refs.Add(1)
	}
	c.mu.RUnlock()
	if known == nil {
		return c.intern(id)
	}
	return known
}

func (c *class) unpin() { c.refs.Add(-1) }

// intern returns a class, which it creates if needed, and pins it.
func (c *catalog) intern(id classID) *class {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.known[id]; known != nil {
		known.refs.Add(1)
		return known
	}
	l := id.limit
	added := &class{pool: c.pool(id.poolID), limit: l, overflow: id.overflow}
	added.rule = account.NewLimit(account.Algorithm(l.Algorithm), l.Tokens, int64(l.Per), l.Burst)
	added.refs.Store(1)
	empty := account.Account{Limit: &added.rule}
	if added.newPlaces = 1; added.isLog() {
		added.newPlaces = places(empty.LogRoomAfter(0))
		added.pool.overflowSize.Store(added.newPlaces) // the log of an overflow account does not grow
	}
	added.number = c.unused()
	(*c.classes.Load())[added.number].Store(added)
	c.known[id] = added
	return added
}

// unused returns a number that is not in use. It looks through the classes only
// when they are twice as many as the last time.
func (c *catalog) unused() uint32 {
	if len(c.free) == 0 && len(c.known) >= c.recycle {
		for id, class := range c.known {
			c.drop(id, class)
		}
		c.recycle = max(1024, 2*len(c.known))
	}
	if n := len(c.free); n > 0 {
		number := c.free[n-1]
		c.free = c.free[:n-1]
		return number
	}
	number := len(c.known) + 1
	if classes := *c.classes.Load(); number == len(classes) {
		grown := make([]atomic.Pointer[class], 2*len(classes))
		for i := range classes {
			grown[i].Store(classes[i].Load())
		}
		c.classes.Store(&grown)
	}
	return uint32(number)
}

// tight reports whether the log of an account must not grow when it gets another
// entry at now: the account is an overflow account, or the share is used up.
func (c *class) tight(a *account.Account, now int64) bool {
	if !c.isLog() {
		return false
	}
	more := places(a.LogRoomAfter(now)) - places(a.LogRoom())
	return c.overflow || more > 0 && !c.pool.room(more)
}

func (c *class) isLog() bool { return c.rule.Algorithm == account.RollingLog }
