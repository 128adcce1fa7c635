package memstore

import (
	"context"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/account"
	"github.com/ration-go/ration/internal/kind"
	"github.com/ration-go/ration/limiter"
)

// audit fails unless the store's counts are right: places of pools and regions, in use
// and in stocks, references to classes, logs, and records of blocks.
func audit(t *testing.T, s *Store) {
	t.Helper()
	live, overflows, refs := map[*pool]int64{}, map[*pool]int64{}, map[*class]int64{}
	stocks := map[*pool]int64{}
	for i := range s.shards {
		sh := &s.shards[i]
		logs := 0
		for j, b := range sh.directory {
			if j >= 1<<b.depth() { // the same block has a smaller index too
				require.Same(t, &sh.directory[j&(1<<b.depth()-1)][0], &b[0])
				continue
			}
			logs += auditBlock(t, s, sh, j, func(c *class, n int64) {
				live[c.pool] += n
				refs[c]++
				if c.overflow {
					overflows[c.pool] += n
				}
			})
		}
		for _, st := range sh.stocks {
			require.True(t, st.free >= 0 && (st.active || st.free == 0), "%+v", st)
			if st.active {
				stocks[st.class.pool]++
				live[st.class.pool] += st.free
				refs[st.class] += st.free
			}
		}
		require.Equal(t, logs, len(sh.logs)-len(sh.freeLogs), "places of logs")
		for _, free := range sh.freeLogs {
			require.Nil(t, sh.logs[free])
		}
	}
	regions := map[*region]int64{}
	for _, p := range s.classes.pools {
		require.Equal(t, live[p], p.live.Load(), "places of a pool")
		require.Equal(t, stocks[p], p.stocks.Load(), "stocks of a pool")
		require.Equal(t, overflows[p], p.overflowLive.Load(), "overflow accounts of a pool")
		regions[p.region] += live[p]
	}
	for _, r := range s.classes.regions {
		require.Equal(t, regions[r], r.live.Load(), "places of a region")
	}
	for _, c := range s.classes.known {
		require.Equal(t, refs[c], c.refs.Load(), "references to a class")
	}
}

// auditBlock calls see for the class and the places of each record, and returns how
// many records have logs.
func auditBlock(t *testing.T, s *Store, sh *shard, at int, see func(*class, int64)) (logs int) {
	b := sh.directory[at]
	count := 0
	for i := 1; i < len(b); i++ {
		r := &b[i]
		if r.class == 0 {
			continue
		}
		count++
		require.Equal(t, i, b.index(r.fingerprint()), "a record is where it is looked for")
		require.Equal(t, at, int(r.high)&(1<<b.depth()-1), "and in the block where it is")
		c := s.classes.class(r.class)
		a := sh.load(r, c)
		now := s.latest.Load()
		if !a.Full(now) {
			require.LessOrEqual(t, b[0].state.At, fullAt(now, &a), "the header is not too late")
		}
		if c.rule.Algorithm == account.RollingLog {
			require.NotNil(t, a.Log)
			logs++
		}
		see(c, places(a.LogRoom()))
	}
	require.Equal(t, b.count(), count, "the header counts the records")
	return logs
}

// randomCall makes a random call on some of many keys, so that the store adds, moves,
// converts and drops accounts.
func randomCall(t *testing.T, s *Store, r *rand.Rand, keys int) {
	ctx := context.Background()
	kinds := []string{"user", kind.Address}
	limits := []limiter.Limit{
		{Tokens: 3, Per: time.Second}, {Tokens: 2, Per: 3 * time.Second, Burst: 5},
		{Tokens: 3, Per: 2 * time.Second, Algorithm: limiter.FixedWindow},
		{Tokens: 5, Per: time.Second, Algorithm: limiter.RollingLog},
		{Tokens: 9, Per: 2 * time.Second, Algorithm: limiter.RollingLog},
	}
	principal := limiter.Principal{Kind: kinds[r.IntN(2)], ID: strconv.Itoa(r.IntN(keys))}
	charges := make([]limiter.Charge, 1+r.IntN(3))
	for i := range charges {
		charges[i] = limiter.Charge{
			Key:   limiter.Key{Budget: strconv.Itoa(i % 2), Principal: principal},
			Limit: limits[r.IntN(len(limits))], Cost: r.Int64N(5),
		}
	}
	if len(charges) > 2 {
		charges[2].Limit = charges[0].Limit // one key twice
	}
	switch r.IntN(10) {
	case 0:
		require.NoError(t, s.Reset(ctx, charges))
	case 1:
		_, err := s.Peek(ctx, charges)
		require.NoError(t, err)
	default:
		d, err := s.Take(ctx, charges)
		require.NoError(t, err)
		if d.Allowed() && r.IntN(3) == 0 {
			for i := range charges {
				taken := charges[i].Receipt.Taken
				charges[i].Cost = r.Int64N(taken+4) - taken
			}
			require.NoError(t, s.Settle(ctx, charges))
		}
	}
}

func TestStore_CountsWhatItHolds(t *testing.T) {
	for _, test := range []struct{ maxAccounts, keys int }{
		{1_000_000, 200}, {1_000_000, 40_000}, {4800, 20_000}, {1, 300},
	} {
		name := strconv.Itoa(test.maxAccounts) + "-" + strconv.Itoa(test.keys)
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, uint64(test.keys)))
			now := time.Unix(1000, 0)
			s, err := New(Config{MaxAccounts: test.maxAccounts, Now: func() time.Time { return now }})
			require.NoError(t, err)
			steps := 20_000
			if testing.Short() {
				steps /= 5
			}
			for step := range steps {
				randomCall(t, s, r, test.keys)
				now = now.Add(time.Duration(r.IntN(400)) * time.Microsecond)
				if step%1000 == 0 {
					audit(t, s)
				}
			}
			audit(t, s)
			now = now.Add(time.Second)
			s.Stats()
			audit(t, s)
			now = now.Add(time.Hour)
			require.Zero(t, s.Stats().Accounts, "all are full again")
			audit(t, s)
			for i := range s.shards {
				for _, b := range s.shards[i].directory {
					require.Len(t, b, smallestBlock, "what is empty is small")
				}
			}
		})
	}
}

func TestStore_AShadowThatCanNeverPayHasNoRecord(t *testing.T) {
	s, err := New(Config{})
	require.NoError(t, err)
	shadow := charge("shadow", "user", limiter.PerHour(1))
	shadow.Cost, shadow.Shadow = 2, true
	paid := charge("paid", "user", limiter.PerHour(5))
	paid.Cost = 2
	d, err := s.Take(t.Context(), []limiter.Charge{*paid, *shadow})
	require.NoError(t, err)
	require.True(t, d.Allowed())
	require.EqualValues(t, 1, s.classes.regions[0].live.Load())
	audit(t, s)
}

// Records that are full again make room for others before a block grows.
func TestStore_WhatIsFullAgainIsDroppedBeforeABlockGrows(t *testing.T) {
	now := time.Unix(1000, 0)
	s, err := New(Config{Now: func() time.Time { return now }})
	require.NoError(t, err)
	for i := range 2000 { // of one principal, and so in one shard
		c := charge("a", "user", limiter.PerSecond(1))
		c.Cost, c.Key.Route = 1, strconv.Itoa(i)
		_, err := s.Take(t.Context(), []limiter.Charge{*c})
		require.NoError(t, err)
		if i%50 == 49 {
			now = now.Add(time.Second)
		}
	}
	require.LessOrEqual(t, s.classes.regions[0].live.Load(), int64(128))
	audit(t, s)
}

func TestStore_StatsDropsWhatIsFullAndNothingElse(t *testing.T) {
	now := time.Unix(1000, 0)
	s, err := New(Config{Now: func() time.Time { return now }})
	require.NoError(t, err)
	take := func(route string, l limiter.Limit, cost int64) limiter.Decision {
		c := charge("a", "user", l) // of one principal, and so in one block
		c.Cost, c.Key.Route = cost, route
		d, err := s.Take(t.Context(), []limiter.Charge{*c})
		require.NoError(t, err)
		return d
	}
	for i := range 5 {
		take("soon"+strconv.Itoa(i), limiter.PerSecond(1), 1)
		take("late"+strconv.Itoa(i), limiter.PerHour(2), 2)
	}
	now = now.Add(time.Second)
	require.EqualValues(t, 5, s.Stats().Accounts)
	audit(t, s)
	for i := range 5 {
		require.Equal(t, limiter.Deny, take("late"+strconv.Itoa(i), limiter.PerHour(2), 1).Outcome)
		require.True(t, take("soon"+strconv.Itoa(i), limiter.PerSecond(1), 1).Allowed())
	}
}

func TestStore_PlacesOfLogsAreUsedAgain(t *testing.T) {
	s, err := New(Config{})
	require.NoError(t, err)
	log := limiter.Limit{Algorithm: limiter.RollingLog, Tokens: 5, Per: time.Hour}
	for range 100 {
		c := []limiter.Charge{*charge("a", "user", log)}
		c[0].Cost = 1
		_, err := s.Take(t.Context(), c)
		require.NoError(t, err)
		require.NoError(t, s.Reset(t.Context(), c))
	}
	audit(t, s)
	for i := range s.shards {
		require.LessOrEqual(t, len(s.shards[i].logs), 1)
	}
}

func TestNew_HoldsAMillionAccountsByDefault(t *testing.T) {
	s, err := New(Config{})
	require.NoError(t, err)
	require.EqualValues(t, 1_000_000, s.classes.regions[0].cap+s.classes.regions[1].cap)
}

func TestStore_ACreditThatFillsAnAccountLeavesNoRecord(t *testing.T) {
	now := time.Unix(1000, 0)
	s, err := New(Config{Now: func() time.Time { return now }})
	require.NoError(t, err)
	c := []limiter.Charge{*charge("a", "user", limiter.PerSecond(5))}
	c[0].Cost = 1
	_, err = s.Take(t.Context(), c)
	require.NoError(t, err)
	now = now.Add(time.Second)
	require.Zero(t, s.Stats().Accounts)
	c[0].Cost = -1
	require.NoError(t, s.Settle(t.Context(), c))
	require.Zero(t, s.classes.regions[0].live.Load())
	audit(t, s)
}
