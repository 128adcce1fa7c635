// Package limiter decides how much of a service each caller may use.
//
// A [Limit] says how many tokens come back in which time. A [Budget] is a named
// limit and its scope: whose account a request draws on. A [Limiter] decides a
// request by all budgets that apply, in one step: it debits every one of them, or
// none. The [Decision] is to allow, to deny with the exact wait, or never, for a
// cost that no account can hold.
//
//	store, err := memstore.New(memstore.Config{})
//	...
//	l, err := limiter.New(store, []limiter.Budget{{
//		Name:  "orders",
//		Scope: limiter.ByPrincipal | limiter.ByRoute,
//		Limit: limiter.PerMinute(100),
//	}}, limiter.Config{})
//	...
//	d, err := l.Take(ctx, limiter.Caller{
//		Principal: limiter.Principal{Kind: "user", ID: "alice"},
//		Route:     "GET /orders/{id}",
//	}, 1)
//
// # Words
//
//	principal    the authenticated caller
//	budget       a named limit and its scope
//	key          the budget and the parts of a request in its scope
//	account      the state behind one key: a bucket, a window or a log
//	cost         the tokens that one request needs, 1 unless said otherwise
//	charge       what one request takes from one account
//	decision     allow, deny or never
//	reservation  the charges of a request, to be corrected when the real cost is known
//	receipt      what a store writes into a charge, so that it can be corrected
//	store        where accounts live
//
// # Services
//
// Services call [New], [Limiter.Take], [Limiter.Peek], [Limiter.Reserve],
// [Limiter.Reset] and [Limiter.Reload], or use packages middleware and
// grpcinterceptor, which call the limiter for them. A handler says what its request
// really cost with [Settle], and finds what was decided with [DecisionFrom].
// [Limiter.Explain] says what would become of a request, and why. A [Bucket] is one
// account on its own, for outbound calls and jobs.
//
// # Adapters
//
// An adapter connects a limiter to a transport: it finds out who calls and on which
// route, and answers in the protocol of the caller. It needs [Limiter.Adapter],
// whose type [Adapter] has five methods, and fills in one [Request] for each request.
//
// # Stores
//
// A store keeps accounts and promises the numbered rules of [Store]. Packages
// memstore and redisstore have one each; package storekit makes one from two
// methods that lock, load and write bytes; package storetest tests the promise.
// [Key], [Charge], [Result], [Receipt] and [Capabilities] are for authors of stores.
//
// # Observers
//
// An [Observer] is a struct of functions that receive each decision with its caller
// and charges, each answered request and each answer of a store. Package metrics
// has one for Prometheus, package denylog one that logs who was refused, and package
// topcallers one that ranks callers; [Observer.And] joins two.
//
// # Accuracy
//
// All arithmetic is on integers and equal to rational arithmetic: a request that
// is denied with a wait is denied one nanosecond before the wait ends and allowed
// when it ends, unless others use the account meanwhile (in Redis: one microsecond,
// and package redisstore says what a clock step does). A clock that goes back
// neither drains nor credits.
//
// # Failure
//
// A refusal changes no balance. If a store cannot decide, the strictest
// [FailurePolicy] of the budgets that apply answers, and the error is a
// *[StoreError], which names the policy. [Local] needs a store made by package
// resilient. Only the service gives tokens back, by [Settle],
// [Reservation.Settle], [Reservation.Cancel] and [Limiter.Reset]; nothing that a
// caller does gives any back.
//
// # Warnings
//
// Misuse that construction cannot know of is logged at level WARN with a "code":
//
//   - budget-shared: two limiters in use on one store have a budget of the same name
//     with different limits or scopes, so both use the same accounts. Rename one of
//     them, or give both the same limit and scope. Logged once for each pair.
//   - deadline-first: the deadline of a caller's context ended, or was about to, before
//     the store could answer. Such a request is refused as cancelled, and OnError does
//     not answer for it. If all callers have less time than the store's timeout,
//     OnError never answers at all. Logged once.
//   - limit-for-invalid: LimitFor returned a limit that is not valid, or that the
//     store cannot hold exactly. Budget.Limit applies. Logged once for each budget.
//   - scope-changed: a Reload changed the Scope of a budget. Name and scope make the
//     keys of its accounts, so everybody starts with a full account. To let the old
//     accounts hold until then, add a budget of another name first, and remove the
//     old one when the new one has been in use for a while.
//   - store-failed: the store did not decide, and OnError did. Logged when that begins,
//     and once a minute while it lasts, with the number of failures since it began.
//   - store-recovered: the store decides again, and has not failed for a second; with the
//     number of failures, the time from the first to the last, and how many requests
//     each policy has answered. Logged at level INFO.
//
// # Stability
//
// Before version 1 names may change between minor versions; the changelog says
// which. Everything here is safe for concurrent use unless it says otherwise.
package limiter
