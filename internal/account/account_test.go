package account_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/account"
)

// Package model drives this arithmetic through the stores, a million steps at a
// time; here is what no stream of requests can see.

func TestFillTime_RoundsUpAndSaturates(t *testing.T) {
	tests := []struct{ tokens, per, burst, want int64 }{
		{1, 1, 1, 1},
		{3, 10, 1, 4},
		{3, 9, 1, 3},
		{math.MaxInt64, 1, math.MaxInt64, 1},
		{1, 1, math.MaxInt64, math.MaxInt64},
		{2, 3, 6_148_914_691_236_517_205, math.MaxInt64}, // 2^63 and a half
		{1, math.MaxInt64, math.MaxInt64, math.MaxInt64},
	}
	for _, test := range tests {
		assert.Equal(t, test.want, account.FillTime(test.tokens, test.per, test.burst), "%v", test)
	}
}

// random returns a number of any magnitude.
func random(r *rand.Rand) uint64 { return r.Uint64() >> r.IntN(64) }

func whole(u account.Uint128) *big.Int {
	n := new(big.Int).SetUint64(u.Hi)
	return n.Lsh(n, 64).Add(n, new(big.Int).SetUint64(u.Lo))
}

func TestCompareRatios_EqualsRationals(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	wide := func() account.Uint128 {
		u := account.Uint128{Lo: random(r)}
		if r.IntN(2) == 0 {
			u.Hi = random(r)
		}
		u.Lo |= 1
		return u
	}
	for range 100_000 {
		a, b, c, d := wide(), wide(), wide(), wide()
		switch r.IntN(4) {
		case 0:
			c, d = a, b
		case 1:
			c, d = a, b
			c.Lo ^= 2
		case 2:
			c, d = a, b
			d.Hi ^= 1
		}
		left, right := new(big.Rat).SetFrac(whole(a), whole(b)), new(big.Rat).SetFrac(whole(c), whole(d))
		require.Equal(t, left.Cmp(right), account.CompareRatios(a, b, c, d), "%v/%v %v/%v", a, b, c, d)
	}
}

func TestAccount_PeekingOnACloneLeavesTheLogAlone(t *testing.T) {
	rule := account.NewLimit(account.RollingLog, 5, 10, 5)
	a, used := (&account.Account{}).Under(&rule, 0)
	a.Debit(used, 0, 2)
	clone := a.Clone()
	clone.Debit(clone.Used(0), 0, 3)
	assert.Equal(t, account.Uint128{Lo: 2}, a.Used(0))
	assert.Equal(t, account.Uint128{Lo: 5}, clone.Used(0))
}

// A caller that reserves and cancels for ever must not grow the log.
func TestAccount_CancelledEntriesAreForgotten(t *testing.T) {
	rule := account.NewLimit(account.RollingLog, 2, 1_000_000, 2)
	a, _ := (&account.Account{}).Under(&rule, 0)
	for now := range int64(10_000) {
		used := a.Debit(a.Used(now), now, 2)
		require.EqualValues(t, 2, used.Lo)
		moved, credited := a.Settled(now, now, -2)
		require.EqualValues(t, 2, moved.Lo)
		require.True(t, credited)
	}
	assert.LessOrEqual(t, a.Log.Cap(), 8)
}

func TestAccount_SettleSaysWhatItMoved(t *testing.T) {
	token := account.NewLimit(account.TokenBucket, 1, 10, 5)
	window := account.NewLimit(account.FixedWindow, 5, 10, 5)
	log := account.NewLimit(account.RollingLog, 5, 10, 5)
	for rule, unit := range map[*account.Limit]uint64{&token: 10, &window: 1, &log: 1} {
		a, used := (&account.Account{}).Under(rule, 0)
		a.Debit(used, 0, 3)
		for _, step := range []struct {
			delta    int64
			moved    uint64
			credited bool
		}{
			{-2, 2, true}, {4, 4, false}, {100, 5, false}, {1, 0, false}, {-100, 10, true},
			{-1, 0, false}, {0, 0, false},
		} {
			moved, credited := a.Settled(0, 0, step.delta)
			assert.Equal(t, account.Uint128{Lo: step.moved * unit}, moved, "%v %v", rule, step)
			assert.Equal(t, step.credited, credited, "%v %v", rule, step)
		}
		if rule != &token {
			moved, credited := a.Settled(20, 0, -1)
			assert.Zero(t, moved, "what was taken has gone")
			assert.False(t, credited)
			moved, credited = a.Settled(20, 0, 2)
			assert.Equal(t, account.Uint128{Lo: 2}, moved, "a debit counts now")
			assert.False(t, credited)
		}
	}
}
