package account

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// rebuild makes the account anew of what Used, Entries and Carried say at now.
func rebuild(a *Account, now int64) Account {
	again := Account{Limit: a.Limit}
	if a.Limit.Algorithm == RollingLog {
		for at, tokens := range a.Entries(now) {
			again.Debit(Uint128{}, at, tokens)
		}
	} else {
		again.Debit(a.Used(now), now, 0)
	}
	if since, ok := a.Carried(now); ok {
		again.Carry(since)
	}
	return again
}

// What a store of bytes keeps of an account is all that its future depends on.
func TestAccount_IsTheSameOnceStored(t *testing.T) {
	limits := []Limit{
		NewLimit(TokenBucket, 7, 11_000, 20), NewLimit(TokenBucket, 999_983, 86_400_000, 9),
		NewLimit(FixedWindow, 25, 10_000, 25), NewLimit(FixedWindow, 8, 3_000, 8),
		NewLimit(RollingLog, 20, 15_000, 20), NewLimit(RollingLog, 6, 4_000, 6),
	}
	random := rand.New(rand.NewPCG(3, 4))
	kept, stored := Account{}, Account{}
	now := int64(-50_000)
	for step := range 50_000 {
		now += random.Int64N(400)
		l := &limits[random.IntN(len(limits))]
		if random.IntN(4) > 0 && kept.Limit != nil {
			l = kept.Limit
		}
		var used, again Uint128
		kept, used = kept.Under(l, now)
		stored, again = stored.Under(l, now)
		require.Equal(t, used, again, "step %d", step)
		cost := 1 + random.Uint64N(4)
		outcome := l.Judge(used, cost)
		switch {
		case outcome == Allow:
			kept.Debit(used, now, cost)
			stored.Debit(again, now, cost)
		case outcome == Deny && !used.isZero():
			require.Equal(t, kept.Wait(used, now, cost), stored.Wait(again, now, cost))
		}
		if random.IntN(8) == 0 {
			at, delta := now-random.Int64N(12_000), random.Int64N(9)-4
			kept.Settle(now, at, delta)
			stored.Settle(now, at, delta)
		}
		require.Equal(t, kept.Reset(now), stored.Reset(now), "step %d", step)
		stored = rebuild(&stored, now)
	}
}

func TestAccount_EntriesStopWhereTheReaderStops(t *testing.T) {
	l := NewLimit(RollingLog, 9, 10, 9)
	a := Account{Limit: &l}
	for range a.Entries(0) {
		assert.Fail(t, "an entry of an empty log")
	}
	a.Debit(Uint128{}, 1, 2)
	a.Debit(Uint128{}, 3, 4)
	for at, tokens := range a.Entries(11) {
		assert.Equal(t, int64(3), at)
		assert.Equal(t, uint64(4), tokens)
	}
	n := 0
	for range a.Entries(3) {
		n++
		break
	}
	assert.Equal(t, 1, n)
}
