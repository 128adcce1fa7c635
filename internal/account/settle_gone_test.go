package account_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/account"
)

const sec = int64(time.Second)

// lengths returns windows, or logs, of ten tokens: one of ten seconds, one of an
// hour.
func lengths(a account.Algorithm) (short, long *account.Limit) {
	return limit(a, 10, 10*sec, 10), limit(a, 10, 3600*sec, 10)
}

// settledAs settles under the limit charged and returns the tokens left.
func settledAs(a *account.Account, charged *account.Limit, now, at, delta int64) string {
	a.SettleUnder(charged, now, at, delta)
	return left(a, now)
}

func left(a *account.Account, now int64) string { return balance(*a, now).RatString() }

// A credit whose window or entry has gone is nothing, whatever the limit is by then. A
// debit counts as taken now.
func TestSettleUnder_ACreditForWhatHasGoneIsNothing(t *testing.T) {
	for _, from := range []account.Algorithm{account.FixedWindow, account.RollingLog} {
		short, _ := lengths(from)
		for _, to := range []account.Algorithm{
			account.TokenBucket, account.FixedWindow, account.RollingLog,
		} {
			t.Run(fmt.Sprintf("%d to %d", from, to), func(t *testing.T) {
				_, long := lengths(to)
				taken, now := int64(0), 12*sec
				a := full(short, taken)
				require.Equal(t, account.Allow, spend(&a, taken, 10))
				require.Equal(t, account.Allow, spend(&a, now, 10), "the first ten have gone")
				a, _ = a.Under(long, now)
				require.Equal(t, account.Deny, spend(&a, now, 1), "what was used is carried over")

				assert.Equal(t, "0", settledAs(&a, short, now, taken, -10))
				assert.Equal(t, "-3", settledAs(&a, short, now, taken, 3))
				if to == account.RollingLog {
					assert.Equal(t, "-3", left(&a, now+3600*sec-1))
				}
				assert.Equal(t, "7", settledAs(&a, short, now, now, -10),
					"a credit for what has not gone")
			})
		}
	}
}

// The boundaries of the charge's own limit: a window's last nanosecond, and Per.
func TestSettleUnder_LooksAtTheBoundaryOfTheLimitCharged(t *testing.T) {
	for _, test := range []struct {
		algorithm account.Algorithm
		at, now   int64
		gone      bool
	}{
		{account.FixedWindow, 3 * sec, 10*sec - 1, false},
		{account.FixedWindow, 3 * sec, 10 * sec, true},
		{account.FixedWindow, 10*sec - 1, 10 * sec, true},
		{account.FixedWindow, -1, 0, true},
		{account.FixedWindow, -10 * sec, -1, false},
		{account.RollingLog, 3 * sec, 13*sec - 1, false},
		{account.RollingLog, 3 * sec, 13 * sec, true},
		{account.RollingLog, math.MinInt64, math.MaxInt64, true},
		{account.TokenBucket, 3 * sec, 900 * sec, false},
		{account.TokenBucket, math.MinInt64, math.MaxInt64, false},
	} {
		short, _ := lengths(test.algorithm)
		stored := limit(account.TokenBucket, 1, 360_000*sec, 10)
		a := full(stored, test.now)
		require.Equal(t, account.Allow, spend(&a, test.now, 10))
		want := "4"
		if test.gone {
			want = "0"
		}
		assert.Equal(t, want, settledAs(&a, short, test.now, test.at, -4), "%+v", test)
	}
}

// The limit of the account is checked, too: what has left a shorter window or log cannot
// be given back.
func TestSettleUnder_WhatHasGoneUnderAShorterPeriodIsNotGivenBack(t *testing.T) {
	for _, to := range []account.Algorithm{account.FixedWindow, account.RollingLog} {
		for _, from := range []account.Algorithm{
			account.TokenBucket, account.FixedWindow, account.RollingLog,
		} {
			_, long := lengths(from)
			short, _ := lengths(to)
			a := full(long, 0)
			require.Equal(t, account.Allow, spend(&a, 0, 10))
			a, _ = a.Under(short, 1*sec)
			require.Equal(t, account.Deny, spend(&a, 1*sec, 1))
			require.Equal(t, account.Allow, spend(&a, 12*sec, 10))
			assert.Equal(t, "0", settledAs(&a, long, 12*sec, 0, -10), "%d to %d", from, to)
		}
	}
}

func TestSettleUnder_TheSameLimitIsSettle(t *testing.T) {
	for _, algorithm := range []account.Algorithm{
		account.TokenBucket, account.FixedWindow, account.RollingLog,
	} {
		l, _ := lengths(algorithm)
		for _, now := range []int64{2 * sec, 9 * sec, 10 * sec, 12 * sec} {
			for _, delta := range []int64{-7, -1, 0, 1, 25} {
				a, b := full(l, 2*sec), full(l, 2*sec)
				require.Equal(t, account.Allow, spend(&a, 2*sec, 6))
				require.Equal(t, account.Allow, spend(&b, 2*sec, 6))
				a.Settle(now, 2*sec, delta)
				b.SettleUnder(l, now, 2*sec, delta)
				assert.Equal(t, left(&a, now), left(&b, now), "%d, %d, %d", algorithm, now, delta)
				assert.Equal(t, a.Reset(now), b.Reset(now), "%d, %d, %d", algorithm, now, delta)
			}
		}
	}
}

// An account that a credit has filled is the same as none: it carries no mark of the
// bucket that it was made from.
func TestSettle_AnAccountThatACreditFillsIsTheSameAsNone(t *testing.T) {
	for _, algorithm := range []account.Algorithm{account.FixedWindow, account.RollingLog} {
		bucket := limit(account.TokenBucket, 8, 3600*sec, 8)
		six, seven := limit(algorithm, 6, 3600*sec, 6), limit(algorithm, 7, 3600*sec, 7)
		a := full(bucket, 0)
		require.Equal(t, account.Allow, spend(&a, 0, 6))
		a, _ = a.Under(six, 0)
		require.Equal(t, account.Deny, spend(&a, 0, 4), "two are left")
		require.Equal(t, "6", settledAs(&a, bucket, 0, 0, -6))

		_, carries := a.Carried(0)
		assert.False(t, carries)
		require.Equal(t, account.Allow, spend(&a, 0, 5))
		a, _ = a.Under(seven, 0)
		assert.Equal(t, "2", left(&a, 0), "five of seven are used")
	}
}

// A credit that does not fill the account leaves the mark.
func TestSettle_ACreditThatFillsNothingKeepsWhatIsCarried(t *testing.T) {
	for _, algorithm := range []account.Algorithm{account.FixedWindow, account.RollingLog} {
		bucket := limit(account.TokenBucket, 8, 3600*sec, 8)
		six, seven := limit(algorithm, 6, 3600*sec, 6), limit(algorithm, 7, 3600*sec, 7)
		a := full(bucket, 0)
		require.Equal(t, account.Allow, spend(&a, 0, 6))
		a, _ = a.Under(six, 0)
		require.Equal(t, "5", settledAs(&a, bucket, 0, 0, -3))
		a, _ = a.Under(seven, 0)
		assert.Equal(t, "5", left(&a, 0))
	}
}
