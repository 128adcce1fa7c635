// Package grpcinterceptor limits the calls of a gRPC server. A call that cannot
// pay is refused before its handler runs, in the way that gRPC clients
// understand: RESOURCE_EXHAUSTED, the exact wait as a detail, and pushback that
// a client with a retry policy obeys by itself.
//
//	i, err := grpcinterceptor.New(l, keying.Authenticated(keying.Refuse("Bearer")),
//		grpcinterceptor.Config{})
//	...
//	grpc.NewServer(
//		grpc.ChainUnaryInterceptor(authenticate, i.Unary),
//		grpc.ChainStreamInterceptor(authenticateStream, i.Stream))
//
// # Routes
//
// The route of a call is its full method, "/pkg.Service/Method"; that is what
// Budget.Routes lists. A budget on a method that the server does not have limits
// nothing: [Interceptor.Check] finds it once all services are registered, and
// [Interceptor.Routes] lists the routes for metrics.
//
// Methods that the server does not know never reach an interceptor: grpc-go
// answers UNIMPLEMENTED itself, so a flood of them is neither limited nor
// counted here; a [Tap] holds it back. With grpc.UnknownServiceHandler they do
// arrive, under whatever name the caller made up; they all share the route
// [keying.Unmatched], but for those that [Config.Methods] lists. A service
// registered with a nil implementation cannot be told from an unknown one and
// counts as such.
//
// # Calls that never send a message
//
// An interceptor of unary calls runs once the request message has come. A caller
// that opens calls and sends nothing holds a stream and a goroutine of the server
// for each, and no interceptor charges or sees them. Two bounds are needed:
// grpc.MaxConcurrentStreams, which is unlimited by default, for the calls of one
// connection, and a [Tap] with a budget on all methods, which charges a call when
// its headers arrive. Calls of [Health] pass the tap free, so for these only the
// first holds, and a bound on connections outside this package, as in a proxy:
//
//	server := grpc.NewServer(
//		grpc.MaxConcurrentStreams(100),
//		grpc.InTapHandle(guard.Handle), ...)
//
// # Streams
//
// A stream is charged once, when it opens, and its messages are free. With
// [Config.Messages] it costs what unary calls with the messages that it receives
// would: each is charged once it was received, to the caller who opened the
// stream. The open costs 1, which pays 1 of the first message; one that costs more
// is charged the rest, once it was received. Nothing gives the open back: a first
// message that is refused has let the handler run, and costs the 1. The end of the
// stream is free. Each charge is a request of its own to metrics; to budgets
// PerRequest the open and the first message are one.
//
// A message that cannot pay ends the stream with the status below, also where
// messages were sent already and whatever the handler returns; the handler finds
// it as the error of RecvMsg and as the cause of its context. RetryInfo says when
// a new stream can begin with that message, its whole cost at once; a whole cost
// above the capacity can never pay, though the open has paid 1 of it. The pushback
// is -1 but for a first message: a client's own retry would send, and pay for, all
// of them again.
//
// # Cost known afterwards
//
// What [Config.Cost] answers is reserved, so that calls at the same time cannot
// overrun a budget, and corrected once: by the handler, which calls [Settle] where
// [Config.Settles], or else by [Config.ByCode]. What nobody settles stands. No
// caller gets tokens back by what it does: a panic, a deadline, a caller that
// leaves all keep what was reserved. A rule that gives back errors gives them back
// also where callers bring them about, by an argument that is not valid, so
// against guessing give back OK only. What could not be booked by the rule is
// logged, once, under the code settle-failed.
//
// # Callers
//
// Whom the authentication named comes first, then, if keying.Who.OrCertificate
// says so, the client certificate that was verified, then the address. A
// connection that is neither TCP nor UDP, such as a unix socket, has no address:
// keying.Addresses.UnixProxy and Unknown decide. Handlers that charge by
// themselves, for items of a batch, find the caller with keying.CallerFrom. An
// authenticated caller costs one allocation.
//
// # Misuse
//
// What construction cannot know is logged, through the limiter's Logger, once for
// each Interceptor or Tap and code:
//
//	no-principal            none of the first 100 calls had a principal
//	principal-invalid       WithPrincipal was called with an empty Kind or ID, or
//	                        with a reserved Kind; the call is refused
//	certificate-unverified  a client certificate arrived and was not verified
//	no-address              a unix socket, without UnixProxy and Unknown
//	tap-unlearned           calls arrive at a tap before Learn
//	settle-failed           ByCode returned a negative cost, or the store failed
//
// # What a refused client sees
//
//	cannot pay yet           RESOURCE_EXHAUSTED  RetryInfo, QuotaFailure, ErrorInfo
//	can never pay            RESOURCE_EXHAUSTED  QuotaFailure, ErrorInfo
//	nobody                   UNAUTHENTICATED
//	has gone, or is too late CANCELED, DEADLINE_EXCEEDED
//	the store failed, closed UNAVAILABLE         RetryInfo
//	a cost below zero        INTERNAL
//
// With RESOURCE_EXHAUSTED and UNAVAILABLE goes the trailer
// grpc-retry-pushback-ms, once: the wait in milliseconds, rounded up, or -1, do
// not retry, where the wait reaches the call's deadline, passes
// [Config.MaxPushback] or never ends. Without the -1 a client would sleep its
// deadline away and lose the answer.
//
// Clients retry only what their service config lists, and only while the server
// has sent no header frame: an interceptor outside this one that calls
// grpc.SetHeader turns the retries off. A server behind
// (*grpc.Server).ServeHTTP always sends that frame: its clients see the status
// and the details but do not retry.
//
// # Order
//
// Authentication goes outside a limiter that counts principals; a second limiter
// by address may go outside the authentication. The two are not atomic
// together: what the outer one took stays taken where the inner one refuses.
// One that refuses is the only one to set the trailer. One limiter in a chain
// twice charges and counts a call once, unless the caller has become another in
// between, as by the authentication: both pay then, and each is counted. Package
// middleware around (*grpc.Server).ServeHTTP is another adapter, to which a call
// has another route: one limiter in both charges a call twice.
//
// Everything here is safe for concurrent use.
package grpcinterceptor
