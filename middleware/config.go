package middleware

import (
	"fmt"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
)

// Config holds the options of a [Middleware]. The zero Config is usable. Its
// functions are called with no lock held, by many goroutines.
type Config struct {
	// Cost returns the tokens that a request costs, at least 0. Nil means 1 for each
	// request. A negative cost is answered with 500.
	Cost func(*http.Request) int64
	// Settles lets handlers state the real cost of a request by [Settle]. Cost is then
	// reserved, so it should be the most that the request may cost. It costs some
	// allocations, a copy of the request among them.
	Settles bool
	// ByStatus, if set, returns the real cost of a request, at least 0, from the final
	// status and the result of Cost, which was reserved. Against guessing, return 0
	// for successes and reserved for all else. If the handler has called Settle, that
	// cost stands.
	//
	// It is not called if the status is unknown, and the reserved cost stands: after a
	// handler that wrote no status or two, a panic, a hijack, a disconnect, and for an
	// RPC (gRPC, gRPC-Web, Connect streams) that was answered 200. See "Cost known
	// afterwards" in the package comment. It costs more than a dozen allocations,
	// since the ResponseWriter is wrapped.
	ByStatus func(status int, reserved int64) int64
	// Skip exempts a request if it returns true: nothing is charged, no budget can
	// refuse it, and it counts as "skipped". Nil exempts none. It is called before
	// the caller is identified.
	//
	// Callers can send the requests that Skip accepts without limit, and so run all
	// the code inside the limiter. Decide by what callers cannot choose, such as the
	// listener ([http.LocalAddrContextKey]), or accept only a path whose handler does
	// no work, such as a health check. Never decide by a method or a header alone: a
	// Skip of all OPTIONS, for instance, lets anybody guess passwords by preflights if
	// the authentication is inside the limiter.
	Skip func(*http.Request) bool
	// Workloads are labels by which callers split their own budgets, for budgets
	// ByWorkload; the zero value means none.
	Workloads keying.Workloads
	// Caller lets handlers, Denied and Failed find the caller by [keying.CallerFrom].
	// It costs two allocations, a copy of the request among them.
	Caller bool
	// Headers is the form in which answers state what is left; the zero value is
	// [Draft11].
	Headers Headers
	// Jitter adds a random time up to this to the wait that a refusal states, so that
	// callers that are refused together do not retry together. It makes no wait of an RPC
	// too long for a retry. At most 1 h; 0 means none.
	Jitter time.Duration
	// Domain is the domain in the ErrorInfo of RPC clients: the name of the service.
	// Empty means "ration".
	Domain string
	// Denied writes the answer to a request that a budget refused (deny or never).
	// Nil means a problem in JSON, which Denied can write by [Deny]. All headers but
	// Content-Type are set before. If Denied writes no status, the answer has the
	// status that the middleware would have written (429 or 503). It is not called for
	// RPC clients.
	Denied func(http.ResponseWriter, *http.Request, limiter.Decision)
	// Failed writes the answer to a request that could not be decided. err matches
	// [limiter.ErrNobody] (401, 403), is a *[limiter.StoreError] under the policy
	// Closed (503), or is a mistake of the service such as a negative cost (500). It
	// works as Denied does, and is not called if the client has disconnected.
	Failed func(http.ResponseWriter, *http.Request, error)
}

// maxJitter is longer than any client should wait, and cannot overflow a wait.
const maxJitter = time.Hour

func (c Config) validate() error {
	switch {
	case c.Headers > Off:
		return wrong("Config.Headers", uint8(c.Headers), "want Draft11, XRateLimit or Off")
	case c.Jitter < 0 || c.Jitter > maxJitter:
		return wrong("Config.Jitter", c.Jitter, fmt.Sprintf("want at least 0 and at most %v", maxJitter))
	case !utf8.ValidString(c.Domain):
		return wrong("Config.Domain", c.Domain, "want UTF-8")
	}
	return nil
}

func (c *Config) cost(r *http.Request) int64 {
	if c.Cost == nil {
		return 1
	}
	return c.Cost(r)
}
