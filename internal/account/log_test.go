package account_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/account"
)

func TestLog_HoldsEachEntryForPer(t *testing.T) {
	a := full(limit(account.RollingLog, 5, 10, 5), 0)
	for _, step := range []struct {
		now     int64
		cost    uint64
		want    account.Outcome
		wait    int64 // where denied
		left    int64 // tokens
		resetIn int64
	}{
		{0, 2, account.Allow, 0, 3, 10},
		{0, 1, account.Allow, 0, 2, 10},
		{3, 1, account.Allow, 0, 1, 10},
		{3, 2, account.Deny, 7, 1, 10},
		{3, 5, account.Deny, 10, 1, 10},
		{3, 6, account.Never, 0, 1, 10},
		{9, 4, account.Deny, 1, 1, 4},
		{9, 5, account.Deny, 4, 1, 4},
		{10, 4, account.Allow, 0, 0, 10},
		{12, 1, account.Deny, 1, 0, 8},
		{13, 1, account.Allow, 0, 0, 10},
		{20, 1, account.Allow, 0, 3, 10},
		{30, 0, account.Allow, 0, 5, 0},
	} {
		used := a.Used(step.now)
		require.Equal(t, step.want, a.Limit.Judge(used, step.cost), "%+v", step)
		if step.want == account.Deny {
			assert.Equal(t, step.wait, a.Wait(used, step.now, step.cost), "%+v", step)
		}
		if step.want == account.Allow && step.cost > 0 {
			used = a.Debit(used, step.now, step.cost)
			require.Equal(t, used, a.Used(step.now))
		}
		if step.now == 20 {
			assert.EqualValues(t, 2, used.Lo)
			continue
		}
		assert.Equal(t, step.left, a.Limit.Remaining(used), "%+v", step)
		assert.Equal(t, step.resetIn, a.Reset(step.now), "%+v", step)
	}
	assert.True(t, a.Full(30))
}

func TestLog_ReachesOverTheWholeRangeOfInstants(t *testing.T) {
	a := full(limit(account.RollingLog, 1, math.MaxInt64, 1), math.MinInt64)
	require.Equal(t, account.Allow, spend(&a, math.MinInt64, 1))
	assert.EqualValues(t, int64(math.MaxInt64), a.Reset(math.MinInt64))
	assert.False(t, a.Full(-2))
	assert.True(t, a.Full(-1))
	assert.True(t, a.Full(math.MaxInt64))
}

func TestLog_SettlesTheEntryThatWasTaken(t *testing.T) {
	fresh := func() account.Account {
		a := full(limit(account.RollingLog, 9, 10, 9), 0)
		for i, cost := range []uint64{3, 4, 1} {
			a.Debit(a.Used(int64(i)), int64(i), cost)
		}
		return a
	}
	for _, test := range []struct {
		name           string
		now, at, delta int64
		moved          uint64
		credited       bool
		used           uint64 // at now
		after1, after2 uint64 // when the first, and the second entry has left
	}{
		{"a credit", 5, 1, -3, 3, true, 5, 2, 1},
		{"a credit of the whole entry", 5, 1, -4, 4, true, 4, 1, 1},
		{"a credit of more than the entry", 5, 1, -5, 4, true, 4, 1, 1},
		{"a debit", 5, 1, 4, 4, false, 12, 9, 1},
		{"a debit down to minus the capacity", 5, 1, 11, 10, false, 18, 15, 1},
		{"nothing", 5, 1, 0, 0, false, 8, 5, 1},
		{"between two, the later", 9, 0, -2, 2, true, 6, 5, 1},
		{"an entry that has left, a credit", 10, 0, -1, 0, false, 5, 5, 1},
		{"an entry that has left, a debit", 10, 0, 1, 1, false, 6, 6, 2},
		{"an entry that has left, a debit beside another", 11, 0, 1, 1, false, 2, 2, 2},
		{"an entry that has left, a debit below minus the capacity", 10, 0, 99, 13, false, 18, 18, 14},
		{"an instant after all, a credit", 9, 4, -1, 0, false, 8, 5, 1},
		{"an instant after all, a debit", 9, 4, 2, 2, false, 10, 7, 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := fresh()
			moved, credited := a.Settled(test.now, test.at, test.delta)
			assert.Equal(t, fresh().State, a.State, "a log has no state beside its entries")
			assert.Equal(t, account.Uint128{Lo: test.moved}, moved)
			assert.Equal(t, test.credited, credited)
			assert.EqualValues(t, test.used, a.Used(test.now).Lo)
			assert.EqualValues(t, test.after1, a.Used(max(test.now, 10)).Lo)
			assert.EqualValues(t, test.after2, a.Used(11).Lo)
		})
	}
}

func TestLog_ALateDebitAtTheFloorMakesNoEntry(t *testing.T) {
	a := full(limit(account.RollingLog, 2, 10, 2), 0)
	a.Settle(0, 0, 9)
	for now := int64(1); now < 9; now++ {
		moved, _ := a.Settled(now, -20, 1)
		require.Zero(t, moved)
	}
	assert.LessOrEqual(t, a.Log.Cap(), 2)
}

func TestLog_SettlesAnAccountWithoutALog(t *testing.T) {
	a := full(limit(account.RollingLog, 9, 10, 9), 0)
	moved, credited := a.Settled(1, 0, -1)
	assert.Zero(t, moved)
	assert.False(t, credited)
	assert.True(t, a.Full(1))
	a.Settle(1, 0, 0)
	assert.Zero(t, a.Reset(1), "a correction of nothing is no entry")
	moved, credited = a.Settled(1, 0, 2)
	assert.Equal(t, account.Uint128{Lo: 2}, moved)
	assert.False(t, credited)
	assert.EqualValues(t, 2, a.Used(9).Lo)
	assert.True(t, a.Full(10), "it counts from the instant of the take")
}
