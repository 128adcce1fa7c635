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
// # Who uses what
//
// Services use [New], [Limiter.Take], [Limiter.Reserve] and [Limiter.Reload], or
// the packages middleware and grpcinterceptor, which call them. A [Bucket] is one
// account on its own, for outbound calls and jobs. Adapters use what is said to be
// for adapters; authors of stores use [Store], [Charge], [Receipt], the Check
// functions and package storetest.
//
// # Accuracy
//
// All arithmetic is on integers and equal to rational arithmetic: what is denied
// with a wait is denied one nanosecond before it ends and allowed when it ends,
// unless others use the account meanwhile. A clock that goes back neither drains
// nor credits.
//
// # Failure
//
// A refusal changes no balance. A store that cannot decide is answered by the
// strictest [FailurePolicy] of the budgets that apply, and says so in a
// *[StoreError]. Only the service gives tokens back, by [Reservation.Settle] and
// [Reservation.Cancel]; what a caller does never does.
//
// # Stability
//
// Before version 1 names may change between minor versions; the changelog says
// which. Everything here is safe for concurrent use unless it says otherwise.
package limiter
