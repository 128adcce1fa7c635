package account_test

import (
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/account"
)

// drawn returns an account at now with that balance in tokens, by taking and, for
// a debt, correcting what was taken.
func drawn(t *testing.T, l *account.Limit, now, balance int64) account.Account {
	a := full(l, now)
	require.Equal(t, account.Allow, spend(&a, now, l.Burst))
	if balance != 0 {
		a.Settle(now, now, -balance)
	}
	return a
}

func TestUnder_NeverMints(t *testing.T) {
	const bucket, window, log = account.TokenBucket, account.FixedWindow, account.RollingLog
	for _, test := range []struct {
		name     string
		old      *account.Limit
		balance  int64
		next     *account.Limit
		elapsed  int64
		want     *big.Rat
		resetsIn int64
	}{
		{"a full one is full", limit(bucket, 1, 10, 5), 5, limit(bucket, 1, 10, 9), 0,
			big.NewRat(9, 1), 0},
		{"refilled by the old limit first", limit(bucket, 1, 10, 5), 1, limit(bucket, 7, 10, 9), 20,
			big.NewRat(3, 1), 9},
		{"clamped at the new capacity", limit(bucket, 1, 10, 5), 4, limit(bucket, 1, 10, 3), 0,
			big.NewRat(3, 1), 0},
		{"rounded down to the new unit", limit(bucket, 1, 10, 5), 1, limit(bucket, 1, 3, 5), 9,
			big.NewRat(5, 3), 10},
		{"a debt is rounded up to the new unit", limit(bucket, 1, 10, 5), -3, limit(bucket, 1, 3, 5), 9,
			big.NewRat(-7, 3), 22},
		{"a debt stays below the new minus capacity", limit(bucket, 1, 10, 5), -5,
			limit(bucket, 1, 10, 2), 0, big.NewRat(-5, 1), 70},
		{"windows of one length", limit(window, 5, 10, 5), 1, limit(window, 9, 10, 9), 3,
			big.NewRat(5, 1), 7},
		{"a window that has ended", limit(window, 5, 10, 5), 1, limit(window, 9, 10, 9), 10,
			big.NewRat(9, 1), 10},
		{"windows of two lengths", limit(window, 5, 10, 5), 1, limit(window, 9, 4, 9), 5,
			big.NewRat(5, 1), 3},
		{"logs of one length", limit(log, 5, 10, 5), 1, limit(log, 9, 10, 9), 3,
			big.NewRat(5, 1), 7},
		{"logs of two lengths: used now", limit(log, 5, 10, 5), 1, limit(log, 9, 20, 9), 3,
			big.NewRat(5, 1), 20},
		{"bucket to window: used is rounded up", limit(bucket, 1, 10, 5), 1, limit(window, 9, 10, 9), 9,
			big.NewRat(5, 1), 1},
		{"bucket to log", limit(bucket, 1, 10, 5), 1, limit(log, 9, 10, 9), 9,
			big.NewRat(5, 1), 10},
		{"window to bucket", limit(window, 5, 10, 5), 1, limit(bucket, 2, 10, 9), 9,
			big.NewRat(5, 1), 20},
		{"log to bucket", limit(log, 5, 10, 5), 1, limit(bucket, 2, 10, 9), 9,
			big.NewRat(5, 1), 20},
		{"a debt to a window", limit(bucket, 1, 10, 5), -3, limit(window, 5, 10, 5), 0,
			big.NewRat(-3, 1), 10},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := drawn(t, test.old, 0, test.balance)
			kept := a.Clone()
			b, used := a.Under(test.next, test.elapsed)
			assert.Equal(t, kept, a, "Under changes nothing")
			assert.Equal(t, test.next, b.Limit)
			assert.Equal(t, used, b.Used(test.elapsed))
			assert.Equal(t, test.want, balance(b, test.elapsed))
			assert.Equal(t, test.resetsIn, b.Reset(test.elapsed))
		})
	}
}

func TestUnder_TheSameLimitChangesNothing(t *testing.T) {
	l := limit(account.TokenBucket, 1, 3, 5)
	a := drawn(t, l, 0, 2)
	for _, now := range []int64{1, 100} { // when it is full, too
		b, used := a.Under(l, now)
		assert.Equal(t, a, b)
		assert.Equal(t, a.Used(now), used)
	}
}

func TestUnder_CarriesDebitsBeyondTheRange(t *testing.T) {
	years := limit(account.FixedWindow, math.MaxInt64, second, math.MaxInt64)
	a := drawn(t, years, 0, -math.MaxInt64)
	b, used := a.Under(limit(account.TokenBucket, 1, 100*second, 1), 0)
	assert.Equal(t, used, b.Used(0))
	assert.EqualValues(t, math.MaxInt64, b.Reset(0), "the longest that an account can say")
	c, used := a.Under(limit(account.RollingLog, 5, second, 5), 0)
	assert.Equal(t, used, c.Used(0))
	assert.EqualValues(t, math.MaxInt64, used.Lo)
}

func TestAccount_NeverDrawnOnIsFull(t *testing.T) {
	for _, algorithm := range []account.Algorithm{
		account.TokenBucket, account.FixedWindow, account.RollingLog,
	} {
		for _, now := range []int64{math.MinInt64, -1, 0, math.MaxInt64} {
			var none account.Account
			assert.True(t, none.Full(now))
			a, used := none.Under(limit(algorithm, 3, 10, 3), now)
			assert.Zero(t, used)
			assert.True(t, a.Full(now))
		}
	}
}
