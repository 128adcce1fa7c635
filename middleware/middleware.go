// Package middleware limits net/http handlers: requests that cannot pay get 429
// with the time after which they can, all others pass through untouched.
//
//	who := keying.Authenticated(keying.Refuse(`Bearer realm="api"`))
//	limit, err := middleware.New(l, who, routes.Route, middleware.Config{})
//	...
//	router.Use(authenticate, limit.Handler)
//
// The limiter goes after the authentication, which puts the principal into the
// context; a second one by address goes before it, where failed logins cost
// something too. Middleware that rewrites paths or adds headers to all answers,
// such as CORS, goes before both.
//
// # Answers
//
//	can pay                  the handler's own, its ResponseWriter not wrapped
//	cannot pay yet           429, Retry-After in whole seconds, rounded up
//	can never pay            429 without Retry-After: the cost is above the capacity
//	nobody, where refused    401 with the stated challenge; 403 where none is stated
//	store failed, Open       the handler's own
//	store failed, Closed     503, Retry-After
//	caller has gone          503, which nobody reads
//	any other error          500
//
// Bodies are application/problem+json (RFC 9457) and no cache may store them. A
// HEAD gets none. Headers that were set before the limiter stay, except those
// that describe a body or let a cache keep it.
//
// # Once per request
//
// A limiter that a request meets several times, at the root and on a route, say,
// charges one caller once; the other times it lets it pass. Another method or
// URL, as in a request that a handler makes up, is another request, and a caller
// by address before the authentication is another than the user after it. Two
// limiters in one chain both charge, one after the other: what the outer one
// took is spent when the inner one refuses.
package middleware

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
)

// Config is what may differ between requests. The zero Config is usable. Its
// functions are called with no lock held, by many goroutines.
type Config struct {
	// Cost returns the tokens that a request needs, at least 0; nil means 1 for
	// each. A negative cost is answered 500.
	Cost func(*http.Request) int64
	// Skip lets a request pass free, counted as "skipped"; nil means none. It is
	// asked before anything is charged.
	Skip func(*http.Request) bool
}

// Middleware limits handlers. It is safe for concurrent use, has no goroutine,
// and may wrap any number of handlers; the zero Middleware is not usable, see
// [New].
type Middleware struct {
	limiter *limiter.Limiter
	who     keying.Who
	route   keying.Route
	cfg     Config
	mounts  *atomic.Int64 // of this limiter, in all middlewares
}

// New returns a middleware that charges l for each request: who says whom, and
// route where. The error is a *[limiter.ConfigError] for a nil limiter, a nil
// route, or a who that leaves open what happens to callers without a principal.
func New(
	l *limiter.Limiter, who keying.Who, route keying.Route, cfg Config,
) (*Middleware, error) {
	switch {
	case l == nil:
		return nil, &limiter.ConfigError{Field: "Limiter", Reason: "want a limiter, not nil"}
	case route == nil:
		return nil, &limiter.ConfigError{Field: "Route",
			Reason: "want keying.Pattern, keying.Mux(mux) or chiroute.New(router).Route"}
	}
	if err := who.Validate(); err != nil {
		return nil, err
	}
	return &Middleware{l, who, route, cfg, mountsOf(l)}, nil
}

// Handler returns next behind the limiter.
func (m *Middleware) Handler(next http.Handler) http.Handler {
	m.mounts.Add(1)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.serve(w, r, next)
	})
}

func (m *Middleware) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	route, ok := m.route(r)
	if !ok {
		route = keying.Unmatched
	}
	if m.cfg.Skip != nil && m.cfg.Skip(r) {
		m.answered(route, limiter.AnswerSkipped)
		next.ServeHTTP(w, r)
		return
	}
	who, err := m.who.Request(r)
	if err != nil {
		m.refuse(w, r, route, limiter.Decision{}, err)
		return
	}
	marked, again := m.mark(r, who)
	if again {
		next.ServeHTTP(w, r)
		return
	}
	d, err := m.limiter.Take(r.Context(), limiter.Caller{Principal: who, Route: route}, m.cost(r))
	switch {
	case err == nil && d.Allowed():
		m.answered(route, limiter.AnswerAllow)
	case storeFailed(err) && d.Allowed():
		m.answered(route, limiter.AnswerErrorOpen)
	default:
		m.refuse(w, r, route, d, err)
		return
	}
	next.ServeHTTP(w, marked)
	if marked != r {
		r.Pattern = marked.Pattern // as if the mux had got r itself
	}
}

// storeFailed reports whether the decision is the failure policy's.
func storeFailed(err error) bool {
	_, failed := errors.AsType[*limiter.StoreError](err)
	return failed
}

func (m *Middleware) cost(r *http.Request) int64 {
	if m.cfg.Cost == nil {
		return 1
	}
	return m.cfg.Cost(r)
}

func (m *Middleware) answered(route string, a limiter.Answer) {
	m.limiter.Answered("http", route, a)
}

// refuse answers a request that does not reach its handler.
func (m *Middleware) refuse(
	w http.ResponseWriter, r *http.Request, route string, d limiter.Decision, err error,
) {
	answer, p := m.refusal(r.Context(), d, err)
	m.answered(route, answer)
	p.write(w, r)
}

func (m *Middleware) refusal(
	ctx context.Context, d limiter.Decision, err error,
) (limiter.Answer, problem) {
	switch {
	case storeFailed(err):
		return limiter.AnswerErrorClosed, problem{
			status: http.StatusServiceUnavailable, retryAfter: wholeSeconds(d.RetryAfter),
		}
	case errors.Is(err, limiter.ErrNobody):
		return limiter.AnswerUnauthenticated, nobody(m.who.Challenge())
	case err != nil && ctx.Err() != nil:
		return limiter.AnswerCanceled, problem{status: http.StatusServiceUnavailable}
	case err != nil:
		// The closest outcome: refused, because it could not be decided.
		return limiter.AnswerErrorClosed, problem{status: http.StatusInternalServerError}
	case d.Outcome == limiter.Never:
		return limiter.AnswerNever, exceeded(m.named(d), 0)
	default:
		return limiter.AnswerDeny, exceeded(m.named(d), wholeSeconds(d.RetryAfter))
	}
}

// named returns the name of the budget that decided, where it is the caller's
// own; how much all others use is not for one caller to know.
func (m *Middleware) named(d limiter.Decision) string {
	if b, ok := m.limiter.Budget(d.Budget); ok && b.Scope.Personal() {
		return b.Name
	}
	return ""
}
