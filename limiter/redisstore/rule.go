package redisstore

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/ration-go/ration/limiter"
)

// rule is a limit as the script counts it, in integers below 2^53. A token
// bucket has units of which a token has p, and gains n a microsecond. Windows
// and logs are n microseconds long, and their unit is the token.
type rule struct {
	kind     limiter.Algorithm
	n, p     int64
	capacity int64 // in tokens
}

// most is the largest integer below which a double holds every other.
const most = 1 << 53

// newRule returns the rule of a limit, or a *limiter.ConfigError that says why
// the server cannot hold it exactly.
func newRule(l limiter.Limit) (rule, error) {
	if err := l.Validate(); err != nil {
		return rule{}, err
	}
	r := rule{kind: l.Algorithm, n: l.Per.Microseconds(), p: 1, capacity: l.Capacity()}
	if l.Algorithm == limiter.TokenBucket {
		return r.bucket(l)
	}
	if l.Per%time.Microsecond != 0 {
		return rule{}, wrong("Limit.Per", l.Per,
			"windows and logs are counted in microseconds in Redis: want a whole number of them")
	}
	if !r.fits() {
		return rule{}, wrong("Limit.Tokens", l.Tokens, "want at most 2^52 less half of Per in "+
			"microseconds, so that Redis counts exactly")
	}
	return r, nil
}

// bucket returns the rule of a token bucket: a token has as many units as Per has
// microseconds (nanoseconds, where Per is no whole number of those), or, where
// that is too fine for its capacity, the fewest that are exact.
func (r rule) bucket(l limiter.Limit) (rule, error) {
	gain := uint64(1)
	r.p = r.n
	if l.Per%time.Microsecond != 0 {
		r.p, gain = int64(l.Per), 1000
	}
	high, gained := bits.Mul64(uint64(l.Tokens), gain)
	r.n = int64(min(gained, most+1))
	if high == 0 && r.fits() {
		return r, nil
	}
	if g := gcd(gained, uint64(r.p)); high == 0 {
		r.n, r.p = int64(min(gained/g, most+1)), r.p/int64(g)
	}
	if high != 0 || !r.fits() {
		return rule{}, wrong("Limit", l, fmt.Sprintf(
			"Redis counts exactly below 2^53 only, and this needs 2 * %d tokens of %d units, and "+
				"%d units a microsecond: want a smaller Burst, or Tokens and Per that divide evenly",
			l.Capacity(), r.p, r.n))
	}
	return r, nil
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// fits reports whether all sums of the script stay exact: twice the capacity,
// since an account may be as far in debt, and what a microsecond gives.
func (r *rule) fits() bool {
	high, units := bits.Mul64(uint64(r.capacity), 2*uint64(r.p))
	return high == 0 && r.n <= most && units <= uint64(most-r.n)
}

// version is the first byte of every value; see the package comment on
// upgrades. Version 1 was never released, and its keys had other names.
const version = 2

// maxHead is the length of the longest head, and maxLimit that of the longest limit in
// a command.
const (
	maxHead  = 2 + 3*8
	maxLimit = 3*8 + 1 + maxHead
)

// appendHead appends the head of values that are counted by the rule: the version, the
// kind, and as uvarints n, p and the capacity, which is 0 if it is n. Two rules never
// have the same head.
func (r *rule) appendHead(dst []byte) []byte {
	dst = append(dst, version, byte(r.kind))
	dst = binary.AppendUvarint(dst, uint64(r.n))
	dst = binary.AppendUvarint(dst, uint64(r.p))
	if r.capacity == r.n {
		return append(dst, 0)
	}
	return binary.AppendUvarint(dst, uint64(r.capacity))
}

// appendTo appends the rule as the script wants it.
func (r *rule) appendTo(dst []byte) []byte {
	dst = append(appendNumbers(dst, r.n, r.p, r.capacity), 0)
	length := len(dst)
	dst = r.appendHead(dst)
	dst[length-1] = byte(len(dst) - length)
	return dst
}

// appendNumbers appends integers as the doubles that the script reads.
func appendNumbers(dst []byte, numbers ...int64) []byte {
	for _, n := range numbers {
		dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(float64(n)))
	}
	return dst
}

// units returns the capacity in units.
func (r *rule) units() int64 { return r.capacity * r.p }

// judge says what becomes of cost while used units are used.
func (r *rule) judge(used, cost int64) limiter.Outcome {
	switch {
	case cost > r.capacity:
		return limiter.Never
	case cost == 0 || cost*r.p <= r.units()-used:
		return limiter.Allow
	default:
		return limiter.Deny
	}
}

// remaining returns the whole tokens left while used units are used.
func (r *rule) remaining(used int64) int64 { return max(r.units()-used, 0) / r.p }

// fill returns the time in which a bucket gains so many units.
func (r *rule) fill(units int64) time.Duration {
	return micros(units/r.n + min(units%r.n, 1))
}

// left returns the rest of the window of an instant.
func (r *rule) left(at int64) time.Duration {
	gone := at % r.n
	if gone < 0 {
		gone += r.n
	}
	return micros(r.n - gone)
}

// micros returns so many microseconds, saturating.
func micros(n int64) time.Duration {
	if n > math.MaxInt64/1000 {
		return math.MaxInt64
	}
	return time.Duration(n) * time.Microsecond
}
