// Package middleware limits net/http handlers. A request that cannot pay gets 429
// and the time to wait; a request that can pay reaches its handler.
//
//	who := keying.Authenticated(keying.Refuse(`Bearer realm="api"`))
//	limit, err := middleware.New(l, who, routes.Route, middleware.Config{})
//	...
//	router.Use(authenticate, limit.Handler)
//
// Mount the limiter inside the authentication, which puts the principal into the
// context. A second limiter by address outside the authentication makes failed
// logins cost something, too. Middleware that rewrites paths or adds headers to all
// answers, such as CORS, belongs outside both.
//
// # Answers
//
//	can pay                    the handler's answer
//	cannot pay yet             429 with Retry-After; 503 if Budget.Unavailable is set
//	can never pay              429 without Retry-After: the cost is above the capacity
//	no principal, and Refuse   401 with the challenge; 403 if there is no challenge
//	store failed, Open         the handler's answer
//	store failed, Closed       503 with Retry-After
//	client has disconnected    503
//	any other error            500
//
// Retry-After is in whole seconds, rounded up. Bodies are application/problem+json
// (RFC 9457) unless Config.Denied or Config.Failed writes others; [Deny] writes the
// default answer there. No cache may store a refusal, and a HEAD gets no body.
// Headers that outer handlers have set stay, except those that describe a body or
// let a cache keep it.
//
// # RPC clients
//
// A client of gRPC, gRPC-Web or Connect is refused in its own protocol, over any version
// of HTTP, since it would make another error of a plain 429 and lose the wait:
//
//	application/grpc             200, the status in headers
//	application/grpc-web, -text  200, the status in one frame of trailers
//	application/connect+         200, an end of stream with the error
//	Connect-Protocol-Version: 1  429 or another status of HTTP, the error in JSON
//	GET with connect=v1          the same; encoding and message must be there, too
//
// The status is that of package grpcinterceptor: RESOURCE_EXHAUSTED, or UNAVAILABLE if
// HTTP has 503, with RetryInfo, QuotaFailure and ErrorInfo. grpc-retry-pushback-ms (gRPC
// and gRPC-Web) and Retry-After (all but gRPC) state the same wait. Clients of Connect and
// gRPC-Web do not retry by themselves. Config.Denied and Config.Failed are not called. A
// request that only looks like a call, such as other JSON, gets the answer of HTTP.
//
// Counters of HTTP statuses, such as those of an access log or a proxy, miss the refusals
// that have status 200. Use ration_requests_total, or read grpc-status.
//
// A handler of Connect is mounted once for its service; keying.Procedures makes its
// procedures routes. The entry "/pkg.Service/*" of Budget.Routes means all of them. A
// grpc-gateway that calls its server in process runs no interceptors of gRPC: wrap the
// limiter around the gateway, or use its runtime.WithMiddlewares.
//
// # Handlers that refuse
//
// A handler may charge by itself, such as for the account that a login is for. Then
// [Middleware.Refuse] writes the standard answer, and [Middleware.Answer] returns it for
// handlers that write it elsewhere: into a message of a websocket, an item of a batch, or
// an event of a stream. With Config.Caller, keying.CallerFrom returns the caller to charge
// and limiter.DecisionFrom the decision that has let the request in.
//
// # What callers see
//
// RateLimit and RateLimit-Policy, see [Draft11], describe one account. After a
// refusal it is that of the budget that refused. After an allowed request it is the
// one with the least left relative to its capacity; if several have equally little,
// the one that stays so for longest.
//
// Only accounts that belong to the caller or its tenant are described, and those
// of budgets that are Public. The account that [keying.OrShared] gives to all
// unauthenticated callers is not, nor that of a network of addresses (ByTenant), nor
// an overflow account, which callers share while the store is full: they would show
// what others use. A refusal by one of those has Retry-After alone.
//
// The fields are set before the handler runs, which may remove them. Informational
// answers (1xx) of the handler carry them, too. Browsers show them to pages of
// other origins only if CORS exposes them:
//
//	Access-Control-Expose-Headers: RateLimit, RateLimit-Policy, Retry-After
//
// # What counts
//
// Every request that reaches the limiter costs tokens, whatever its method, path,
// headers or protocol are, if a budget applies to its route. Nothing that a caller
// sends makes it free; only the service can, by Config.Cost and Skip, the limiter's
// Gate, a LimitFor, or by giving the cost back. net/http itself answers
// malformed requests and OPTIONS *, which never reach the limiter.
//
// A CORS preflight is a request, too: it may carry credentials, which an
// authentication inside the limiter checks. Mount CORS middleware outside the
// limiter. It then answers preflights before they cost anything, and pages of
// other origins can read refusals.
//
// A websocket or a stream costs once, when it is opened. Its messages are free, unless the
// handler charges for them.
//
// # Cost known afterwards
//
// The result of Config.Cost is reserved, so that concurrent requests cannot overrun
// a budget. It is corrected once: by the handler, which calls [Settle] if
// Config.Settles is set, or else by Config.ByStatus. A cost that nothing corrects
// stands. Nothing that a caller does gives it tokens back: after a panic, a timeout,
// a disconnect or a hijack, the reserved cost stands.
//
// The service chooses the status. But a rule that gives back errors also gives back
// those that callers cause, by an invalid body or a slow one. Against guessing,
// give back successes only.
//
// Config.ByStatus is called only if the final status is known, and otherwise the
// cost stands. The status is known if the handler wrote it inside the limiter, once,
// by WriteHeader, a body or a flush. It is unknown
//
//   - after a handler that wrote nothing. net/http sends 200 only after all outer
//     handlers have returned. Until then a framework may still write the error that
//     its handler returned. Call WriteHeader(http.StatusOK), or settle the cost.
//   - after a handler that wrote two different statuses, or if the ResponseWriter,
//     such as gin's, has only recorded the status and reports Written() == false.
//   - after a panic, a hijack, a failed write, or the end of the request's context.
//   - if the answer was sent by an optional interface, such as http.Flusher, that the
//     outer ResponseWriter does not have itself and that was reached by unwrapping.
//   - for the answer 200 of an RPC: a content type that begins with
//     application/grpc (gRPC, gRPC-Web) or application/connect+ (Connect's
//     streams). Such an answer states its failure elsewhere. Unary calls of Connect
//     have real statuses.
//
// Other protocols that answer failures with 200, such as GraphQL and JSON-RPC,
// cannot be recognized: use Settle there. If an outer handler replaces a status that
// was written, the limiter does not see it.
//
// The fields that state what is left are sent before the correction, so they count
// the reserved cost.
//
// The ResponseWriter is wrapped only for ByStatus. The wrapper has the optional
// interfaces of the outer ResponseWriter, and http.ResponseController reaches
// all others; http.MaxBytesReader still ends a body that is too long, but cannot make
// net/http close the connection.
//
// # Once per request
//
// One limiter charges each account once for one request, however often the request
// meets it, such as at the root and on a route. A mount further in that costs more
// charges only the difference, and all of it to an account of its own route. Budgets
// that are PerRequest count the request once. A correction replaces the cost in all
// accounts. If a mount further in refuses, those outside have charged the request, and
// ration_requests_total counts it as their "allow" and as the "deny" of the inner one.
//
// Clones of a request that a handler serves at the same time, in several goroutines,
// have in common what the mounts outside have paid. Each pays the rest by itself.
//
// A request that a handler makes up, by http.NewRequest or with another method or
// URL, is another request. The address of a caller outside the authentication and
// its user inside are two principals, so both pay.
//
// # Misuse
//
// Mistakes that New cannot see are logged through the limiter's Logger, at level
// WARN, once for each Middleware and code. no-route, no-principal and
// proxy-unnamed wait for 100 requests.
//
//   - no-route: no request matched a route, though budgets depend on routes, so all
//     requests share one account. Around a mux use keying.Mux(mux), around chi
//     chiroute.New of the outermost router, and move what rewrites paths outside.
//   - no-principal: no request had a principal. Mount the limiter inside the
//     authentication, and let that call keying.WithPrincipal.
//   - principal-invalid: WithPrincipal was called with an empty Kind or ID, or with a
//     reserved Kind; the message says which. The request is refused. Call it only for
//     callers that have both.
//   - certificate-unverified: a client certificate arrived that the TLS handshake had
//     not verified, so it does not identify the caller. Set tls.Config.ClientAuth, or
//     use keying.Who.VerifiedBy if a hook of the service verifies.
//   - proxy-unnamed: most of the first 100 requests by address had the header of a
//     proxy, but none came from a proxy in keying.Addresses.Proxies. All callers of
//     that proxy share its account. Add its network to Proxies; the attribute remote
//     is its address. If Proxies is set already, it lists other networks.
//   - forwarded-missing: a proxy that Proxies or UnixProxy trusts sent no header that
//     states its caller, or one that is not readable. The request then counts by the
//     proxy's own address, or has none. Configure the proxy to append the caller's
//     address to the header in the attribute header. Health checks of the proxy
//     itself cause this line, too, and are then harmless.
//   - no-address: a connection has no IP address, such as one over a unix socket, and
//     neither Addresses.UnixProxy nor Addresses.Unknown is set. The request is
//     refused. Set the one that applies.
//   - route-rewritten: a request was charged on one route and served on another. Move
//     what rewrites paths or methods outside the limiter.
//   - route-unknown: budgets name routes that the router does not have, and limit
//     nothing there. Correct them; [Middleware.Check] finds them at start-up.
//   - h2c-inside: a client asked for HTTP/2 without TLS, and the limiter prevented it.
//     If an inner handler began HTTP/2 on the connection, all its requests would
//     bypass the limiter. So the limiter removes HTTP2-Settings from requests, and
//     answers a connection preface with 505. Move the handler for h2c outside the
//     limiter, or use http.Server.Protocols instead.
//   - cors-inside: a CORS preflight arrived at the limiter, and Skip did not exempt it.
//     Each preflight then costs a token, and if one is refused, the browser fails the
//     request that it is for. Mount the CORS middleware outside the limiter.
//   - status-unknown: a handler returned without writing a status, or wrote two, so
//     ByStatus was not called and the cost stands, also for successes. Write the
//     status inside the limiter, or use Settle. In gin, call c.Writer.WriteHeaderNow;
//     in echo, answer errors inside the middleware.
//   - settle-failed: ByStatus returned a negative cost, or the store failed when the
//     cost was corrected. The reserved cost stands.
//
// # Routes of budgets
//
// A budget on a route that the router does not have would limit nothing. Call
// [Middleware.Check] at start-up, when all routes are registered: its error names
// each such budget, and the nearest route that the router has. [New] checks, too, if
// the router is one of chi that has routes already, so make the middleware before
// the first route or after the last. Without Check, the first request logs
// route-unknown. After either of them, Reload of the limiter refuses such budgets.
//
// # Two limiters in one chain
//
// Budgets that belong together belong in one limiter: it charges all of them or
// none, and states one wait for all. Two limiters in one chain charge one after the
// other. If the inner one refuses, what the outer one took stays spent, so a caller
// that keeps trying pays the outer one for each attempt.
//
// They answer with one set of headers, which both must have in the same form. After
// a refusal the headers describe the budget that refused. Its Retry-After is long
// enough for the outer limiter, too, if that has stated its account as Draft11.
// After an allowed request they describe the budget with fewer tokens left; if both
// have equally few, the one that stays so for longer. The wait that clients of Connect
// and gRPC-Web read is the same as Retry-After. Calls of gRPC carry no state, so they
// are told only the wait of the limiter that refuses.
//
// The outer limiter cannot predict the inner one. A client that reads only
// Retry-After may be refused by one and then by the other. A client that also waits
// for t seconds after r=0 is not, if its requests cost 1 and all budgets are ones
// that it may see.
package middleware
