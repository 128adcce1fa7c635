package memstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/kind"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
)

var (
	largeLog   = limiter.Limit{Algorithm: limiter.RollingLog, Tokens: 10_000, Per: time.Hour}
	fiveAnHour = limiter.PerHour(5)
)

// A rolling log counts by its entries, not by its limit: 100,000 callers with one entry
// each have accounts of their own in the default store.
func TestStore_LogsOfOneEntryAreSmall(t *testing.T) {
	callers := less(100_000)
	for _, kind := range []string{"user", kind.Address} {
		t.Run(kind, func(t *testing.T) {
			var c clock
			s := newStore(t, memstore.Config{Now: c.now})
			s.Capabilities().Plan([]string{"log"}, nil)
			user := newCaller(s, "log", kind, largeLog)
			before := heap()
			for i := range callers {
				require.EqualValues(t, 9999, user.take(t, fmt.Sprint("caller-", i)).Remaining)
			}
			grown := heap() - before
			assert.Equal(t, memstore.Stats{Accounts: int64(2 * callers)}, s.Stats(), "two places for each")
			assert.Less(t, grown, int64(callers*2*75), "bytes")
			t.Logf("%d bytes for each of %d logs of one entry", grown/int64(callers), callers)
		})
	}
}

// Rolling logs with many entries are large. When their budget has used up its share,
// they stop growing, and other budgets are not affected.
func TestStore_LogsStayInTheirShare(t *testing.T) {
	var c clock
	s := newStore(t, memstore.Config{MaxAccounts: 100_000, Now: c.now})
	s.Capabilities().Plan([]string{"log", "other"}, nil)
	const tokens = 2000
	limit := limiter.Limit{Algorithm: limiter.RollingLog, Tokens: tokens, Per: time.Hour}
	logs, other := newCaller(s, "log", "user", limit), newCaller(s, "other", "user", fiveAnHour)
	for i := range 20 {
		for range tokens {
			c.advance(time.Microsecond)
			require.True(t, logs.take(t, fmt.Sprint("caller-", i)).Allowed())
		}
		require.Equal(t, limiter.Deny, logs.take(t, fmt.Sprint("caller-", i)).Outcome)
	}
	assert.LessOrEqual(t, s.Stats().Accounts, int64(100_000*3/4/2))
	for i := range 20_000 {
		logs.take(t, fmt.Sprint("late-", i))
	}
	overflowTakes := s.Stats().OverflowTakes
	require.Positive(t, overflowTakes)
	for i := range 100 {
		require.True(t, other.take(t, fmt.Sprint("caller-", i)).Allowed())
	}
	stats := s.Stats()
	assert.Equal(t, overflowTakes, stats.OverflowTakes)
	assert.LessOrEqual(t, stats.Accounts, int64(75_000))
	c.advance(time.Hour)
	assert.Zero(t, s.Stats().Accounts)
}

// An overflow log keeps two entries: it is never looser than its limit, and
// lets its callers in again once Per has passed.
func TestStore_AnOverflowLogIsStricterNeverLooser(t *testing.T) {
	var c clock
	s := newStore(t, memstore.Config{MaxAccounts: 1, Now: c.now})
	limit := limiter.Limit{Algorithm: limiter.RollingLog, Tokens: 5, Per: 10 * time.Second}
	user := newCaller(s, "log", "user", limit)
	var admitted []time.Time
	for range 400 {
		c.advance(250 * time.Millisecond)
		if user.take(t, "alice").Allowed() {
			admitted = append(admitted, c.now())
		}
	}
	require.Greater(t, len(admitted), 20)
	for i := range len(admitted) - 5 {
		require.GreaterOrEqual(t, admitted[i+5].Sub(admitted[i]), limit.Per)
	}
	c.advance(limit.Per)
	for range 5 {
		require.True(t, user.take(t, "alice").Allowed())
	}
}

// A change of the limit to a log makes no account larger than its share has room for.
func TestStore_AChangeToLogsStaysNearTheCap(t *testing.T) {
	var c clock
	s := newStore(t, memstore.Config{MaxAccounts: 20_000, Now: c.now})
	s.Capabilities().Plan([]string{"api"}, nil)
	const callers = 5000
	for _, limit := range []limiter.Limit{limiter.PerHour(10_000), largeLog} {
		user := newCaller(s, "api", "user", limit)
		for i := range callers {
			d := user.take(t, fmt.Sprint("caller-", i))
			require.True(t, d.Allowed())
		}
	}
	assert.LessOrEqual(t, s.Stats().Accounts, int64(20_000))
	user := newCaller(s, "api", "user", largeLog)
	require.EqualValues(t, 10_000-3, user.take(t, "caller-7").Remaining, "what was used stays used")
}

// Debits of Settle stay within the share.
func TestStore_SettledDebitsStayInTheCap(t *testing.T) {
	for _, cost := range []int64{0, 1} {
		var c clock
		s := newStore(t, memstore.Config{MaxAccounts: 5000, Now: c.now})
		s.Capabilities().Plan([]string{"api"}, nil)
		user := newCaller(s, "api", "user", fiveAnHour)
		user.one[0].Cost = cost
		var receipts []limiter.Charge
		for i := range 20_000 {
			require.True(t, user.take(t, fmt.Sprint("caller-", i)).Allowed() || cost > 0)
			if ok := user.one[0].Receipt.Valid; ok {
				receipts = append(receipts, user.one[0])
			}
		}
		c.advance(time.Hour)
		require.Zero(t, s.Stats().Accounts)
		for i := range receipts {
			receipts[i].Cost = 2
			require.NoError(t, s.Settle(context.Background(), receipts[i:i+1]))
		}
		assert.LessOrEqual(t, s.Stats().Accounts, int64(3750), "three quarters of the cap")
	}
}

// Peek says what Take says even if the share is used up.
func TestStore_PeekSaysWhatTakeSaysIfTheShareIsUsedUp(t *testing.T) {
	var c clock
	s := newStore(t, memstore.Config{MaxAccounts: 1000, Now: c.now})
	random := rand.New(rand.NewPCG(3, 4))
	user := newCaller(s, "api", "user", limiter.PerMinute(5))
	for range 50_000 {
		c.advance(time.Duration(random.IntN(100)) * time.Millisecond)
		user.one[0].Key.Principal.ID = fmt.Sprint("caller-", random.IntN(5000))
		peeked, err := s.Peek(context.Background(), user.one[:])
		require.NoError(t, err)
		taken, err := s.Take(context.Background(), user.one[:])
		require.NoError(t, err)
		require.Equal(t, peeked, taken)
	}
	require.Positive(t, s.Stats().OverflowTakes)
}

// Peek leaves the receipts of an earlier Take where they are.
func TestStore_PeekLeavesReceipts(t *testing.T) {
	s := newStore(t, memstore.Config{})
	user := newCaller(s, "api", "user", fiveAnHour)
	require.True(t, user.take(t, "alice").Allowed())
	_, err := s.Peek(context.Background(), user.one[:])
	require.NoError(t, err)
	user.one[0].Cost = -1
	require.NoError(t, s.Settle(context.Background(), user.one[:]))
}

// A budget that is not planned any more gives its share to the others.
func TestStore_SharesComeBack(t *testing.T) {
	var c clock
	s := newStore(t, memstore.Config{MaxAccounts: 100_000, Now: c.now})
	last := []string{"budget"}
	s.Capabilities().Plan(last, nil)
	for i := range 300 {
		next := []string{fmt.Sprint("budget-", i)}
		s.Capabilities().Plan(next, nil)
		s.Capabilities().Plan(nil, last)
		last = next
	}
	user := newCaller(s, last[0], "user", fiveAnHour)
	for i := range 50_000 {
		require.True(t, user.take(t, fmt.Sprint("caller-", i)).Allowed())
	}
	assert.Zero(t, s.Stats().OverflowTakes)
}

// With a small cap, most places are for callers, few are reserved.
func TestStore_ASmallCapHoldsCallers(t *testing.T) {
	var c clock
	s := newStore(t, memstore.Config{MaxAccounts: 1000, Now: c.now})
	s.Capabilities().Plan([]string{"a", "b", "c", "d"}, nil)
	for i := range 183 { // three quarters of 1000 in four shares, less 4
		charges := []limiter.Charge{{Limit: limiter.PerDay(1), Cost: 1, Key: limiter.Key{Budget: "a",
			Principal: limiter.Principal{Kind: "user", ID: strconv.Itoa(i)}}}}
		d, err := s.Take(t.Context(), charges)
		require.NoError(t, err)
		require.True(t, d.Allowed(), i)
	}
	assert.Equal(t, memstore.Stats{Accounts: 183}, s.Stats())
}

// Budgets that are added when others use all places exceed the cap by no more than an
// overflow account for each shard and region.
func TestStore_BudgetsThatComeLateExceedTheCapByOverflowAccountsOnly(t *testing.T) {
	var c clock
	const maxAccounts, shards, late = 1000, 4, 10
	s := newStore(t, memstore.Config{MaxAccounts: maxAccounts, Now: c.now})
	flood := func(budget, kind string) {
		for i := range 2 * maxAccounts {
			_, err := s.Take(t.Context(), []limiter.Charge{{Limit: limiter.PerDay(1), Cost: 1,
				Key: limiter.Key{Budget: budget,
					Principal: limiter.Principal{Kind: kind, ID: strconv.Itoa(i)}}}})
			require.NoError(t, err)
		}
	}
	for i := range 1 + late {
		budget := strconv.Itoa(i)
		s.Capabilities().Plan([]string{budget}, nil)
		flood(budget, "user")
		flood(budget, kind.Address)
		assert.LessOrEqual(t, s.Stats().Accounts, int64(maxAccounts+i*2*shards))
	}
	assert.Greater(t, s.Stats().Accounts, int64(maxAccounts))
}
