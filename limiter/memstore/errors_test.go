package memstore_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/kind"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
)

func TestStore_RefusesALimitThatIsNotValidWhateverStandsBesideIt(t *testing.T) {
	for n := 1; n <= 7; n++ {
		store := newStore(t, memstore.Config{})
		var charges []limiter.Charge
		for i := range n {
			charges = append(charges, limiter.Charge{
				Key: limiter.Key{Route: string(rune('a' + i))}, Limit: limiter.PerHour(9), Cost: 1})
		}
		charges[n-1].Limit.Per = 0
		var config *limiter.ConfigError
		_, err := store.Take(context.Background(), charges)
		require.ErrorAs(t, err, &config, "%d charges", n)
		assert.Equal(t, "Limit.Per", config.Field)
		assert.Zero(t, store.Stats().Accounts)
	}
}

func TestStore_SettleRefusesALimitThatIsNotValidBeforeAnythingIsChanged(t *testing.T) {
	store := newStore(t, memstore.Config{})
	charges := []limiter.Charge{
		{Key: limiter.Key{Route: "a"}, Limit: limiter.PerHour(9), Cost: 4},
		{Key: limiter.Key{Route: "b"}, Limit: limiter.PerHour(9), Cost: 4},
	}
	_, err := store.Take(context.Background(), charges)
	require.NoError(t, err)
	charges[0].Cost, charges[1].Cost, charges[1].Limit.Tokens = -4, -4, 0
	var config *limiter.ConfigError
	require.ErrorAs(t, store.Settle(context.Background(), charges), &config)
	assert.EqualValues(t, 2, store.Stats().Accounts)
	charges[1].Limit = limiter.PerHour(9)
	require.NoError(t, store.Settle(context.Background(), charges), "the receipts are still there")
	assert.Zero(t, store.Stats().Accounts)
}

func TestNew_SaysWhatCapWouldBeRight(t *testing.T) {
	_, err := memstore.New(memstore.Config{MaxAccounts: -1})
	assert.EqualError(t, err,
		"memstore: Config.MaxAccounts = -1: want at least 1, or 0 for 1,000,000")
}

func TestStats_CountsAddressesAndAllOthers(t *testing.T) {
	store := newStore(t, memstore.Config{})
	for i, kind := range []string{"user", kind.Address, kind.Address} {
		_, err := store.Take(context.Background(), []limiter.Charge{{Limit: limiter.PerHour(9), Cost: 1,
			Key: limiter.Key{Principal: limiter.Principal{Kind: kind, ID: string(rune('a' + i))}}}})
		require.NoError(t, err)
	}
	assert.EqualValues(t, 3, store.Stats().Accounts)
}

// The real clock is the wall's at New, and goes on from there.
func TestStore_WithoutAClockReadsTheRealOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t, memstore.Config{})
		take := func(l limiter.Limit) limiter.Decision {
			d, err := store.Take(t.Context(), []limiter.Charge{{
				Key: limiter.Key{Budget: l.String()}, Limit: l, Cost: 1}})
			require.NoError(t, err)
			return d
		}
		bucket := limiter.Limit{Tokens: 1, Per: 3 * time.Second}
		window := limiter.Limit{Algorithm: limiter.FixedWindow, Tokens: 1, Per: 7 * time.Second}
		require.True(t, take(bucket).Allowed())
		time.Sleep(time.Second)
		assert.Equal(t, 2*time.Second, take(bucket).RetryAfter)
		time.Sleep(2 * time.Second)
		assert.True(t, take(bucket).Allowed())

		require.True(t, take(window).Allowed())
		left := window.Per - time.Duration(time.Now().UnixNano())%window.Per
		assert.Equal(t, left, take(window).RetryAfter, "windows are those of the epoch")
	})
}
