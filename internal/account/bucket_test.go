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

const second = 1_000_000_000

func limit(a account.Algorithm, tokens, per, burst int64) *account.Limit {
	l := account.NewLimit(a, tokens, per, burst)
	return &l
}

// full returns an account of the limit of which nothing is used.
func full(l *account.Limit, now int64) account.Account {
	a, _ := account.Account{}.Under(l, now)
	return a
}

// spend takes cost from the account if it can pay.
func spend(a *account.Account, now int64, cost uint64) account.Outcome {
	used := a.Used(now)
	outcome := a.Limit.Judge(used, cost)
	if outcome == account.Allow && cost > 0 {
		a.Debit(used, now, cost)
	}
	return outcome
}

func balance(a account.Account, now int64) *big.Rat { return a.Limit.Balance(a.Used(now)) }

// rationals is a token bucket as the rules say it, in rational numbers.
type rationals struct {
	tokens, per, burst int64
	balance            *big.Rat
	at                 int64
}

func (r *rationals) refill(now int64) {
	gained := new(big.Rat).SetFrac(
		new(big.Int).Mul(big.NewInt(now-r.at), big.NewInt(r.tokens)), big.NewInt(r.per))
	r.add(gained, now)
}

func (r *rationals) add(n *big.Rat, now int64) {
	r.balance = new(big.Rat).Add(r.balance, n)
	if r.balance.Cmp(big.NewRat(r.burst, 1)) > 0 {
		r.balance = big.NewRat(r.burst, 1)
	}
	if r.balance.Cmp(big.NewRat(-r.burst, 1)) < 0 {
		r.balance = big.NewRat(-r.burst, 1)
	}
	r.at = now
}

// until returns the nanoseconds, rounded up, until the balance is n.
func (r *rationals) until(n int64) int64 {
	missing := new(big.Rat).Sub(big.NewRat(n, 1), r.balance)
	missing.Mul(missing, big.NewRat(r.per, r.tokens))
	ns, rest := new(big.Int).DivMod(missing.Num(), missing.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		ns.Add(ns, big.NewInt(1))
	}
	return ns.Int64()
}

func (r *rationals) remaining() int64 {
	whole := new(big.Int).Div(r.balance.Num(), r.balance.Denom())
	return max(whole.Int64(), 0)
}

func TestBucket_EqualsRationalArithmetic(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		tokens, per, burst := 1+random.Int64N(5), 1+random.Int64N(12), 1+random.Int64N(6)
		now := random.Int64N(40) - 20
		a := full(limit(account.TokenBucket, tokens, per, burst), now)
		r := &rationals{tokens, per, burst, big.NewRat(burst, 1), now}
		for range 60 {
			before := now
			now += random.Int64N(2 * per)
			r.refill(now)
			cost := random.Int64N(burst + 2)
			want := account.Deny
			switch {
			case cost > burst:
				want = account.Never
			case cost == 0 || r.balance.Cmp(big.NewRat(cost, 1)) >= 0:
				want = account.Allow
			}
			used := a.Used(now)
			require.Equal(t, want, a.Limit.Judge(used, uint64(cost)))
			switch {
			case want == account.Deny:
				require.Equal(t, r.until(cost), a.Wait(used, now, uint64(cost)))
			case want == account.Allow && cost > 0:
				require.Equal(t, a.Debit(used, now, uint64(cost)), a.Used(now))
				r.add(big.NewRat(-cost, 1), now)
			}
			if random.IntN(3) == 0 {
				delta, was := random.Int64N(4*burst)-2*burst, r.balance
				moved, credited := a.Settled(now, before, delta)
				r.add(big.NewRat(delta, 1).Neg(big.NewRat(delta, 1)), now)
				require.Equal(t, r.balance.Cmp(was) > 0, credited)
				by := new(big.Rat).Sub(r.balance, was)
				require.Zero(t, by.Abs(by).Cmp(big.NewRat(int64(moved.Lo), per)))
			}
			require.Zero(t, r.balance.Cmp(balance(a, now)), "want %v, got %v", r.balance, balance(a, now))
			require.Equal(t, r.remaining(), a.Limit.Remaining(a.Used(now)))
			require.Equal(t, r.until(burst), a.Reset(now))
			require.Equal(t, r.until(burst) == 0, a.Full(now))
		}
	}
}

func TestBucket_CarriesOnBeyondTheLastInstant(t *testing.T) {
	const last = math.MaxInt64
	a := full(limit(account.TokenBucket, 2, 5, 4), last-7)
	require.Equal(t, account.Allow, spend(&a, last-7, 4))
	assert.EqualValues(t, 10, a.Reset(last-7), "full after the last instant")
	assert.Equal(t, big.NewRat(14, 5), balance(a, last))
	assert.EqualValues(t, 3, a.Reset(last))
	require.Equal(t, account.Allow, spend(&a, last, 2))
	assert.EqualValues(t, 3, a.Wait(a.Used(last), last, 2), "0.8 tokens are there")
	assert.EqualValues(t, 8, a.Reset(last))

	a = full(limit(account.TokenBucket, 1, 1, 7), last-7)
	require.Equal(t, account.Allow, spend(&a, last-7, 7))
	assert.EqualValues(t, 7, a.Reset(last-7), "full at the last instant")
	assert.Equal(t, account.State{At: last}, a.State, "which is not beyond the range")
	assert.True(t, a.Full(last))
}

func TestBucket_FullInstantWithARemainderIsNotYetFull(t *testing.T) {
	a := full(limit(account.TokenBucket, 3, 1, 5), 0)
	require.Equal(t, account.Allow, spend(&a, 0, 4)) // full again after 4/3 ns
	assert.EqualValues(t, 2, a.Reset(0))
	assert.Equal(t, big.NewRat(4, 1), balance(a, 1))
	assert.False(t, a.Full(1))
	assert.True(t, a.Full(2))
}
