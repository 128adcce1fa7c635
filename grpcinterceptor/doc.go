// Package grpcinterceptor limits the calls of a gRPC server. A call that exceeds a budget
// is refused before its handler runs: with RESOURCE_EXHAUSTED, the exact wait as a detail,
// and pushback, which makes clients with a retry policy wait and retry automatically.
//
//	i, err := grpcinterceptor.New(l, keying.Authenticated(keying.Refuse("Bearer")),
//		grpcinterceptor.Config{})
//	...
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(authenticate, i.Unary),
//		grpc.ChainStreamInterceptor(authenticateStream, i.Stream))
//	orders.RegisterOrdersServer(server, service)
//	err = i.Check(server)
//
// # Routes
//
// The route of a call is its full method, "/pkg.Service/Method". Budget.Routes lists full
// methods, or "/pkg.Service/*" for all methods of a service. A budget on a method that the
// server does not have limits nothing, so call [Interceptor.Check] once all services are
// registered: it reports such budgets.
//
// Interceptors never see calls of methods that the server does not have. grpc-go answers
// UNIMPLEMENTED itself, so a flood of them is neither limited nor counted; a [Tap] limits
// it. With a grpc.UnknownServiceHandler they do arrive, under any name that the caller
// invents. They share the route [keying.Unmatched], except for those in [Config.Methods].
// So do streams of a service that is registered with a nil implementation, until Check.
//
// # Calls that never send a message
//
// gRPC calls a unary interceptor after the request message has arrived. A caller that
// opens calls and sends nothing holds a stream and a goroutine of the server for each,
// and no interceptor sees them. Two bounds are needed. grpc.MaxConcurrentStreams, which
// is unlimited by default, bounds the calls of one connection. A [Tap] with a budget on
// all methods charges each call when its headers arrive. Calls of [Health] pass the tap
// for free, so for these also bound the number of connections, such as in a proxy.
//
//	server := grpc.NewServer(
//		grpc.MaxConcurrentStreams(100),
//		grpc.InTapHandle(guard.Handle), ...)
//
// # Streams
//
// A stream is charged once, when it opens, and its messages are free. With
// [Config.Messages], each received message is charged too, to the caller who opened the
// stream, and the stream costs as much as unary calls with its messages would. Opening
// the stream costs 1, which pays 1 of the first message; the rest of the first message is
// charged when it arrives. The 1 is not given back if the first message is refused,
// because the handler has run. The end of the stream is free. Metrics count each charge
// as a request. Budgets PerRequest count the open and the first message as one.
//
// A refused message ends the stream with the status below, even if messages were sent
// already, and whatever the handler returns. The handler finds the status as the error of
// RecvMsg and as the cause of its context. RetryInfo says when a new stream can begin with
// that message. The pushback is -1 except for a first message, because a retry by the
// client would send, and pay for, all messages again.
//
// With [Config.SentCost], each message that the handler sends is charged before it is sent,
// besides the open. A handler whose cost depends on more than the message, such as the
// tokens of a language model, calls [Charge]. A stream that cannot pay ends in the same
// way, with pushback -1.
//
// # Cost known afterwards
//
// The cost that [Config.Cost] returns is reserved, so that concurrent calls cannot exceed
// a budget, and corrected once: by the handler, if [Config.Settles] is set and it calls
// [Settle], or else by [Config.ByCode]. If neither corrects it, the reserved cost stands.
// Callers cannot get tokens back: the reserved cost stands after a panic, a deadline, or a
// caller that disconnects. If ByCode gives errors back, callers can cause errors, such as
// by an invalid argument; to limit guessing, give back OK only.
//
// # Callers
//
// The principal that the authentication has set comes first. Then comes the verified
// client certificate, if keying.Who.OrCertificate allows it, then the address. A
// connection that is neither TCP nor UDP, such as a unix socket, has no address:
// keying.Addresses.UnixProxy and Unknown decide. Handlers find the caller with
// keying.CallerFrom, for example to charge each item of a batch. An authenticated caller
// costs one allocation.
//
// # Warnings
//
// Misuse that construction cannot know of is logged through the limiter's Logger, at level
// WARN with a "code". Each Interceptor and each Tap logs each code once:
//
//   - certificate-unverified: a client certificate arrived that the TLS handshake had not
//     verified, so it identifies nobody. Set tls.Config.ClientAuth to
//     VerifyClientCertIfGiven or RequireAndVerifyClientCert; if a hook verifies, use
//     keying.Who.VerifiedBy.
//   - no-address: callers over a unix socket, or another network without IP addresses,
//     have no address and are refused. If a proxy connects over the socket, set
//     keying.Addresses.UnixProxy; otherwise set Unknown.
//   - no-principal: none of the first 100 calls had a principal. Put the authentication in
//     front of the limiter in both chains, and call keying.WithPrincipal in it.
//   - principal-invalid: the authentication called keying.WithPrincipal with an empty Kind
//     or ID, or with a reserved Kind, and the call was refused. Call it only for callers
//     that have both.
//   - route-unknown: calls arrived before [Interceptor.Check] although budgets name methods
//     in their Routes, so nothing has verified that the server has these methods. A budget
//     on a misspelt method limits nothing. Call Check once all services are registered; it
//     returns an error that has the right spelling.
//   - settle-failed: ByCode returned a negative cost, or the store failed when the cost was
//     corrected. The reserved cost stands.
//   - tap-unlearned: calls arrived before [Tap.Learn], so nearly all methods count as
//     unmatched, and budgets that depend on routes do not limit the methods that they are
//     for. Call Learn once all services are registered.
//
// # What a refused client sees
//
//	                            code                reason in ErrorInfo       other details
//	a budget is used up         RESOURCE_EXHAUSTED  RATE_LIMIT_EXCEEDED       RetryInfo, QuotaFailure
//	one with Unavailable set is UNAVAILABLE         RATE_LIMIT_EXCEEDED       RetryInfo, QuotaFailure
//	the cost exceeds a capacity RESOURCE_EXHAUSTED  COST_ABOVE_LIMIT          QuotaFailure
//	blocked                     RESOURCE_EXHAUSTED  CALLER_BLOCKED            QuotaFailure
//	blocked, with an end        RESOURCE_EXHAUSTED  CALLER_SUSPENDED          RetryInfo, QuotaFailure
//	unauthenticated             UNAUTHENTICATED     PRINCIPAL_REQUIRED
//	the store failed, Closed    UNAVAILABLE         RATE_LIMITER_UNAVAILABLE  RetryInfo
//	a negative cost             INTERNAL            RATE_LIMITER_ERROR
//	disconnected, or too late   CANCELED, DEADLINE_EXCEEDED
//
// gRPC itself answers RESOURCE_EXHAUSTED to a message that is too large; that status has
// no details, and no retry can succeed.
//
// RESOURCE_EXHAUSTED and UNAVAILABLE come with the trailer grpc-retry-pushback-ms: the
// wait in milliseconds, rounded up. It is -1, do not retry, if the wait reaches the
// deadline of the call, exceeds [Config.MaxPushback] or never ends. Without the -1, a
// client would wait until its deadline and lose the answer.
//
// [Config.Jitter] adds one random time to the wait in RetryInfo, pushback and the optional
// trailer retry-after. A handler that charges by itself refuses in the same words with
// [Interceptor.Refuse], and items of a batch with [Interceptor.Status].
// limiter.DecisionFrom returns the decision that has let the call in.
//
// The details name a budget only if it is ByPrincipal, ByTenant or Public.
//
// Clients retry only if their service config lists the code, and only if the server has
// not sent a header frame: an outer interceptor that calls grpc.SetHeader prevents
// retries. Behind (*grpc.Server).ServeHTTP that frame is always sent, so clients see the
// status and the details but do not retry.
//
// Clients that hedge send several attempts at once, and each is charged. Under a tight
// budget, list the method for retries instead, or allow for the attempts in the limit.
//
// # Proxies
//
// grpc-gateway answers HTTP 429 to RESOURCE_EXHAUSTED. Registered in process, it calls the
// server without interceptors, so limit it by package middleware. Envoy retries
// RESOURCE_EXHAUSTED if its retry_on lists it, and backs off by the trailer retry-after if
// rate_limited_retry_back_off names that; set [Config.RetryAfter]. Refusals are HTTP 200:
// access logs and counters of HTTP statuses miss them.
//
// # Order
//
// Outermost first: tracing and logging, which then see refusals; recovery; authentication;
// the limiter. A [Tap] comes before all of them. Recovery inside the limiter would turn a
// panic into a status, and if ByCode gives that code back, a caller that finds a panic
// calls for free.
//
// Authentication goes outside a limiter that counts principals. A second limiter by
// address may go outside the authentication. Two limiters are not atomic together: if the
// inner one refuses, the outer one has charged the call. Only the one that refuses sets
// the trailer.
//
// A call may meet one limiter several times: at a Tap, at package middleware around
// (*grpc.Server).ServeHTTP, at two interceptors, or twice at the same one. Each account
// is then charged once: a later meeting charges only what it costs more, and all of it
// to an account of its own route. [Settle] and ByCode correct the whole cost. A call
// that a handler makes up with its own context, without a connection, is the same
// call. Messages are charged
// by the outermost interceptor that has Messages set. A caller by address before the
// authentication and the user after it are two principals, and both are charged.
//
// Everything here is safe for concurrent use.
package grpcinterceptor
