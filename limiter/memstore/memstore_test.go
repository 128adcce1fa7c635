package memstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
	"github.com/ration-go/ration/limiter/storetest"
)

func newStore(t testing.TB, cfg memstore.Config) *memstore.Store {
	t.Helper()
	s, err := memstore.New(cfg)
	require.NoError(t, err)
	return s
}

// harness returns a harness of stores with that cap.
func harness(maxAccounts int) storetest.Harness {
	return harnessOf(func(t testing.TB, now func() time.Time) limiter.Store {
		return newStore(t, memstore.Config{MaxAccounts: maxAccounts, Now: now})
	})
}

// sharded returns a harness of stores with that cap and that number of shards.
func sharded(maxAccounts, shards int) storetest.Harness {
	return harnessOf(func(_ testing.TB, now func() time.Time) limiter.Store {
		return memstore.NewSharded(memstore.Config{MaxAccounts: maxAccounts, Now: now}, shards)
	})
}

func harnessOf(open func(testing.TB, func() time.Time) limiter.Store) storetest.Harness {
	return storetest.Harness{
		New:      open,
		Accounts: func(s limiter.Store) int { return int(s.(*memstore.Store).Stats().Accounts) },
	}
}

func TestStore_KeepsThePromise(t *testing.T) { storetest.Run(t, harness(0)) }

// A cap that just holds the accounts of each rule changes nothing, nor does the
// number of shards.
func TestStore_KeepsThePromiseAtATinyCap(t *testing.T) { storetest.Run(t, harness(50_000)) }

func TestStore_KeepsThePromiseInFewShards(t *testing.T) {
	counts := []int{1, 2, 16}
	if testing.Short() {
		counts = counts[1:2]
	}
	for _, shards := range counts {
		t.Run(strconv.Itoa(shards), func(t *testing.T) { storetest.Run(t, sharded(50_000, shards)) })
	}
}

// TestStore_KeepsThePromiseOnOverflowAccounts leaves out the rules that need an
// account for each of many keys. Two keys share an overflow account once in 256
// times, so a rule may fail by chance: it must fail three times.
func TestStore_KeepsThePromiseOnOverflowAccounts(t *testing.T) {
	rules := []string{
		"exact token buckets", "huge values", "starts full", "fills to capacity",
		"the latest of all requests", "outcomes", "refused means untouched", "who decides",
		"negative costs", "peek foretells", "peek writes no receipt", "peek keeps the limit",
		"debit down to debt", "settle once", "equal limits", "a refused request carries over",
		"windows of the epoch", "windows before the epoch", "hooks hold no lock",
		"a caller that is gone", "errors first", "cost 0",
	}
	for _, rule := range storetest.Rules() {
		if !slices.Contains(rules, rule.Name) {
			continue
		}
		t.Run(rule.Number+"/"+rule.Name, func(t *testing.T) {
			var err error
			for range 3 {
				if err = rule.Run(t, sharded(1, 256)); err == nil {
					break
				}
			}
			assert.NoError(t, err)
		})
	}
}

func TestNew_RefusesANegativeCap(t *testing.T) {
	s, err := memstore.New(memstore.Config{MaxAccounts: -1})
	assert.Nil(t, s)
	var config *limiter.ConfigError
	require.ErrorAs(t, err, &config)
	assert.Equal(t, "Config.MaxAccounts", config.Field)
	assert.Equal(t, -1, config.Value)
}

// A key names one account, whatever the other charges of a request are, and keys that
// differ in any part name different accounts.
func TestStore_AKeyNamesOneAccountWhateverStandsBesideIt(t *testing.T) {
	parts := []string{"", "x", "y"}
	var keys []limiter.Key
	for i := range 3 * 3 * 3 * 3 * 3 * 3 {
		part := func(n int) string { return parts[i/n%3] }
		keys = append(keys, limiter.Key{Budget: part(1), Route: part(3), Workload: part(9),
			Principal: limiter.Principal{Kind: part(27), Tenant: part(81), ID: part(243)}})
	}
	store := newStore(t, memstore.Config{Now: (&clock{}).now})
	limit := limiter.PerHour(100)
	take := func(cost int64, keys ...limiter.Key) []limiter.Charge {
		charges := make([]limiter.Charge, len(keys))
		for i, key := range keys {
			charges[i] = limiter.Charge{Key: key, Limit: limit, Cost: cost}
		}
		d, err := store.Take(context.Background(), charges)
		require.NoError(t, err)
		require.True(t, d.Allowed())
		return charges
	}
	r := rand.New(rand.NewPCG(1, 1))
	for range 10 {
		r.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		for rest := keys; len(rest) > 0; {
			n := min(1+r.IntN(6), len(rest))
			take(1, rest[:n]...)
			rest = rest[n:]
		}
	}
	for _, key := range keys {
		require.EqualValues(t, 90, take(0, key)[0].Result.Remaining, "%+v", key)
	}
}

func TestStore_ChargesThatAreUsedAgainShowNothingOld(t *testing.T) {
	for n := 1; n <= 2; n++ {
		now := &clock{}
		store := newStore(t, memstore.Config{Now: now.now})
		charges := make([]limiter.Charge, n)
		for i := range charges {
			charges[i] = limiter.Charge{Key: limiter.Key{Route: fmt.Sprint(i)},
				Limit: limiter.PerSecond(1), Cost: 1}
		}
		take := func() limiter.Decision {
			d, err := store.Take(context.Background(), charges)
			require.NoError(t, err)
			for _, c := range charges {
				taken := c.Receipt.Valid
				assert.Equal(t, d.Allowed(), taken)
				assert.Equal(t, d.RetryAfter, c.Result.RetryAfter)
			}
			return d
		}
		require.True(t, take().Allowed())
		require.Equal(t, time.Second, take().RetryAfter)
		now.advance(time.Second)
		allowed := take()
		assert.True(t, allowed.Allowed())
		assert.Zero(t, allowed.RetryAfter)
	}
}

func TestStore_NamesTheBudgetWhoseKeyHasTwoLimits(t *testing.T) {
	key := limiter.Key{Budget: "a"}
	_, err := newStore(t, memstore.Config{}).Take(context.Background(), []limiter.Charge{
		{Key: key, Limit: limiter.PerHour(1)}, {Key: key, Limit: limiter.PerHour(2)},
	})
	assert.EqualError(t, err,
		`memstore: Charges = "a": one key has two limits, or is both enforced and shadow`)
}

// limits are those that the hammer changes between.
var limits = []limiter.Limit{
	{Tokens: 100, Per: time.Second},
	{Tokens: 7, Per: 3 * time.Second, Burst: 11},
	{Tokens: 20, Per: 10 * time.Second, Algorithm: limiter.FixedWindow},
	{Tokens: 20, Per: 10 * time.Second, Algorithm: limiter.RollingLog},
}

// TestStore_Hammer is for the race detector. No mix of calls may lead to a panic, an
// error or an impossible answer.
func TestStore_Hammer(t *testing.T) {
	for _, maxAccounts := range []int{0, 1, 200} {
		t.Run(fmt.Sprintf("max=%d", maxAccounts), func(t *testing.T) {
			t.Parallel()
			now := &clock{}
			store := newStore(t, memstore.Config{MaxAccounts: maxAccounts, Now: now.now})
			var group sync.WaitGroup
			for worker := range uint64(64) {
				group.Go(func() {
					r := rand.New(rand.NewPCG(worker, uint64(maxAccounts)))
					for range 300 {
						hammer(t, store, r)
						now.advance(time.Duration(r.IntN(100)-10) * time.Millisecond)
					}
				})
			}
			group.Wait()
			now.advance(time.Hour)
			assert.Zero(t, store.Stats().Accounts, "accounts that are full again are dropped")
		})
	}
}

// hammer makes one call of any kind on some of 1000 keys.
func hammer(t *testing.T, store *memstore.Store, r *rand.Rand) {
	ctx := context.Background()
	charges := make([]limiter.Charge, 1+r.IntN(3))
	for i := range charges {
		charges[i] = limiter.Charge{
			Key: limiter.Key{
				Budget:    fmt.Sprint("budget-", i),
				Principal: limiter.Principal{Kind: "user", ID: fmt.Sprint(r.IntN(333))},
			},
			Limit: limits[r.IntN(len(limits))], Cost: int64(r.IntN(5)), Shadow: r.IntN(8) == 0,
		}
	}
	switch r.IntN(8) {
	case 0:
		assert.NoError(t, store.Reset(ctx, charges))
	case 1:
		assert.GreaterOrEqual(t, store.Stats().Accounts, int64(0))
	case 2:
		d, err := store.Peek(ctx, charges)
		assert.NoError(t, err)
		possible(t, d)
	default:
		d, err := store.Take(ctx, charges)
		assert.NoError(t, err)
		possible(t, d)
		if d.Allowed() && r.IntN(2) == 0 {
			settle(t, store, charges, r)
		}
	}
}

func settle(t *testing.T, store *memstore.Store, charges []limiter.Charge, r *rand.Rand) {
	for i := range charges {
		taken, ok := charges[i].Receipt.Taken, charges[i].Receipt.Valid
		if !ok { // a shadow budget that could not pay
			return
		}
		charges[i].Cost = int64(r.IntN(int(taken)+4)) - taken
	}
	assert.NoError(t, store.Settle(context.Background(), charges))
}

// possible fails unless the parts of a decision agree.
func possible(t *testing.T, d limiter.Decision) {
	assert.Equal(t, d.Outcome == limiter.Deny, d.RetryAfter > 0, "%+v", d)
	assert.GreaterOrEqual(t, d.Remaining, int64(0))
	assert.GreaterOrEqual(t, d.ResetAfter, time.Duration(0))
	if d.Budget != "" {
		assert.LessOrEqual(t, d.Remaining, d.Limit.Capacity(), "%+v", d)
	}
}

func BenchmarkTake(b *testing.B) {
	b.Run("store=mem", func(b *testing.B) { storetest.Bench(b, harness(0)) })
}
