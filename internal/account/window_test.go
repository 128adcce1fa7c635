package account_test

import (
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/account"
)

func TestWindow_IsAWholeMultipleOfPerSinceTheEpoch(t *testing.T) {
	for _, test := range []struct{ now, left int64 }{
		{0, 10}, {1, 9}, {9, 1}, {10, 10}, {-1, 1}, {-10, 10}, {-11, 1}, {-9, 9},
		{math.MaxInt64, 3}, {math.MinInt64, 8},
	} {
		a := full(limit(account.FixedWindow, 3, 10, 3), test.now)
		require.True(t, a.Full(test.now), "%d", test.now)
		assert.EqualValues(t, test.left, a.Reset(test.now), "%d", test.now)
		require.Equal(t, account.Allow, spend(&a, test.now, 2))
		require.Equal(t, account.Deny, spend(&a, test.now, 2))
		assert.EqualValues(t, test.left, a.Wait(a.Used(test.now), test.now, 2), "%d", test.now)
		assert.EqualValues(t, 1, a.Limit.Remaining(a.Used(test.now)))
		assert.EqualValues(t, 2, a.Limit.TokensUsed(a.Used(test.now)))
		if test.now < math.MaxInt64-10 {
			last := test.now + test.left - 1
			assert.Equal(t, account.Deny, spend(&a, last, 2), "the last nanosecond of %d", test.now)
			assert.Equal(t, account.Allow, spend(&a, last, 1))
			assert.Equal(t, account.Allow, spend(&a, last+1, 3), "the next window of %d", test.now)
		}
	}
}

func TestWindow_CreditsInTheSameWindowOnly(t *testing.T) {
	a := full(limit(account.FixedWindow, 4, 10, 4), 5)
	require.Equal(t, account.Allow, spend(&a, 5, 3))
	moved, credited := a.Settled(9, 5, -2)
	assert.Equal(t, account.Uint128{Lo: 2}, moved)
	assert.True(t, credited)
	assert.Equal(t, big.NewRat(3, 1), balance(a, 9))
	moved, credited = a.Settled(9, 5, -2)
	assert.Equal(t, account.Uint128{Lo: 1}, moved, "a credit stops at the capacity")
	assert.True(t, credited)
	moved, credited = a.Settled(9, 5, 9)
	assert.Equal(t, account.Uint128{Lo: 8}, moved, "a debit stops at minus the capacity")
	assert.False(t, credited)
	assert.Equal(t, big.NewRat(-4, 1), balance(a, 9))
	assert.Zero(t, a.Limit.Remaining(a.Used(9)))

	moved, credited = a.Settled(10, 9, -1)
	assert.Zero(t, moved, "the window has ended")
	assert.False(t, credited)
	assert.Equal(t, big.NewRat(4, 1), balance(a, 10))
	assert.Equal(t, big.NewRat(-4, 1), balance(a, 9))

	moved, credited = a.Settled(10, 9, 1)
	assert.Equal(t, account.Uint128{Lo: 1}, moved, "a debit counts in the window of now")
	assert.False(t, credited)
	assert.Equal(t, big.NewRat(3, 1), balance(a, 10))
	moved, _ = a.Settled(10, 9, 9)
	assert.Equal(t, account.Uint128{Lo: 7}, moved, "down to minus the capacity")
	assert.Equal(t, big.NewRat(-4, 1), balance(a, 10))
	assert.Equal(t, big.NewRat(4, 1), balance(a, 20))
}
