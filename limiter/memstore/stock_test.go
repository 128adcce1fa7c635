package memstore

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
)

// leftOver returns how many places the stocks hold, and how many shards have some.
func leftOver(s *Store) (places int64, shards int) {
	for i := range s.shards {
		before := places
		for _, st := range s.shards[i].stocks {
			places += st.free
		}
		if places > before {
			shards++
		}
	}
	return places, shards
}

// Places that shards hold in stock are not lost at the cap: a budget keeps exactly as
// many accounts as its share, whichever shards they are in and whatever their limits.
func TestStock_ABudgetUsesItsWholeShare(t *testing.T) {
	for _, limits := range [][]limiter.Limit{
		{limiter.PerDay(1)},
		{limiter.PerDay(1), limiter.PerDay(2), limiter.PerDay(3)},
	} {
		now := time.Unix(1000, 0)
		s, err := New(Config{MaxAccounts: 60_000, Now: func() time.Time { return now }})
		require.NoError(t, err)
		s.Capabilities().Plan([]string{"a"}, nil)
		share := budgetPool(s.classes, "a", false).share()
		take := func(i int) limiter.Result {
			c := charge("a", "user", limits[i%len(limits)])
			c.Key.Principal.ID, c.Cost = fmt.Sprint(i), 1
			charges := []limiter.Charge{*c}
			_, err := s.Take(t.Context(), charges)
			require.NoError(t, err)
			return charges[0].Result
		}
		kept := int64(0)
		for ; kept < share*3/4; kept++ {
			require.False(t, take(int(kept)).Overflow)
		}
		places, shards := leftOver(s)
		require.Greater(t, shards, shardCount*3/4, "the others have just used theirs up")
		require.Greater(t, places, int64(shardCount))
		audit(t, s)
		for ; !take(int(kept)).Overflow; kept++ {
			require.Less(t, kept, share)
		}
		require.Equal(t, share, kept)
		places, _ = leftOver(s)
		require.Zero(t, places)
		audit(t, s)
		require.Equal(t, share+1, s.Stats().Accounts, "with an overflow account")

		now = now.Add(24 * time.Hour)   // all are full again, and replaced
		for i := range int(share) / 2 { // the search for a full account is bounded
			require.False(t, take(1<<30+i).Overflow)
		}
		audit(t, s)
		require.LessOrEqual(t, s.Stats().Accounts, share)
	}
}

// A removed budget whose accounts have been dropped is forgotten, though shards had places
// of it in stock.
func TestStock_IsGivenBackWhenABudgetIsRemoved(t *testing.T) {
	now := time.Unix(1000, 0)
	s, err := New(Config{Now: func() time.Time { return now }})
	require.NoError(t, err)
	s.Capabilities().Plan([]string{"a"}, nil)
	for i := range 2000 {
		c := charge("a", "user", limiter.PerSecond(1))
		c.Key.Principal.ID, c.Cost = fmt.Sprint(i), 1
		_, err := s.Take(t.Context(), []limiter.Charge{*c})
		require.NoError(t, err)
	}
	places, _ := leftOver(s)
	require.NotZero(t, places)
	require.EqualValues(t, 2000, s.Stats().Accounts)
	now = now.Add(time.Second)
	require.Zero(t, s.Stats().Accounts)
	s.Capabilities().Plan(nil, []string{"a"})
	require.Empty(t, s.classes.pools)
	require.Empty(t, s.classes.known)
}

// Goroutines add, replace and drop accounts of several limits near the cap, while budgets
// come and go. The cap is never exceeded, and all counts are right in the end.
func TestStock_CountsAreRightAfterRequestsAtOnce(t *testing.T) {
	const shards = 8
	s := newStore(Config{MaxAccounts: 4000, Now: time.Now}, shards)
	s.Capabilities().Plan([]string{"a", "b"}, nil)
	share := budgetPool(s.classes, "a", false).share() + shards // overflow accounts
	var group sync.WaitGroup
	for g := range 8 {
		group.Go(func() {
			random := rand.New(rand.NewPCG(uint64(g), 1))
			for i := range 4000 {
				c := charge([]string{"a", "b"}[random.IntN(2)], "user",
					limiter.PerSecond(1000+random.Int64N(12)))
				c.Key.Principal.ID, c.Cost = fmt.Sprint(random.IntN(5000)), 1+random.Int64N(900)
				other := *c
				other.Key.Budget, other.Limit = "a", limiter.PerSecond(10)
				other.Cost = 1
				charges := []limiter.Charge{*c, other}[:1+random.IntN(2)]
				if charges[0].Key == other.Key {
					charges = charges[:1]
				}
				_, err := s.Take(t.Context(), charges)
				assert.NoError(t, err)
				for _, p := range []string{"a", "b"} {
					live := budgetPoolLocked(s.classes, p).live.Load()
					assert.LessOrEqual(t, live, share)
				}
				switch i % 500 {
				case 0:
					s.Stats()
				case 250:
					s.Capabilities().Plan([]string{"b"}, []string{"b"})
				}
			}
		})
	}
	group.Wait()
	audit(t, s)
	s.Stats()
	audit(t, s)
	places, _ := leftOver(s)
	require.Zero(t, places)
}

func budgetPoolLocked(c *catalog, name string) *pool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return budgetPool(c, name, false)
}
