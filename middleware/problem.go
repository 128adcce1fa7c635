package middleware

import (
	"math"
	"net/http"
	"strconv"
	"time"
)

// problem is an answer of the limiter itself, after RFC 9457.
type problem struct {
	status     int
	challenge  string // WWW-Authenticate; empty: none
	retryAfter int64  // whole seconds; 0: none
	exceeded   bool   // a budget refused: a type of its own, and its name
	budget     string // its name; empty: not the caller's to know
}

// exceeded is the problem type "quota-exceeded" of
// draft-ietf-httpapi-ratelimit-headers-11, section 5.1.
func exceeded(budget string, retryAfter int64) problem {
	return problem{
		status: http.StatusTooManyRequests, retryAfter: retryAfter,
		exceeded: true, budget: budget,
	}
}

// nobody asks for credentials. A 401 must state a challenge (RFC 9110, section
// 15.5.2); where there is none to state, credentials would not help: 403.
func nobody(challenge string) problem {
	if challenge == "" {
		return problem{status: http.StatusForbidden}
	}
	return problem{status: http.StatusUnauthorized, challenge: challenge}
}

// wholeSeconds returns the wait as Retry-After states it: rounded up, at least
// 1, at most what every recipient can hold (RFC 9111, section 1.2.2).
func wholeSeconds(wait time.Duration) int64 {
	seconds := int64(wait / time.Second)
	if wait%time.Second > 0 {
		seconds++
	}
	return min(max(seconds, 1), math.MaxInt32)
}

// inherited are headers that were meant for the answer of the handler: they
// describe its body, or let a cache keep it.
var inherited = [...]string{
	"Accept-Ranges", "Age", "Content-Digest", "Content-Disposition", "Content-Encoding",
	"Content-Language", "Content-Length", "Content-Location", "Content-Range", "Digest",
	"Etag", "Expires", "Last-Modified", "Pragma", "Repr-Digest", "Retry-After",
	"Cdn-Cache-Control", "Cloudflare-Cdn-Cache-Control", "Surrogate-Control",
}

// write answers with the problem. Headers set upstream, such as those of CORS,
// stay where they do not speak of another body.
func (p problem) write(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	for _, name := range inherited {
		delete(h, name)
	}
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Type", "application/problem+json")
	if p.challenge != "" {
		h.Set("Www-Authenticate", p.challenge)
	}
	if p.retryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(p.retryAfter, 10))
	}
	w.WriteHeader(p.status)
	if r.Method != http.MethodHead {
		// The caller may be gone; there is nobody left to tell.
		_, _ = w.Write(p.body())
	}
}

// body returns the problem as JSON. Names of budgets need no escaping.
func (p problem) body() []byte {
	b := make([]byte, 0, 256)
	if p.exceeded {
		b = append(b, `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",`+
			`"title":"Quota Exceeded","status":`...)
	} else {
		b = append(b, `{"title":"`...)
		b = append(b, http.StatusText(p.status)...)
		b = append(b, `","status":`...)
	}
	b = strconv.AppendInt(b, int64(p.status), 10)
	switch {
	case p.exceeded && p.budget != "":
		b = append(b, `,"violated-policies":["`...)
		b = append(b, p.budget...)
		b = append(b, `"]`...)
	case p.exceeded:
		b = append(b, `,"violated-policies":[]`...)
	}
	if p.exceeded && p.retryAfter == 0 {
		b = append(b, `,"detail":"The request costs more than the limit ever allows."`...)
	}
	return append(b, '}', '\n')
}
