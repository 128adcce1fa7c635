package memstore

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/account"
	"github.com/ration-go/ration/internal/kind"
	"github.com/ration-go/ration/limiter"
)

func budgetPool(c *catalog, name string, addresses bool) *pool {
	return c.pool(poolID{name, addresses})
}

func TestPool_SharesTheCapEvenly(t *testing.T) {
	c := newCatalog(40_002, 256)
	user, address := budgetPool(c, "a", false), budgetPool(c, "a", true)
	assert.EqualValues(t, 30_002, user.region.cap, "three quarters")
	assert.EqualValues(t, 10_000, address.region.cap, "a quarter, rounded down")
	assert.NotEqual(t, user.region.id, address.region.id)
	assert.EqualValues(t, 30_002/4-256, user.share(), "as if there were four")
	assert.EqualValues(t, 10_000/4-256, address.share())
	for _, name := range []string{"b", "c", "d"} {
		budgetPool(c, name, false)
	}
	assert.EqualValues(t, 30_002/4-256, user.share())
	assert.Same(t, budgetPool(c, "e", false), budgetPool(c, "e", false))
	assert.EqualValues(t, 30_002/5-256, user.share(), "five share it")
	assert.EqualValues(t, 10_000/4-256, address.share(), "one of addresses")
	user.overflowLive.Add(7)
	assert.EqualValues(t, 30_002/5-256+7, user.share(), "room is set aside until it is taken")

	c = newCatalog(40_000, 256)
	c.plan([]string{"a", "b"}, 1)
	for _, addresses := range []bool{false, true} {
		p := budgetPool(c, "a", addresses)
		assert.Equal(t, p.region.cap/2-256, p.share(), "two were announced")
	}
	assert.EqualValues(t, 1, budgetPool(newCatalog(1, 256), "a", false).share(), "at least one")
	assert.EqualValues(t, 1, budgetPool(newCatalog(1, 256), "a", true).share(), "at least one")
}

func TestPool_AdmitsUpToItsShareAndTheCap(t *testing.T) {
	c := newCatalog(4000, 256) // 3000 for users
	c.plan([]string{"a"}, 1)
	a := budgetPool(c, "a", false)
	require.False(t, a.admit(2745))
	assert.Zero(t, a.live.Load(), "all or none")
	require.True(t, a.admit(2740))
	require.False(t, a.admit(5))
	require.True(t, a.admit(4))
	assert.EqualValues(t, 2744, a.live.Load())
	assert.EqualValues(t, 2744, a.region.live.Load())

	b := budgetPool(c, "b", false) // whose share is 1244, but a has taken most
	require.False(t, b.admit(257), "above the cap")
	require.True(t, b.admit(256))
	require.False(t, a.admit(1), "above its share now")
	a.add(-2744)
	assert.EqualValues(t, 256, a.region.live.Load())
	assert.EqualValues(t, 256, b.live.Load())
}

func charge(budget, kind string, l limiter.Limit) *limiter.Charge {
	return &limiter.Charge{Limit: l,
		Key: limiter.Key{Budget: budget, Principal: limiter.Principal{Kind: kind, ID: "x"}}}
}

func TestCatalog_OneClassForALimitOfABudget(t *testing.T) {
	c := newCatalog(1000, 256)
	log := limiter.Limit{Algorithm: limiter.RollingLog, Tokens: 5, Per: time.Second}
	evenLog := limiter.Limit{Algorithm: limiter.RollingLog, Tokens: 6, Per: time.Second}
	first := c.pin(charge("a", "user", limiter.PerSecond(5)), false)
	number := first.number
	assert.Same(t, first, c.class(number))
	assert.EqualValues(t, 1, number, "0 is none")
	assert.EqualValues(t, 1, first.newPlaces)
	spelled := limiter.PerSecond(5)
	spelled.Burst = 5
	same := c.pin(charge("a", "user", spelled), false)
	again := same.number
	assert.Same(t, first, same)
	assert.Equal(t, number, again)
	assert.EqualValues(t, 2, first.refs.Load())
	assert.True(t, first.is(&spelled))
	seen := map[uint32]bool{number: true}
	for _, other := range []struct {
		charge   *limiter.Charge
		overflow bool
		places   int64
	}{
		{charge("a", "user", limiter.PerSecond(6)), false, 1},
		{charge("a", "user", limiter.PerMinute(5)), false, 1},
		{charge("a", "user", limiter.Limit{Tokens: 5, Per: time.Second, Burst: 6}), false, 1},
		{charge("a", "user", limiter.Limit{Algorithm: 1, Tokens: 5, Per: time.Second}), false, 1},
		{charge("a", "user", log), false, 2},
		{charge("a", "user", evenLog), false, 2},
		{charge("b", "user", limiter.PerSecond(5)), false, 1},
		{charge("a", kind.Address, limiter.PerSecond(5)), false, 1},
		{charge("a", "user", limiter.PerSecond(5)), true, 1},
		{charge("a", "user", limiter.Limit{Algorithm: 2, Tokens: 100, Per: time.Second}), true, 2},
		{charge("a", "user", limiter.Limit{Algorithm: 2, Tokens: 1, Per: time.Second}), true, 2},
	} {
		class := c.pin(other.charge, other.overflow)
		number := class.number
		assert.False(t, seen[number], "%+v", other)
		seen[number] = true
		assert.Equal(t, other.places, class.newPlaces)
		assert.Equal(t, other.overflow, class.overflow)
		assert.Equal(t, other.charge.Limit.Algorithm == limiter.RollingLog, class.isLog())
		assert.Equal(t, other.charge.Key.Budget, class.pool.name)
		id := uint64(0)
		if other.charge.Key.Principal.Kind == kind.Address {
			id = 1
		}
		assert.Equal(t, id, class.pool.region.id)
		if other.charge.Limit != limiter.PerSecond(5) {
			assert.False(t, first.is(&other.charge.Limit), "%v", other.charge.Limit)
		}
	}
	first.unpin()
	assert.EqualValues(t, 1, first.refs.Load())
}

// Two requests that use a new limit at the same time must not number it twice.
func TestCatalog_OneClassForRequestsAtOnce(t *testing.T) {
	c := newCatalog(1000, 256)
	id := classID{poolID: poolID{"a", false}, limit: limiter.Limit{Tokens: 1, Per: 1, Burst: 1}}
	first := c.intern(id)
	assert.Same(t, first, c.intern(id))
	assert.EqualValues(t, 2, first.refs.Load())
}

func TestCatalog_NumbersThatNothingHoldsAreUsedAgain(t *testing.T) {
	c := newCatalog(1000, 256)
	held := map[uint32]*class{}
	highest := uint32(0)
	for i := range int64(20_000) {
		class := c.pin(charge("a", "user", limiter.PerSecond(i+1)), false)
		number := class.number
		require.Equal(t, i+1, class.limit.Tokens)
		highest = max(highest, number)
		require.NotContains(t, held, number, "it is held")
		if i%100 == 0 {
			held[number] = class
			continue
		}
		class.unpin()
	}
	for number, class := range held {
		require.Same(t, class, c.class(number))
		again := c.pin(charge("a", "user", class.limit), false)
		same := again.number
		require.Same(t, class, again)
		require.Equal(t, number, same)
	}
	assert.EqualValues(t, 1024, highest, "200 are held, so 1024 are enough")
}

func TestCatalog_GrowsWithTheClassesThatAreHeld(t *testing.T) {
	c := newCatalog(1000, 256)
	for i := range int64(5000) {
		number := c.pin(charge("a", "user", limiter.PerSecond(i+1)), false).number
		require.EqualValues(t, i+1, number)
	}
	for i := range int64(5000) {
		require.Equal(t, i+1, c.class(uint32(i+1)).limit.Tokens)
	}
}

// Two limiters may plan the same budget. When the last one removes it, its share goes
// to the others.
func TestCatalog_CountsHowOftenABudgetIsPlanned(t *testing.T) {
	c := newCatalog(40_000, 256)
	sharers := func() []int64 {
		return []int64{c.regions[0].pools.Load(), c.regions[1].pools.Load()}
	}
	c.plan([]string{"a", "b"}, 1)
	c.plan([]string{"a"}, 1)
	c.plan([]string{"a"}, -1)
	assert.Equal(t, []int64{2, 2}, sharers(), "one of two")
	a := budgetPool(c, "a", false)
	assert.EqualValues(t, 15_000-256, a.share())
	a.overflowSize.Store(4)
	assert.EqualValues(t, 15_000-4*256, a.share(), "overflow accounts of four places")
	c.plan([]string{"a"}, -1)
	assert.Equal(t, []int64{1, 1}, sharers(), "none is left")
	b := c.pools[poolID{"b", false}]
	assert.EqualValues(t, 30_000-256, b.share())
	budgetPool(c, "a", false)
	assert.Equal(t, []int64{2, 1}, sharers(), "it is charged nevertheless")
	c.plan([]string{"a"}, -1)
	c.plan([]string{"b"}, -1)
	assert.Equal(t, []int64{0, 0}, sharers())
	assert.EqualValues(t, 30_000-256, b.share(), "all of it, when next")
	c.plan([]string{"a"}, 1)
	assert.Equal(t, []int64{1, 1}, sharers(), "announced again")
	c.plan([]string{"a"}, -1)
	assert.Equal(t, []int64{0, 0}, sharers())
}

// Budgets that are planned, used and removed one after the other leave nothing behind.
func TestCatalog_ForgetsBudgetsThatAreNotPlannedAnyMore(t *testing.T) {
	c := newCatalog(40_000, 256)
	for i := range 3000 {
		name := strconv.Itoa(i)
		c.plan([]string{name}, 1)
		for _, kind := range []string{"user", kind.Address} {
			class := c.pin(charge(name, kind, limiter.PerSecond(5)), false)
			class.unpin()
		}
		c.plan([]string{name}, -1)
	}
	assert.Empty(t, c.pools)
	assert.Empty(t, c.known)
	assert.LessOrEqual(t, len(*c.classes.Load()), 16, "numbers are used again")

	c.plan([]string{"held", "live", "planned"}, 1)
	class := c.pin(charge("held", "user", limiter.PerSecond(5)), false)
	number := class.number
	live := c.pin(charge("live", "user", limiter.PerSecond(5)), false)
	require.True(t, live.pool.admit(1))
	live.unpin()
	c.plan([]string{"held", "live"}, -1)
	assert.Contains(t, c.pools, poolID{"held", false})
	assert.Same(t, class, c.class(number), "a request is under way")
	assert.Contains(t, c.pools, poolID{"live", false}, "it holds an account")
	assert.NotContains(t, c.pools, poolID{"live", true})
	assert.Contains(t, c.pools, poolID{"planned", true})
	class.unpin()
	live.pool.add(-1)
	late := c.pin(charge("late", "user", limiter.PerSecond(5)), false)
	late.unpin()
	require.EqualValues(t, 2, c.regions[0].pools.Load(), "one is charged, one is planned")
	c.plan([]string{"planned"}, -1)
	assert.Empty(t, c.pools)
	assert.Zero(t, c.regions[0].pools.Load())
	assert.Zero(t, c.regions[1].pools.Load())
}

// A budget with logs reserves more places for its overflow accounts, whose logs do not
// grow.
func TestCatalog_LogsOfOverflowAccountsAreSmall(t *testing.T) {
	log := limiter.Limit{Algorithm: limiter.RollingLog, Tokens: 9, Per: time.Second}
	c := newCatalog(40_000, 256)
	bucket := c.pin(charge("a", "user", limiter.PerSecond(9)), true)
	assert.EqualValues(t, 1, bucket.newPlaces)
	assert.EqualValues(t, 1, bucket.pool.overflowSize.Load())
	own := c.pin(charge("a", "user", log), false)
	assert.EqualValues(t, 2, own.pool.overflowSize.Load())
	shared := c.pin(charge("a", "user", log), true)
	for _, class := range []*class{own, shared} {
		a, _ := account.Account{}.Under(&class.rule, 0)
		for now := range int64(9) {
			a.Tight = class.tight(&a, now)
			a.Debit(a.Used(now), now, 1)
		}
		assert.Equal(t, class.overflow, places(a.LogRoom()) == 2)
	}
	own.pool.region.cap = 0
	a, _ := account.Account{}.Under(&own.rule, 0)
	assert.True(t, own.tight(&a, 0), "there is no room for a log")
	assert.False(t, bucket.tight(&a, 0), "it is no log")
}

func TestPlaces_CountsTheRoomForEntries(t *testing.T) {
	for entries, want := range map[int]int64{0: 1, 1: 2, 2: 2, 3: 3, 4: 3, 10_000: 5001} {
		assert.Equal(t, want, places(entries), entries)
	}
}
