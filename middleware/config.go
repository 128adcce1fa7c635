package middleware

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
)

// Config is what may differ from service to service and between requests. The
// zero Config is usable. Its functions are called with no lock held, by many
// goroutines.
type Config struct {
	// Cost returns the tokens that a request needs, at least 0; nil means 1 for
	// each. A negative cost is answered 500.
	Cost func(*http.Request) int64
	// Settles lets handlers say what a request really cost, with [Settle]; Cost is
	// then what is reserved, so the most that it may cost. It costs some
	// allocations, a copy of the request among them.
	Settles bool
	// ByStatus, if set, returns what a request really cost, at least 0, from the
	// final status and from what Cost has reserved. Against guessing, return 0 for
	// successes and reserved for all else. If the handler has called Settle, its
	// cost stands.
	//
	// It is not called if the status is unknown, and the cost stands: after a handler
	// that wrote no status or two, a panic, a hijack, a disconnect, and for an RPC
	// (gRPC, gRPC-Web, Connect streams) that was answered 200. See "Cost known
	// afterwards" in the package comment.
	ByStatus func(status int, reserved int64) int64
	// Skip exempts a request if it returns true: nothing is charged, no budget can
	// refuse it, and it counts as "skipped". nil exempts none. It is called before
	// the caller is identified.
	//
	// Callers get whatever Skip accepts without limit, and so all the code that runs
	// behind the limiter. Decide by what callers cannot choose, such as the listener
	// ([http.LocalAddrContextKey]), or accept only a path whose handler does no work,
	// such as a health check. Never decide by a method or a header alone: a Skip of
	// all OPTIONS, for instance, lets anybody guess passwords by preflights if the
	// authentication is behind the limiter.
	Skip func(*http.Request) bool
	// Workloads are labels by which callers split their own budgets, for budgets
	// ByWorkload; the zero value means none.
	Workloads keying.Workloads
	// Caller makes [keying.CallerFrom] know the caller in handlers. It costs two
	// allocations, a copy of the request among them.
	Caller bool
	// Headers is the form in which answers state what is left; the zero value is
	// [Draft11].
	Headers Headers
	// Public are the names of the budgets whose state any caller may see. Without
	// it, headers show only accounts that are the caller's own or its tenant's:
	// others would tell callers how much everyone else uses.
	Public []string
	// Unavailable are the names of budgets that refuse with 503 instead of 429:
	// it is not this caller who asks too much, but all together. They are shared
	// by everybody, so neither ByPrincipal nor ByTenant.
	Unavailable []string
	// Jitter makes Retry-After later by a random time up to this, never earlier
	// than the true wait, so that those who are refused together do not come back
	// together. At most 1 h; 0 means none.
	Jitter time.Duration
	// Denied writes the answer to a request that a budget refused, deny or never;
	// nil means a problem in JSON. All headers but Content-Type are set before;
	// the status is theirs (429, 503) where Denied writes none. It is not asked
	// for gRPC.
	Denied func(http.ResponseWriter, *http.Request, limiter.Decision)
	// Failed writes the answer to a request that could not be decided: err
	// matches [limiter.ErrNobody] (401, 403), is a *[limiter.StoreError] under the
	// policy Closed (503), or is a mistake of the service's such as a negative
	// cost (500). It works as Denied does.
	Failed func(http.ResponseWriter, *http.Request, error)
}

// maxJitter is more than clients wait, and adds up to no overflow.
const maxJitter = time.Hour

func (c Config) validate(l *limiter.Limiter) error {
	switch {
	case c.Headers > Off:
		return wrong("Config.Headers", uint8(c.Headers),
			"want Draft11, XRateLimit or Off")
	case c.Jitter < 0 || c.Jitter > maxJitter:
		return wrong("Config.Jitter", c.Jitter,
			fmt.Sprintf("want at least 0 and at most %v", maxJitter))
	}
	for i, name := range c.Public {
		if _, ok := l.Budget(name); !ok {
			return unknown("Config.Public", i, name)
		}
	}
	for i, name := range c.Unavailable {
		b, ok := l.Budget(name)
		switch {
		case !ok:
			return unknown("Config.Unavailable", i, name)
		case b.Scope.Personal():
			return wrong(fmt.Sprintf("Config.Unavailable[%d]", i), name,
				"its accounts belong to one caller: want a budget that all share, or 429")
		}
	}
	return nil
}

func unknown(field string, i int, name string) error {
	return wrong(fmt.Sprintf("%s[%d]", field, i), name,
		"want the name of a budget of the limiter")
}

// clone returns c without the slices of the one who made it.
func (c Config) clone() Config {
	c.Public, c.Unavailable = slices.Clone(c.Public), slices.Clone(c.Unavailable)
	return c
}

func (c *Config) cost(r *http.Request) int64 {
	if c.Cost == nil {
		return 1
	}
	return c.Cost(r)
}
