package middleware

import (
	"math"
	"math/bits"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ration-go/ration/internal/account"
	"github.com/ration-go/ration/limiter"
)

// Headers is the form in which answers state what is left of a budget. Times are
// whole seconds from the answer on, rounded up, never instants.
type Headers uint8

const (
	// Draft11 is that of draft-ietf-httpapi-ratelimit-headers-11, sections 3 and
	// 4, in structured fields:
	//
	//	RateLimit-Policy: "orders";q=100;w=60
	//	RateLimit: "orders";r=42;t=1
	//
	// where q is the capacity of the account, w the time in which it fills from
	// empty, r the tokens left, and t the time within which no more than r can be
	// used: until the next token comes, at the latest, or on a denial until the
	// same request can pay. There is no t where the account is full. The draft is
	// no standard yet; a later one gets a name of its own.
	Draft11 Headers = iota
	// XRateLimit is the convention X-RateLimit-Limit (the capacity),
	// X-RateLimit-Remaining, and X-RateLimit-Reset: the time until the account is
	// full again, which is later than Retry-After where it fills by and by.
	XRateLimit
	// Off states nothing but Retry-After.
	Off
)

// The fields, as http.Header spells their names.
const (
	policyField    = "Ratelimit-Policy"
	stateField     = "Ratelimit"
	limitField     = "X-Ratelimit-Limit"
	remainingField = "X-Ratelimit-Remaining"
	resetField     = "X-Ratelimit-Reset"
)

// state is what an answer tells of an account: tokens left, and the seconds for
// which that holds; 0 where it is full.
type state struct{ left, seconds int64 }

// nearer reports whether s holds its caller back sooner than other, or as soon
// and for longer.
func (s state) nearer(other state) bool {
	return s.left < other.left || s.left == other.left && s.seconds > other.seconds
}

// tellsState reports whether the caller may see the state of an account: it is the
// caller's alone, or its budget is public. Anyone else's use of it is not for the
// caller to know.
func (m *Middleware) tellsState(b *limiter.Budget, c *limiter.Charge) bool {
	return alone(b, c) || slices.Contains(m.cfg.Public, b.Name)
}

// alone reports whether the account is the caller's alone, or its tenant's. The
// account of all unauthenticated callers is not, nor that of a network of
// addresses, nor an overflow account.
func alone(b *limiter.Budget, c *limiter.Charge) bool {
	p := &c.Key.Principal
	network := p.Kind == limiter.KindAddress && p.ID == ""
	return b.Scope.Personal() && p.Kind != limiter.KindShared && !network && !c.Result.Overflow
}

// hidden is the budgets that have refused a request and whose state its caller
// must not see.
type hidden []string

func (h *hidden) add(budget string, c *limiter.Charge) {
	if c.Result.Outcome != limiter.Allow {
		*h = append(*h, budget)
	}
}

func (h hidden) has(budget string) bool { return slices.Contains(h, budget) }

// tell states what is left, unless a limiter further out has told of a budget
// that is nearer to its end: a chain speaks with one voice.
func (m *Middleware) tell(h http.Header, d *limiter.Decision) {
	now := m.cfg.Headers.state(d)
	if len(h) > 0 { // mostly nobody has written yet
		if told, ok := m.cfg.Headers.read(h); ok && !now.nearer(told) {
			return
		}
	}
	if m.cfg.Headers == XRateLimit {
		values := [3]string{decimal(d.Limit.Capacity()), decimal(now.left), decimal(now.seconds)}
		h[limitField], h[remainingField], h[resetField] = values[:1:1], values[1:2:2], values[2:]
		return
	}
	t := m.policies.of(d.Budget, &d.Limit)
	values := [2]string{t.policy, t.item(now)}
	h[policyField], h[stateField] = values[:1:1], values[1:]
}

// untell removes what limiters further out have told.
func untell(h http.Header) {
	if h[stateField] == nil && h[limitField] == nil {
		return
	}
	for _, name := range [...]string{
		policyField, stateField, limitField, remainingField, resetField,
	} {
		delete(h, name)
	}
}

// state returns what the form tells of a decision.
func (f Headers) state(d *limiter.Decision) state {
	s := state{left: d.Remaining}
	switch {
	case f == XRateLimit && d.ResetAfter > 0:
		s.seconds = wholeSeconds(d.ResetAfter)
	case f == XRateLimit || d.Remaining >= d.Limit.Capacity():
	case d.Outcome == limiter.Deny:
		s.seconds = wholeSeconds(d.RetryAfter)
	default:
		s.seconds = wholeSeconds(untilNext(d))
	}
	return s
}

// untilNext returns the wait until more than d.Remaining tokens are there. Of a
// bucket's time to fill, the tokens after the next one are the last part:
//
//	next = ResetAfter - (Capacity-Remaining-1) * Per/Tokens
//
// rounded down in what is taken off, and so never too short. A window brings all
// at its end; a log tells only when the last of its entries leaves.
func untilNext(d *limiter.Decision) time.Duration {
	l := d.Limit
	after := l.Capacity() - d.Remaining - 1
	if l.Algorithm != limiter.TokenBucket || after <= 0 {
		return d.ResetAfter
	}
	// No overflow: a valid limit fills in less than 2^63 ns.
	high, low := bits.Mul64(uint64(after), uint64(l.Per))
	rest, _ := bits.Div64(high, low, uint64(l.Tokens))
	return d.ResetAfter - time.Duration(rest)
}

// read returns what a limiter further out has told in this form.
func (f Headers) read(h http.Header) (state, bool) {
	if f == Draft11 {
		return readItem(h[stateField])
	}
	left, seconds := h[remainingField], h[resetField]
	if len(left) != 1 || len(seconds) != 1 {
		return state{}, false
	}
	return parse(left[0], seconds[0])
}

// readItem reads what item has written.
func readItem(values []string) (state, bool) {
	if len(values) != 1 {
		return state{}, false
	}
	_, parameters, _ := strings.Cut(values[0], `";r=`)
	left, seconds, timed := strings.Cut(parameters, ";t=")
	if !timed {
		seconds = "0"
	}
	return parse(left, seconds)
}

func parse(left, seconds string) (state, bool) {
	l, leftErr := strconv.ParseInt(left, 10, 64)
	s, secondsErr := strconv.ParseInt(seconds, 10, 64)
	return state{l, s}, leftErr == nil && secondsErr == nil
}

// item returns one member of RateLimit.
func (t *texts) item(s state) string {
	b := make([]byte, 0, 128) // a name of 64 and two numbers: stays on the stack
	b = append(b, t.left...)
	b = appendInteger(b, s.left)
	if s.seconds > 0 {
		b = append(b, ";t="...)
		b = appendInteger(b, s.seconds)
	}
	return string(b)
}

// policy returns one member of RateLimit-Policy. What is blocked has no window.
func policy(budget string, l *limiter.Limit) string {
	b := []byte(quoted(budget) + ";q=")
	b = appendInteger(b, l.Capacity())
	if l.Tokens > 0 {
		fill := account.FillTime(l.Tokens, int64(l.Per), l.Capacity())
		b = append(b, ";w="...)
		b = appendInteger(b, wholeSeconds(time.Duration(fill)))
	}
	return string(b)
}

// quoted returns the name of a budget as a String of RFC 9651, section 3.3.3:
// none needs escaping.
func quoted(budget string) string { return `"` + budget + `"` }

// maxInteger is the largest Integer of RFC 9651, section 3.3.1.
const maxInteger = 999_999_999_999_999

func appendInteger(b []byte, n int64) []byte {
	return strconv.AppendInt(b, min(n, maxInteger), 10)
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// wholeSeconds returns a wait as headers state it: rounded up, at least 1, at
// most what every recipient can hold (RFC 9111, section 1.2.2).
func wholeSeconds(wait time.Duration) int64 {
	seconds := int64(wait / time.Second)
	if wait%time.Second > 0 {
		seconds++
	}
	return min(max(seconds, 1), math.MaxInt32)
}

// policies remembers the texts that are the same in all answers of a budget,
// which hardly ever change. Readers take no lock. They are few, so looking at
// each is faster than a hash; where a LimitFor answers many limits, what does not
// fit is written anew each time.
type policies struct {
	known atomic.Pointer[[]*texts]
	write sync.Mutex
}

// texts are those of a budget and a limit.
type texts struct {
	budget string
	limit  limiter.Limit
	policy string
	left   string // what an item begins with
	denied []byte // the problem of a denial with 429
}

const maxPolicies = 32

// of returns the texts of a budget, for reading only.
func (p *policies) of(budget string, l *limiter.Limit) *texts {
	known := p.read()
	for _, t := range known {
		if t.limit == *l && t.budget == budget {
			return t
		}
	}
	t := &texts{budget: budget, limit: *l, policy: policy(budget, l), left: quoted(budget) + ";r="}
	t.denied = refusal{status: http.StatusTooManyRequests, kind: quotaExceeded, named: true,
		decision: limiter.Decision{Budget: budget}}.problem()
	if len(known) < maxPolicies {
		p.add(t) // looks again: others may add at the same time
	}
	return t
}

func (p *policies) read() []*texts {
	if known := p.known.Load(); known != nil {
		return *known
	}
	return nil
}

func (p *policies) add(t *texts) {
	p.write.Lock()
	defer p.write.Unlock()
	if known := p.read(); len(known) < maxPolicies {
		known = append(slices.Clip(known), t)
		p.known.Store(&known)
	}
}
