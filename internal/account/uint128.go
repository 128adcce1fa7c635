package account

import (
	"cmp"
	"math"
	"math/bits"
)

// Uint128 is an unsigned 128-bit integer. The zero value is 0.
//
// The products of this package stay far below 2^128: a capacity is at most
// 100 years of nanoseconds (below 2^62) times 2^63 tokens, a deficit at most
// 2^63 nanoseconds times 2^63, and no sum has more than three such terms.
type Uint128 struct{ Hi, Lo uint64 }

// mul returns x*y, exactly.
func mul(x, y uint64) Uint128 {
	hi, lo := bits.Mul64(x, y)
	return Uint128{hi, lo}
}

func (u Uint128) add(v Uint128) Uint128 {
	lo, carry := bits.Add64(u.Lo, v.Lo, 0)
	hi, _ := bits.Add64(u.Hi, v.Hi, carry)
	return Uint128{hi, lo}
}

// sub returns u-v; the caller knows that u >= v.
func (u Uint128) sub(v Uint128) Uint128 {
	lo, borrow := bits.Sub64(u.Lo, v.Lo, 0)
	hi, _ := bits.Sub64(u.Hi, v.Hi, borrow)
	return Uint128{hi, lo}
}

// floorSub returns u-v, or 0 where v is the greater.
func (u Uint128) floorSub(v Uint128) Uint128 {
	if u.less(v) {
		return Uint128{}
	}
	return u.sub(v)
}

func (u Uint128) less(v Uint128) bool {
	return u.Hi < v.Hi || u.Hi == v.Hi && u.Lo < v.Lo
}

func (u Uint128) isZero() bool { return u.Hi|u.Lo == 0 }

// div returns the quotient and the remainder of u/y. A quotient that does not
// fit 63 bits saturates at MaxInt64 with remainder 0: the longest span that an
// instant in nanoseconds can express.
func (u Uint128) div(y uint64) (q, r uint64) {
	if u.Hi >= y {
		return math.MaxInt64, 0
	}
	q, r = bits.Div64(u.Hi, u.Lo, y)
	if q > math.MaxInt64 {
		return math.MaxInt64, 0
	}
	return q, r
}

// ceilDiv returns u/y rounded up, saturating at MaxInt64.
func (u Uint128) ceilDiv(y uint64) uint64 {
	q, r := u.div(y)
	if r != 0 && q < math.MaxInt64 {
		q++
	}
	return q
}

// CompareRatios compares a/b with c/d, exactly, by 256-bit products; b and d are
// not 0.
func CompareRatios(a, b, c, d Uint128) int {
	if b == d {
		return a.compare(c)
	}
	x, y := mul256(a, d), mul256(c, b)
	return cmp.Or(x.high.compare(y.high), x.low.compare(y.low))
}

func (u Uint128) compare(v Uint128) int {
	switch {
	case u == v:
		return 0
	case u.less(v):
		return -1
	default:
		return 1
	}
}

// uint256 is a product of two Uint128.
type uint256 struct{ high, low Uint128 }

// mul256 returns u*v, exactly.
func mul256(u, v Uint128) uint256 {
	low, high := mul(u.Lo, v.Lo), mul(u.Hi, v.Hi)
	a, b := mul(u.Lo, v.Hi), mul(u.Hi, v.Lo)
	w1, c1 := bits.Add64(low.Hi, a.Lo, 0)
	w1, c2 := bits.Add64(w1, b.Lo, 0)
	w2, c3 := bits.Add64(high.Lo, a.Hi, c1)
	w2, c4 := bits.Add64(w2, b.Hi, c2)
	return uint256{Uint128{high.Hi + c3 + c4, w2}, Uint128{w1, low.Lo}}
}
