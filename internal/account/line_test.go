package account_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/account"
)

// played serves the costs in their order on a copy of the account, and returns
// the time until the last is paid.
func played(a account.Account, now int64, costs []uint64) int64 {
	a, at := a.Clone(), now
	for _, cost := range costs {
		used := a.Used(at)
		if a.Limit.Judge(used, cost) == account.Deny {
			at += a.Wait(used, at, cost)
			used = a.Used(at)
		}
		a.Debit(used, at, cost)
	}
	return at - now
}

// The wait is a bound for any costs, and exact for one cost, however large, and
// for costs of 1 from an account that lets no part of a nanosecond go to waste.
func TestLine_WaitsAsLongAsItsCostsPlayedThrough(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	for _, algorithm := range []account.Algorithm{
		account.TokenBucket, account.FixedWindow, account.RollingLog} {
		exact := 0
		for range 20_000 {
			tokens, per := 1+random.Int64N(9), 1+random.Int64N(50)
			burst := tokens
			if algorithm == account.TokenBucket {
				burst = 1 + random.Int64N(9)
			}
			now := random.Int64N(100)
			a := full(limit(algorithm, tokens, per, burst), now)
			for range random.IntN(6) {
				now += random.Int64N(per)
				spend(&a, now, 1+random.Uint64N(uint64(burst)))
			}
			var line account.Line
			var costs []uint64
			ones, lossless := true, algorithm != account.TokenBucket || burst > 1+tokens
			for range 1 + random.IntN(12) {
				cost := uint64(1)
				if random.IntN(3) == 0 {
					cost += random.Uint64N(uint64(burst))
					cost = min(cost, uint64(burst))
				}
				costs = append(costs, cost)
				ones = ones && cost == 1
				want := played(a, now, costs)
				got := line.Wait(&a, a.Used(now), now, cost)
				require.LessOrEqual(t, got, want, "%v %v", a.Limit, costs)
				if len(costs) == 1 || ones && lossless {
					require.Equal(t, want, got, "%v %v", a.Limit, costs)
					exact++
				}
				line.Join(cost)
			}
			for _, cost := range costs {
				line.Leave(cost)
			}
			require.Equal(t, account.Line{}, line, "who leaves is as if it had never come")
		}
		assert.Greater(t, exact, 20_000)
	}
}

func TestLine_SaturatesAtTheExtremes(t *testing.T) {
	const most = math.MaxInt64
	for _, rule := range []*account.Limit{
		limit(account.TokenBucket, 1, 1_000_000_000, 3_155_760_000),
		limit(account.FixedWindow, 1, 3_155_760_000_000_000_000, 1),
		limit(account.RollingLog, 1, 3_155_760_000_000_000_000, 1),
	} {
		a := full(rule, 0)
		var line account.Line
		for range 5 {
			line.Join(most)
		}
		assert.EqualValues(t, int64(most), line.Wait(&a, a.Used(0), 0, most), "%v", rule)
		for range 5 {
			line.Leave(most)
		}
		assert.Zero(t, line.Wait(&a, a.Used(0), 0, 1), "%v", rule)
	}
	fast := limit(account.TokenBucket, most, 1, most)
	a := full(fast, 0)
	var line account.Line
	line.Join(most)
	assert.EqualValues(t, 1, line.Wait(&a, a.Used(0), 0, most), "%v", fast)
}
