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
//	can pay                  the handler's own, its ResponseWriter not wrapped but
//	                         for Config.ByStatus, and then able to do the same
//	cannot pay yet           429, Retry-After in whole seconds, rounded up;
//	                         503 for a budget in Config.Unavailable
//	can never pay            429 without Retry-After: the cost is above the capacity
//	nobody, where refused    401 with the stated challenge; 403 where none is stated
//	store failed, Open       the handler's own
//	store failed, Closed     503, Retry-After
//	caller has gone          503, which nobody reads
//	any other error          500
//
// Bodies are application/problem+json (RFC 9457), unless Config.Denied or
// Config.Failed write others, and no cache may store them. A HEAD gets none.
// Headers that were set before the limiter stay, except those that describe a
// body or let a cache keep it.
//
// A gRPC call served by net/http (HTTP/2, POST, application/grpc) is answered in
// its own terms instead: RESOURCE_EXHAUSTED, UNAVAILABLE for 503 and so on, with
// grpc-retry-pushback-ms.
//
// # What callers are told
//
// RateLimit and RateLimit-Policy, see [Draft11], tell of the budget that refused,
// or, on an allowed answer, of the one with the least left relative to its
// capacity; of equals, the one that stays so for longer. They show only accounts
// that are the caller's own, its tenant's, or of a budget in Config.Public. They
// do not show how much others have used: the account that [keying.OrShared] gives
// to all unauthenticated callers, that of a network of addresses (ByTenant), or an
// overflow account, which callers share while the store has no room for more. A
// denial by one of those has Retry-After alone. The fields are set
// before the handler runs, which may remove them, from redirects, say. If it sends
// informational answers (1xx), they also carry the fields. Pages of
// other origins see them only where CORS exposes them:
//
//	Access-Control-Expose-Headers: RateLimit, RateLimit-Policy, Retry-After
//
// # What counts
//
// Every request that reaches the limiter costs tokens, whatever its method, path,
// headers or protocol are. Nothing that a caller writes makes it free; only
// Config.Cost and Config.Skip can. net/http itself answers requests that are
// malformed, and OPTIONS *; they never reach the limiter.
//
// A CORS preflight is a request, too: it may carry credentials, which an
// authentication inside the limiter checks. Mount CORS middleware outside the
// limiter. It then answers preflights before they cost anything, and pages of
// other origins can read refusals.
//
// A websocket costs once, when it is opened, and so does a stream; its messages
// are free.
//
// # Cost known afterwards
//
// What Config.Cost returns is reserved, so that requests at the same time cannot
// overrun a budget, and corrected once: by the handler, which calls [Settle]
// where Config.Settles, or else by Config.ByStatus. What nobody settles stands. No
// caller gets tokens back by what it does: a panic, a timeout, a caller that hangs
// up, a connection that is taken over all keep what was reserved. A status is a
// choice of the service's; a rule that gives back errors gives them back also
// where callers bring them about, by a body that is not valid or too slow, so
// against guessing give back successes only.
//
// Config.ByStatus is asked only if the final status is known, and otherwise the
// cost stands. It is known if the handler wrote it inside the limiter, once, in
// any way: by WriteHeader, by a body, by a flush. It is unknown
//
//   - after a handler that wrote nothing. net/http answers 200 for it, but only
//     after all outer handlers, and frameworks write the errors there that their
//     handlers return. Call WriteHeader(http.StatusOK), or settle the cost.
//   - after a handler that wrote two different statuses, or whose writer, such as
//     gin's, has only noted the status and reports Written() == false.
//   - after a panic, a hijack, a failed write, or the end of the request's context.
//   - for the answer 200 of an RPC: a content type that begins with
//     application/grpc (gRPC, gRPC-Web) or application/connect+ (Connect's
//     streams). Such an answer states its failure elsewhere. Unary calls of Connect
//     have real statuses.
//
// Other protocols that answer failures with 200, such as GraphQL and JSON-RPC,
// cannot be told apart: use Settle there. An outer handler that replaces a status
// that was written is not seen.
//
// The fields that tell callers what is left are sent before, and reckon with what
// was reserved.
//
// Only for ByStatus is the ResponseWriter wrapped. It has the optional interfaces
// that it had, and http.ResponseController reaches all else; http.MaxBytesReader
// still ends a body that is too long, but cannot tell net/http to hang up.
//
// # Once per request
//
// A limiter that a request meets several times, at the root and on a route, say,
// charges one caller once; the other times it lets it pass, whatever route and
// cost the other mount would have found. A request that a handler makes up, by
// http.NewRequest or with another method or URL, is another request, and a caller
// by address before the authentication is another than the user after it.
//
// # Misuse
//
// What construction cannot know is logged, through the limiter's Logger, once for
// each Middleware and code:
//
//	no-route         no request so far matched a route, though budgets go by route
//	no-principal     no request so far had a principal: wrong order?
//	proxy-unnamed    all requests so far came through a proxy: see Addresses.Proxies
//	principal-invalid
//	                 WithPrincipal was called with an empty Kind or ID, or with a
//	                 reserved Kind; the request is refused
//	certificate-unverified
//	                 a client certificate arrived and was not verified: see
//	                 keying.Who.VerifiedBy
//	no-address       a unix socket, without Addresses.UnixProxy and Unknown
//	route-rewritten  a request was charged on one route and served on another
//	route-unknown    a budget names a route that the router does not have
//	h2c-inside       HTTP/2 without TLS was asked for, and not begun
//	cors-inside      a CORS preflight was charged or refused
//	status-unknown   ByStatus was not asked, since a handler wrote no status
//	settle-failed    ByStatus returned a negative cost, or the store failed then
//
// The first three wait for 100 requests.
//
// h2c-inside is more than a warning. If an inner handler began HTTP/2 on the
// connection, all its requests would bypass the limiter. So the limiter removes
// HTTP2-Settings from requests, and answers a connection preface with 505.
//
// cors-inside: a preflight arrived at the limiter and Skip did not exempt it. Each
// preflight then costs a token, and one that is refused makes the browser fail the
// request that it is for. Mount the CORS middleware outside the limiter.
//
// status-unknown: a handler returned without writing a status, or wrote two, so
// the cost stands also for successes. Write the status inside the limiter, or use
// Settle. In gin, call c.Writer.WriteHeaderNow; in echo, answer errors inside the
// middleware.
//
// # Routes of budgets
//
// A budget on a route that the router does not have would limit nothing. Call
// [Middleware.Check] at start-up, when all routes are registered: its error names
// the budget, and the nearest route that the router has. [New] checks, too, if the
// router is one of chi that has routes already, so make the middleware before the
// first route or after the last. Without Check, the first request logs
// route-unknown. Reload of the limiter refuses such budgets after either of them.
//
// # Two limiters in one chain
//
// Budgets that belong together belong into one limiter: it charges all or none,
// and states one wait for all. Two limiters in one chain both charge, one after
// the other: what the outer one took is spent when the inner one refuses, so a
// caller who keeps trying pays the outer one for each try. They answer with one
// set of headers, which both must have in the same form. A refusal tells of the
// budget that refused, and its Retry-After is long enough for the outer limiter,
// too, where that has told so in the form Draft11. An allowed answer tells of the
// budget with fewer tokens left; of equals, the one that stays so for longer.
//
// The outer limiter cannot know what the inner one would have said. A client that
// reads Retry-After only may be refused by one and then by the other; one that
// also waits after r=0 for t is not, where its requests cost 1 and it is told of
// all budgets.
package middleware
