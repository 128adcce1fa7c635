// Package keying finds out who calls and where the call goes: the principal, the
// workload and the route of a request. Together they name the accounts that it
// draws on, so the one rule is that a caller can choose none of them.
//
//	authenticated principal   WithPrincipal, by the service's authentication
//	client certificate        one that was verified, see Who.OrCertificate
//	network address           of the connection, or a trusted proxy's word
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
// label.
//
// # Which key
//
// Some services give one caller several accounts without meaning to:
//
//   - A principal is its kind, tenant and ID together. A user whom the
//     authentication names under two tenants has two accounts, and so twice the
//     budget. Name each principal under one tenant.
//   - A subscriber with an IPv6 /48 owns 65,536 networks of the size /64, each an
//     address of its own. Beside a budget ByPrincipal for addresses, have a larger
//     one ByTenant: the tenant of an address is its /48, or /24 for IPv4.
//   - Two patterns are two routes, also if they lead to one handler, such as
//     "/login" and "/login/". In a budget ByRoute, or with two budgets on these
//     routes, a caller can use both. Have one budget with both in Routes that is
//     ByPrincipal alone.
//   - A pattern with a host and one without are two routes in the same way, and
//     http.ServeMux compares hosts as they are spelt: beside a pattern for
//     api.example.com, a request for API.EXAMPLE.COM is served by the pattern
//     without a host. If hosts share a budget, make it ByPrincipal alone.
//   - LimitFor should depend on the principal alone. If it answers by something
//     else in the context, such as the plan of the credential that was presented,
//     a caller with two credentials changes the limit of its account with each
//     request, and can get more than either limit allows. Give each plan principals of
//     its own, or the principal one plan.
//
// # What the limiter cannot see
//
// What rewrites paths or methods belongs outside the limiter. Inside, it changes
// the handler after the route was charged. The limiter logs that, once, if the
// request itself is changed; it cannot see a rewriter that passes on a copy, such
// as http.StripPrefix.
//
// What overwrites http.Request.RemoteAddr by a header's value, such as RealIP of
// chi, lets each caller choose its address. Use [Addresses.Proxies] instead. A
// server other than net/http's has to set RemoteAddr to the address of the
// connection, and http.LocalAddrContextKey in the context if it serves on unix
// sockets, whose names clients choose; see [Origin.Network].
//
// Everything here is safe for concurrent use.
package keying
