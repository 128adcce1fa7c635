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
		{"bucket to window: what is left, rounded down", limit(bucket, 1, 10, 5), 1,
			limit(window, 9, 10, 9), 9, big.NewRat(1, 1), 1},
		{"bucket to log", limit(bucket, 1, 10, 5), 1, limit(log, 9, 10, 9), 9,
			big.NewRat(1, 1), 10},
		{"bucket to a smaller window", limit(bucket, 1, 10, 9), 7, limit(window, 5, 10, 5), 0,
			big.NewRat(5, 1), 10},
		{"bucket to a smaller log", limit(bucket, 1, 10, 9), 7, limit(log, 5, 10, 5), 0,
			big.NewRat(5, 1), 0},
		{"window to bucket: what is left", limit(window, 5, 10, 5), 1, limit(bucket, 2, 10, 9), 9,
			big.NewRat(1, 1), 40},
		{"log to bucket", limit(log, 5, 10, 5), 1, limit(bucket, 2, 10, 9), 9,
			big.NewRat(1, 1), 40},
		{"window to a smaller bucket", limit(window, 9, 10, 9), 7, limit(bucket, 2, 10, 5), 9,
			big.NewRat(5, 1), 0},
		{"window to log: what was used", limit(window, 5, 10, 5), 1, limit(log, 9, 20, 9), 9,
			big.NewRat(5, 1), 20},
		{"log to window: what was used", limit(log, 5, 10, 5), 1, limit(window, 9, 20, 9), 9,
			big.NewRat(5, 1), 11},
		{"a window's debt to a bucket", limit(window, 5, 10, 5), -3, limit(bucket, 1, 10, 9), 0,
			big.NewRat(-3, 1), 120},
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
	assert.Equal(t, big.NewRat(0, 1), balance(a, 0), "a window counts at most MaxInt64 tokens")
	wide := drawn(t, limit(account.TokenBucket, 1, second, 1<<33), 0, -1<<33)
	b, used := wide.Under(limit(account.TokenBucket, 1, 100*second, 1), 0)
	assert.Equal(t, used, b.Used(0))
	assert.Equal(t, uint64(math.MaxInt64), uint64(b.Reset(0)), "the longest that an account can say")

	// 3 units to a token, so that 2^64-1 units are used: MaxInt64 and a half nanoseconds.
	const debt = math.MaxUint64/3 - 1
	wide = drawn(t, limit(account.TokenBucket, math.MaxInt64, second, debt), 0, -debt)
	b, used = wide.Under(limit(account.TokenBucket, 2, 3, 1), 0)
	assert.Equal(t, account.Uint128{Lo: math.MaxUint64}, used)
	assert.Equal(t, int64(math.MaxInt64), b.Reset(0), "rounding up stays in the range")

	most := limit(account.TokenBucket, math.MaxInt64, second, math.MaxInt64)
	a = drawn(t, most, 0, -math.MaxInt64)
	for _, algorithm := range []account.Algorithm{account.FixedWindow, account.RollingLog} {
		c, used := a.Under(limit(algorithm, 5, second, 5), 0)
		assert.Equal(t, used, c.Used(0))
		assert.Equal(t, uint64(math.MaxInt64), used.Lo)
	}
}

// An account that was made from a bucket has forgotten what was used before the
// bucket's capacity was lowered: a raise must not count that as free.
func TestUnder_AWindowOrLogMadeFromABucketCarriesWhatIsLeft(t *testing.T) {
	const bucket, window, log = account.TokenBucket, account.FixedWindow, account.RollingLog
	steps := func(a account.Account, now int64, limits ...*account.Limit) account.Account {
		for _, l := range limits {
			a, _ = a.Under(l, now)
		}
		return a
	}
	for _, kind := range []account.Algorithm{window, log} {
		five, ten := limit(kind, 5, 10, 5), limit(kind, 10, 10, 10)
		a := drawn(t, limit(bucket, 10, 10, 10), 0, 5)
		for _, test := range []struct {
			name   string
			limits []*account.Limit
			left   int64
		}{
			{"raised", []*account.Limit{five, ten}, 5},
			{"raised and lowered", []*account.Limit{ten, five, ten, five}, 5},
			{"lowered", []*account.Limit{ten, limit(kind, 3, 10, 3)}, 3},
			{"another length", []*account.Limit{five, limit(kind, 10, 20, 10)}, 5},
			{"window and log", []*account.Limit{five, limit(window, 8, 10, 8), limit(log, 9, 10, 9)}, 5},
			{"log and window", []*account.Limit{five, limit(log, 8, 10, 8), limit(window, 9, 10, 9)}, 5},
			{"and back", []*account.Limit{five, ten, limit(bucket, 10, 10, 10)}, 5},
		} {
			b := steps(a, 0, test.limits[0])
			require.Equal(t, account.Allow, spend(&b, 0, 1), test.name)
			b = steps(b, 0, test.limits[1:]...)
			want := test.left - 1
			if test.name == "lowered" {
				want = test.left // of 4
			}
			assert.Equal(t, big.NewRat(want, 1), balance(b, 0), "%s %v", test.name, kind)
			clone := b.Clone()
			assert.Equal(t, b, clone)
		}

		b := steps(a, 0, five)
		require.Equal(t, account.Allow, spend(&b, 9, 1))
		raised := steps(b, 9, ten)
		assert.Equal(t, big.NewRat(4, 1), balance(raised, 9), "%v before Per has passed", kind)
		if kind == log {
			raised = steps(b, 10, ten)
			assert.Equal(t, big.NewRat(9, 1), balance(raised, 10), "and after: what was used")
			continue
		}
		require.Equal(t, account.Allow, spend(&b, 10, 1))
		assert.Equal(t, big.NewRat(9, 1), balance(steps(b, 10, ten), 10), "in the next window")
	}
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
