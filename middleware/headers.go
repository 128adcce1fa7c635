package middleware

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ration-go/ration/internal/account"
	"github.com/ration-go/ration/internal/rpcstatus"
	"github.com/ration-go/ration/limiter"
)

// Headers is the form in which answers state what is left of a budget. Times are
// whole seconds from now, rounded up, and never instants.
type Headers uint8

const (
	// Draft11 is that of draft-ietf-httpapi-ratelimit-headers-11, sections 3 and
	// 4, in structured fields:
	//
	//	RateLimit-Policy: "orders";q=100;w=60
	//	RateLimit: "orders";r=42;t=1
	//
	// Here q is the capacity of the account, w the time in which it fills from
	// empty, r the tokens left, and t the time within which no more than r can be
	// used. After an allowed request t ends when the next token comes, at the latest;
	// after a denial it ends when the same request can pay. There is no t if the
	// account is full. The draft is no standard yet; a later one gets a name of its own.
	Draft11 Headers = iota
	// XRateLimit is the convention X-RateLimit-Limit (the capacity),
	// X-RateLimit-Remaining, and X-RateLimit-Reset: the time until the account is
	// full again. For a token bucket that is later than Retry-After.
	XRateLimit
	// Off sends only Retry-After.
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

// state is what an answer states of an account: the tokens left, and for how many
// seconds no more can be used; 0 if it is full.
type state struct{ left, seconds int64 }

// tighter reports whether s has fewer tokens left than other, or as many for a
// longer time.
func (s state) tighter(other state) bool {
	return s.left < other.left || s.left == other.left && s.seconds > other.seconds
}

// writeState writes the state of an account, unless an outer limiter has written
// that of a tighter one: a chain of limiters sends one set of fields. next is the
// wait until there are more tokens than d.Remaining.
func (m *Middleware) writeState(h http.Header, d *limiter.Decision, next time.Duration) {
	now := m.cfg.Headers.state(d, next)
	if len(h) > 0 { // the usual case is an empty header
		if outer, ok := m.cfg.Headers.read(h); ok && !now.tighter(outer) {
			return
		}
	}
	if m.cfg.Headers == XRateLimit {
		values := [3]string{decimal(d.Limit.Capacity()), decimal(now.left), decimal(now.seconds)}
		h[limitField], h[remainingField], h[resetField] = values[:1:1], values[1:2:2], values[2:]
		return
	}
	t := m.texts.of(d.Budget, &d.Limit)
	values := [2]string{t.policy, t.item(now)}
	h[policyField], h[stateField] = values[:1:1], values[1:]
}

// removeState removes the fields that outer limiters have written.
func removeState(h http.Header) {
	if h[stateField] == nil && h[limitField] == nil {
		return
	}
	for _, name := range [...]string{
		policyField, stateField, limitField, remainingField, resetField,
	} {
		delete(h, name)
	}
}

// state returns what the form states of a decision.
func (f Headers) state(d *limiter.Decision, next time.Duration) state {
	s := state{left: d.Remaining}
	switch {
	case f == XRateLimit && d.ResetAfter > 0:
		s.seconds = rpcstatus.Seconds(d.ResetAfter)
	case f == XRateLimit || d.Remaining >= d.Limit.Capacity():
	case d.Outcome == limiter.Deny:
		s.seconds = rpcstatus.Seconds(d.RetryAfter)
	default:
		s.seconds = rpcstatus.Seconds(next)
	}
	return s
}

// read returns what an outer limiter has written in this form.
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

// readItem parses the result of item.
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

// item returns the value of RateLimit.
func (t *text) item(s state) string {
	b := make([]byte, 0, 128) // fits a name of 64 bytes and two numbers; on the stack
	b = append(b, t.left...)
	b = appendInteger(b, s.left)
	if s.seconds > 0 {
		b = append(b, ";t="...)
		b = appendInteger(b, s.seconds)
	}
	return string(b)
}

// policy returns the value of RateLimit-Policy. A blocked limit has no window.
func policy(budget string, l *limiter.Limit) string {
	b := []byte(quoted(budget) + ";q=")
	b = appendInteger(b, l.Capacity())
	if l.Tokens > 0 {
		fill := account.FillTime(l.Tokens, int64(l.Per), l.Capacity())
		b = append(b, ";w="...)
		b = appendInteger(b, rpcstatus.Seconds(time.Duration(fill)))
	}
	return string(b)
}

// quoted returns the name of a budget as a String of RFC 9651, section 3.3.3. No
// valid name needs escaping.
func quoted(budget string) string { return `"` + budget + `"` }

// maxInteger is the largest Integer of RFC 9651, section 3.3.1.
const maxInteger = 999_999_999_999_999

func appendInteger(b []byte, n int64) []byte {
	return strconv.AppendInt(b, min(n, maxInteger), 10)
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// texts caches the texts that are the same in all answers of a budget. Readers take
// no lock. There are few, so a linear search is faster than a map. If LimitFor
// returns more limits than fit, their texts are not cached.
type texts struct {
	known atomic.Pointer[[]*text]
	write sync.Mutex
}

// text holds the texts of one budget with one limit.
type text struct {
	budget string
	limit  limiter.Limit
	policy string
	left   string // the beginning of the value of RateLimit
	denied []byte // the body of a 429
}

const maxTexts = 32

// of returns the texts of a budget, for reading only.
func (c *texts) of(budget string, l *limiter.Limit) *text {
	known := c.read()
	for _, t := range known {
		if t.limit == *l && t.budget == budget {
			return t
		}
	}
	t := &text{budget: budget, limit: *l, policy: policy(budget, l), left: quoted(budget) + ";r="}
	denied := refusal{status: http.StatusTooManyRequests, kind: quotaExceeded, named: true,
		decision: limiter.Decision{Budget: budget}}
	t.denied = denied.problem()
	if len(known) < maxTexts {
		c.add(t) // checks the size again under the lock
	}
	return t
}

func (c *texts) read() []*text {
	if known := c.known.Load(); known != nil {
		return *known
	}
	return nil
}

func (c *texts) add(t *text) {
	c.write.Lock()
	defer c.write.Unlock()
	known := c.read()
	if len(known) >= maxTexts || slices.ContainsFunc(known, func(k *text) bool {
		return k.limit == t.limit && k.budget == t.budget
	}) {
		return
	}
	known = append(slices.Clip(known), t)
	c.known.Store(&known)
}
