package memstore

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
)

// smallStore is a store in which each budget has room for a few accounts besides its
// overflow accounts.
type smallStore struct {
	*Store
	t   *testing.T
	now time.Time
}

func newSmallStore(t *testing.T, room int64) *smallStore {
	c := &smallStore{t: t, now: time.Unix(1000, 0)}
	s := newStore(Config{MaxAccounts: 8000, Now: func() time.Time { return c.now }}, shardCount)
	s.Capabilities().Plan([]string{"a", "b"}, nil) // with 3000 each, less 256
	s.classes.regions[0].cap = 2 * (room + shardCount)
	c.Store = s
	return c
}

var three = limiter.Limit{Tokens: 3, Per: time.Hour}

func on(budget, id, route string, cost int64) limiter.Charge {
	return limiter.Charge{Limit: three, Cost: cost, Key: limiter.Key{
		Budget: budget, Principal: limiter.Principal{Kind: "user", ID: id}, Route: route}}
}

func (c *smallStore) take(charges ...limiter.Charge) (limiter.Decision, []limiter.Charge) {
	c.t.Helper()
	d, err := c.Take(c.t.Context(), charges)
	require.NoError(c.t, err)
	audit(c.t, c.Store)
	return d, charges
}

// takeUnaudited is take without the audit.
func (c *smallStore) takeUnaudited(charge limiter.Charge) limiter.Decision {
	d, err := c.Take(c.t.Context(), []limiter.Charge{charge})
	require.NoError(c.t, err)
	return d
}

func (c *smallStore) requireOverflowTakes(n int64) {
	c.t.Helper()
	require.Equal(c.t, n, c.overflowTakes.Load())
}

// locate returns the shard and the fingerprint of an id's account in budget a.
func (c *smallStore) locate(id string) (number int, name fingerprint) {
	var draws [1]draw
	var locks lockSet
	c.prepare(draws[:], []limiter.Charge{on("a", id, "", 0)}, &locks)
	for i := range c.shards {
		if draws[0].shard == &c.shards[i] {
			return i, draws[0].fingerprint
		}
	}
	panic("there is one")
}

// inOtherShard returns an id whose accounts are in another shard than other's. The
// number of that shard is odd if odd is true.
func (c *smallStore) inOtherShard(other string, odd bool) string {
	not, _ := c.locate(other)
	for i := 0; ; i++ {
		id := strconv.Itoa(i)
		if number, _ := c.locate(id); number != not && number%2 == 1 == odd {
			return id
		}
	}
}

func TestStore_OverflowAccountsHaveRoomOfTheirOwn(t *testing.T) {
	c := newSmallStore(t, 10)
	for i := range 8000 {
		d := c.takeUnaudited(on("a", strconv.Itoa(i), "", 1))
		if i < 10 {
			require.True(t, d.Allowed())
			c.requireOverflowTakes(0)
		}
	}
	audit(t, c.Store)
	p := c.classes.pool(poolID{"a", false})
	assert.EqualValues(t, 256, p.overflowLive.Load(), "one for each shard")
	assert.EqualValues(t, 10+256, p.live.Load())
	assert.EqualValues(t, 10+256, p.share())
	c.requireOverflowTakes(7990)
	c.now = c.now.Add(2 * time.Hour)
	assert.Zero(t, c.Stats().Accounts)
	audit(t, c.Store)
	assert.EqualValues(t, 10, p.share())
}

func TestStore_CountsTakesOnOverflowAccounts(t *testing.T) {
	c := newSmallStore(t, 1)
	c.take(on("a", "first", "", 1))
	_, err := c.Peek(t.Context(), []limiter.Charge{on("a", "second", "", 1)})
	require.NoError(t, err)
	c.requireOverflowTakes(0)
	d, _ := c.take(on("a", "second", "", 1))
	assert.EqualValues(t, 2, d.Remaining)
	c.requireOverflowTakes(1)
	d, _ = c.take(on("a", "second", "", 0))
	assert.EqualValues(t, 2, d.Remaining, "a cost of 0 sees it too")
	c.requireOverflowTakes(2)
	d, _ = c.take(on("a", "second", "", 1), on("b", "second", "", 0))
	assert.True(t, d.Allowed())
	c.requireOverflowTakes(3)
	c.take(on("a", "first", "", 1))
	c.take(on("b", "second", "", 1))
	c.requireOverflowTakes(3)
}

// Each result says whether its account is an overflow account, so that nobody is
// shown what others have used.
func TestStore_ResultsMarkOverflowAccounts(t *testing.T) {
	c := newSmallStore(t, 1)
	_, charges := c.take(on("a", "first", "", 1))
	assert.False(t, charges[0].Result.Overflow)
	second := []limiter.Charge{on("a", "second", "", 1), on("b", "second", "", 1)}
	overflow := func() []bool { return []bool{second[0].Result.Overflow, second[1].Result.Overflow} }
	_, err := c.Peek(t.Context(), second)
	require.NoError(t, err)
	assert.Equal(t, []bool{true, false}, overflow())
	for _, cost := range []int64{2, 2, 4, 0} { // allowed, denied, never, allowed
		second[0].Cost = cost
		c.take(second...)
		assert.Equal(t, []bool{true, false}, overflow())
	}
	second[0].Key.Principal.ID = "first" // in a charge that is used again
	second[0].Cost = 1
	c.take(second[0])
	assert.Equal(t, []bool{true, false}, overflow(), "take copies")
	_, err = c.Take(t.Context(), second[:1])
	require.NoError(t, err)
	assert.Equal(t, []bool{false, false}, overflow())
}

func TestStore_ChargesOfOneOverflowAccountAddUp(t *testing.T) {
	c := newSmallStore(t, 1)
	c.take(on("a", "first", "", 1))
	d, charges := c.take(on("a", "x", "r1", 1), on("a", "x", "r2", 1), on("a", "x", "r3", 1))
	require.True(t, d.Allowed())
	for _, charge := range charges {
		assert.Zero(t, charge.Result.Remaining)
	}
	d, _ = c.take(on("a", "x", "r4", 1))
	assert.Equal(t, limiter.Deny, d.Outcome)
	for i := range charges {
		charges[i].Cost = -1
	}
	require.NoError(t, c.Settle(t.Context(), charges))
	audit(t, c.Store)
	d, _ = c.take(on("a", "x", "r4", 3))
	assert.True(t, d.Allowed(), "each was given back where it was taken")
	d, _ = c.take(on("a", "y", "r1", 2), on("a", "y", "r2", 2))
	assert.Equal(t, limiter.Never, d.Outcome, "together they are above the capacity")

	c.now = c.now.Add(2 * time.Hour) // x may share its overflow account with one of the next
	c.take(on("a", "first", "", 1))
	other := c.inOtherShard("z", true)
	d, _ = c.take(on("a", "z", "", 2), on("a", other, "", 2))
	assert.True(t, d.Allowed(), "of two shards they do not")
}

// One overflow account cannot have two limits: the strictest charge stands for
// all, in any order, so that no charge gets around its own limit.
func TestStore_TheStrictestChargeOfAnOverflowAccountStands(t *testing.T) {
	strict := on("a", "x", "r1", 2)
	for name, loosen := range map[string]func(*limiter.Charge){
		"a larger limit": func(c *limiter.Charge) { c.Limit = limiter.PerHour(1000) },
		"a larger burst": func(c *limiter.Charge) { c.Limit.Burst = 1000 },
		"a shadow":       func(c *limiter.Charge) { c.Shadow = true },
		"a large shadow": func(c *limiter.Charge) { c.Shadow, c.Limit = true, limiter.PerHour(1000) },
		"a small shadow": func(c *limiter.Charge) { c.Shadow, c.Limit = true, limiter.PerHour(2) },
	} {
		loose := on("a", "x", "r2", 1)
		loosen(&loose)
		third := loose
		third.Key.Route = "r3"
		for _, charges := range [][]limiter.Charge{
			{strict, loose}, {loose, strict}, {loose, strict, third}, {loose, third, strict},
			{loose, strict, loose},
		} {
			t.Run(name, func(t *testing.T) {
				c := newSmallStore(t, 1)
				c.take(on("a", "first", "", 1))
				if len(charges) == 3 {
					for i := range charges {
						charges[i].Cost = 1
					}
				}
				d, _ := c.take(charges...)
				require.True(t, d.Allowed())
				assert.Equal(t, three, d.Limit)
				for _, charge := range charges {
					assert.Equal(t, limiter.Result{Outcome: limiter.Allow, ResetAfter: time.Hour,
						Overflow: true}, charge.Result)
				}
				d, _ = c.take(charges...)
				assert.Equal(t, limiter.Deny, d.Outcome)
				assert.Equal(t, three, d.Limit)
				assert.Equal(t, time.Hour, d.RetryAfter)
			})
		}
	}
}

// A search always includes the block of the new account, whose shard is locked already.
func TestStore_AFullAccountOfTheBlockMakesRoom(t *testing.T) {
	c := newSmallStore(t, 1)
	c.take(on("a", "x", "r1", 3))
	c.now = c.now.Add(time.Hour - 1)
	c.take(on("a", "x", "r2", 1))
	c.requireOverflowTakes(1)
	c.now = c.now.Add(2 * time.Hour)
	d, _ := c.take(on("a", "x", "r3", 1))
	assert.True(t, d.Allowed())
	c.requireOverflowTakes(1)
}

func TestStore_TheSearchReachesEveryShard(t *testing.T) {
	for _, odd := range []bool{false, true} {
		c := newSmallStore(t, 1)
		full := c.inOtherShard("x", odd)
		number, name := c.locate(full)
		c.take(on("a", full, "", 1))
		c.now = c.now.Add(time.Hour)
		searches := 0
		for ; c.shards[number].find(name) != nil; searches++ {
			require.Less(t, searches, 4000, "names come to every shard in time")
			c.take(on("a", "x", strconv.Itoa(searches), 1))
		}
		c.requireOverflowTakes(int64(searches - 1))
	}
}

// The search for one charge may drop the full account of another charge.
func TestStore_AnAccountThatItsOwnRequestDropsIsMadeAgain(t *testing.T) {
	for _, test := range []struct{ room, overflow int64 }{{1, 1}, {2, 0}} {
		t.Run(strconv.FormatInt(test.room, 10), func(t *testing.T) {
			c := newSmallStore(t, test.room)
			c.take(on("a", "x", "", 1))
			if test.room == 2 {
				c.take(on("a", "x", "other", 1))
			}
			c.now = c.now.Add(time.Hour)
			d, charges := c.take(on("a", "x", "", 2), on("a", "x", "new", 1))
			require.True(t, d.Allowed())
			assert.EqualValues(t, 1, charges[0].Result.Remaining)
			assert.EqualValues(t, 2, charges[1].Result.Remaining)
			c.requireOverflowTakes(test.overflow)
			p := c.classes.pool(poolID{"a", false})
			assert.Equal(t, test.overflow, p.overflowLive.Load())
			for i := range charges {
				charges[i].Cost = 0
			}
			_, after := c.take(charges...)
			assert.EqualValues(t, 1, after[0].Result.Remaining)
			assert.EqualValues(t, 2, after[1].Result.Remaining)
		})
	}
}

func TestStore_OneRequestTakesNoMorePlacesThanThereAre(t *testing.T) {
	c := newSmallStore(t, 1)
	c.take(on("a", "x", "r1", 1), on("a", "x", "r2", 1))
	c.requireOverflowTakes(1)
	c.take(on("b", "x", "r1", 0), on("b", "x", "r2", 1))
	c.requireOverflowTakes(1) // a cost of 0 needs none
}
