package storekit

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ration-go/ration/internal/account"
	"github.com/ration-go/ration/limiter"
)

// A stored state is, in this order:
//
//	version    1 byte: 1, and never above 31, so that no text looks like a version
//	algorithm  1 byte, as limiter.Algorithm
//	tokens, per in nanoseconds, capacity
//	latest     the last instant used, in nanoseconds since the Unix epoch
//	used       at latest, in a token bucket: the high and the low 64 bits of the units
//	carried    in a window or a log: 0, or, if a change of the limit carries what is
//	           left, 1 more than the nanoseconds from when it was carried to latest
//	used       in a window: the tokens used in the window of latest
//	           in a log: for each entry, the oldest first, the nanoseconds to the
//	           next (for the newest: to latest) and its tokens
//
// All numbers are varints of encoding/binary, unsigned but for latest.
const (
	stateVersion = 1
	lastVersion  = 31
)

// maxState is longer than any state can be: 20,001 entries of 20 bytes.
const maxState = 1 << 19

var (
	errMalformed = errors.New("its stored bytes are not an account")
	errNewer     = errors.New("its stored bytes were written by a newer version")
)

// state is an account as it was at the last instant used.
type state struct {
	limit   limiter.Limit // with Burst spelled out
	latest  int64
	account account.Account
}

// newLimit returns a valid limit as the arithmetic wants it.
func newLimit(l limiter.Limit) *account.Limit {
	prepared := account.NewLimit(account.Algorithm(l.Algorithm), l.Tokens, int64(l.Per), l.Capacity())
	return &prepared
}

// spellOut returns the limit with its capacity as Burst, so that == compares
// limits.
func spellOut(l limiter.Limit) limiter.Limit {
	l.Burst = l.Capacity()
	return l
}

// encode returns the stored form of an account at now.
func encode(l limiter.Limit, a *account.Account, now int64) []byte {
	b := append(make([]byte, 0, 48), stateVersion, byte(l.Algorithm))
	for _, n := range []int64{l.Tokens, int64(l.Per), l.Capacity()} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	b = binary.AppendVarint(b, now)
	used := a.Used(now)
	if l.Algorithm == limiter.TokenBucket {
		return binary.AppendUvarint(binary.AppendUvarint(b, used.Hi), used.Lo)
	}
	var carried uint64
	if since, ok := a.Carried(now); ok {
		carried = 1 + uint64(now) - uint64(since)
	}
	b = binary.AppendUvarint(b, carried)
	if l.Algorithm == limiter.FixedWindow {
		return binary.AppendUvarint(b, used.Lo)
	}
	return appendEntries(b, a, now)
}

func appendEntries(b []byte, a *account.Account, now int64) []byte {
	var before int64
	var tokens uint64
	for at, n := range a.Entries(now) {
		if tokens > 0 {
			b = binary.AppendUvarint(b, uint64(at)-uint64(before))
			b = binary.AppendUvarint(b, tokens)
		}
		before, tokens = at, n
	}
	if tokens > 0 {
		b = binary.AppendUvarint(b, uint64(now)-uint64(before))
		b = binary.AppendUvarint(b, tokens)
	}
	return b
}

// decode reads a stored form; its error is errMalformed or errNewer. Whatever the
// bytes say, the account that comes of them holds at most its capacity.
func decode(b []byte) (state, error) {
	switch {
	case len(b) == 0 || len(b) > maxState || b[0] == 0 || b[0] > lastVersion:
		return state{}, errMalformed
	case b[0] > stateVersion:
		return state{}, fmt.Errorf("%w: %d, and this program knows %d", errNewer, b[0], stateVersion)
	case len(b) < 2:
		return state{}, errMalformed
	}
	r := reader{rest: b[2:]}
	s := state{limit: limiter.Limit{
		Algorithm: limiter.Algorithm(b[1]), Tokens: r.positive(),
		Per: time.Duration(r.positive()), Burst: r.positive(),
	}}
	s.latest = r.signed()
	if r.bad || s.limit.Validate() != nil {
		return state{}, errMalformed
	}
	s.account.Limit = newLimit(s.limit)
	switch s.limit.Algorithm {
	case limiter.TokenBucket:
		s.use(account.Uint128{Hi: r.unsigned(), Lo: r.unsigned()}, &r)
	case limiter.FixedWindow:
		carried := r.positive()
		s.use(account.Uint128{Lo: uint64(r.positive())}, &r)
		s.carry(carried, &r)
	default:
		carried := r.positive()
		s.log(&r)
		s.carry(carried, &r)
	}
	if r.bad || len(r.rest) > 0 {
		return state{}, errMalformed
	}
	return s, nil
}

// use sets what is used at latest. More than the arithmetic can hold is malformed.
func (s *state) use(used account.Uint128, r *reader) {
	s.account.Debit(used, s.latest, 0)
	r.bad = r.bad || s.account.Used(s.latest) != used
}

// carry sets since when what is left is carried; for a window that is latest.
func (s *state) carry(carried int64, r *reader) {
	if r.bad || carried == 0 {
		return
	}
	r.bad = s.latest < math.MinInt64+carried-1 ||
		carried > 1 && s.limit.Algorithm == limiter.FixedWindow
	if !r.bad {
		s.account.Carry(s.latest - (carried - 1))
	}
}

// log adds the entries, which are stored with the time between them.
func (s *state) log(r *reader) {
	type entry struct {
		gap    int64
		tokens uint64
	}
	var entries []entry
	var total uint64
	oldest := s.latest
	for len(r.rest) > 0 && !r.bad {
		e := entry{r.positive(), uint64(r.positive())}
		last := len(r.rest) == 0
		r.bad = r.bad || e.tokens == 0 || e.gap == 0 && !last || oldest < math.MinInt64+e.gap ||
			total+e.tokens > math.MaxInt64
		oldest, total = oldest-e.gap, total+e.tokens
		entries = append(entries, e)
	}
	if r.bad {
		return
	}
	at := oldest
	for _, e := range entries {
		s.account.Debit(account.Uint128{}, at, e.tokens)
		at += e.gap
	}
}

// reader reads varints; bad says that something was not one.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) unsigned() uint64 {
	n, size := binary.Uvarint(r.rest)
	return next(r, n, size)
}

func (r *reader) signed() int64 {
	n, size := binary.Varint(r.rest)
	return next(r, n, size)
}

// positive reads a number of at most 63 bits.
func (r *reader) positive() int64 {
	n := r.unsigned()
	if n > math.MaxInt64 {
		r.bad = true
		return 0
	}
	return int64(n)
}

// next accepts a number that was read from the first size bytes.
func next[T any](r *reader, n T, size int) T {
	if size <= 0 || r.bad {
		r.bad = true
		var zero T
		return zero
	}
	r.rest = r.rest[size:]
	return n
}
