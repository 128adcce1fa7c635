package account

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// words are those at which carries, borrows and saturation begin.
var words = []uint64{0, 1, 2, 3, 1<<32 - 1, 1 << 32, 1<<62 - 1, 1 << 62,
	math.MaxInt64 - 1, math.MaxInt64, 1 << 63, 1<<63 + 1, math.MaxUint64 - 1, math.MaxUint64}

// word returns one of words, or any other.
func word(random *rand.Rand) uint64 {
	if random.IntN(2) == 0 {
		return words[random.IntN(len(words))]
	}
	return random.Uint64() >> random.IntN(64)
}

func wide(random *rand.Rand) Uint128 { return Uint128{Hi: word(random), Lo: word(random)} }

func integer(n uint64) *big.Int { return new(big.Int).SetUint64(n) }

// low128 returns n modulo 2^128.
func low128(n *big.Int) *big.Int {
	return n.And(n, new(big.Int).Sub(new(big.Int).Lsh(integer(1), 128), integer(1)))
}

func TestUint128_EqualsIntegerArithmetic(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 4000 {
		x, y, u, v := word(random), word(random), wide(random), wide(random)
		require.Zero(t, new(big.Int).Mul(integer(x), integer(y)).Cmp(mul(x, y).big()), "%v*%v", x, y)
		sum := low128(new(big.Int).Add(u.big(), v.big()))
		require.Zero(t, sum.Cmp(u.add(v).big()), "%v+%v", u, v)
		difference := low128(new(big.Int).Sub(u.big(), v.big()))
		require.Zero(t, difference.Cmp(u.sub(v).big()), "%v-%v", u, v)
		require.Equal(t, u.big().Cmp(v.big()) < 0, u.less(v), "%v<%v", u, v)
		require.False(t, u.less(u))
		if u.less(v) {
			difference = new(big.Int)
		}
		require.Zero(t, difference.Cmp(u.floorSub(v).big()), "max(%v-%v,0)", u, v)
		require.Equal(t, u.big().Sign() == 0, u.isZero())
	}
	assert.True(t, Uint128{}.isZero())
	assert.False(t, Uint128{Hi: 1}.isZero())
}

func TestUint128_DivisionSaturatesAtMaxInt64(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 4000 {
		// Quotients on both sides of 2^63.
		y := max(word(random), 1)
		u := mul(word(random), y).add(Uint128{Lo: word(random) % y})
		wantQ, wantR := new(big.Int).DivMod(u.big(), integer(y), new(big.Int))
		ceil := new(big.Int).Set(wantQ)
		if wantR.Sign() > 0 {
			ceil.Add(ceil, integer(1))
		}
		if !wantQ.IsInt64() {
			wantQ, wantR = big.NewInt(math.MaxInt64), new(big.Int)
		}
		if !ceil.IsInt64() {
			ceil = big.NewInt(math.MaxInt64)
		}
		q, r := u.div(y)
		require.Equal(t, []uint64{wantQ.Uint64(), wantR.Uint64()}, []uint64{q, r}, "%v/%v", u, y)
		require.Equal(t, ceil.Uint64(), u.ceilDiv(y), "%v/%v rounded up", u, y)
	}
	q, r := Uint128{Hi: 7}.div(7)
	assert.Equal(t, []uint64{math.MaxInt64, 0}, []uint64{q, r}, "a quotient of 65 bits")
}

func TestMul256_EqualsIntegerArithmetic(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for range 4000 {
		u, v := wide(random), wide(random)
		product := mul256(u, v)
		got := new(big.Int).Lsh(product.high.big(), 128)
		got.Add(got, product.low.big())
		require.Zero(t, new(big.Int).Mul(u.big(), v.big()).Cmp(got), "%v*%v", u, v)
	}
}
