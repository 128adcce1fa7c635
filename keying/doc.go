// Package keying finds out who calls and where the call goes: the principal, the
// workload and the route of a request. Together they name the accounts that it
// draws on, so the one rule is that a caller can choose none of them.
//
//	authenticated principal   WithPrincipal, by the service's authentication
//	client certificate        one that the TLS handshake has verified
//	network address           RemoteAddr, or a trusted proxy's word
//	route                     the registered pattern, never the raw path
//	workload                  a label of the caller's own, folded into few
//
// No header, cookie or query value is ever a principal. A caller who is nobody
// is refused, counted by address or counted with all the others: which of these
// is a required choice, see [Who]. A label can split a caller's budget and never
// multiply it, see [Workloads].
//
// # What a caller can reach
//
// One principal owns, in each budget, one account; ByRoute, one for each route
// that is registered, and one for all requests that match none; ByWorkload, that
// many for each label that is listed, for each slot, and for requests without a
// label. Two things are up to the router, not to the limiter:
//
//   - http.ServeMux compares hosts as they are spelt. Beside a pattern for
//     api.example.com, a pattern without a host serves API.EXAMPLE.COM, and so it
//     is charged for it. Where both lead to one handler, its routes are two: bound
//     them by a budget ByPrincipal, or spell hosts alike outside the limiter.
//   - What rewrites paths or methods belongs outside the limiter. Further in it
//     changes the handler after the route was charged. The limiter sees that, and
//     says so once, where the request itself is changed; a rewriter that passes
//     on a copy, as http.StripPrefix does, it cannot see. A budget ByPrincipal
//     holds all the same.
//
// Everything here is safe for concurrent use.
package keying
