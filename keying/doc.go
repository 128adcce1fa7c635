// Package keying finds the principal, the workload and the route of a request. They
// name the accounts that the request draws on. A caller can choose none of them, except
// the workload, which only splits the caller's own accounts:
//
//	authenticated principal   WithPrincipal, by the service's authentication
//	client certificate        one that was verified, see Who.OrCertificate
//	network address           of the connection, or as a trusted proxy states it
//	route                     the registered pattern, never the raw path
//	workload                  a label that the caller chooses, hashed into a few slots
//
// No header, cookie or query value is ever a principal. A caller without a principal
// is refused, counted by address, or counted together with all others; the service
// must choose one of these, see [Who]. A label can split a caller's budget but not
// multiply it, see [Workloads].
//
// # How many accounts a caller has
//
// In each budget ByPrincipal, one principal has one account. If the budget is also
// ByRoute, it has one for each registered route, and one for all requests that match
// none. If it is also ByWorkload, it has that many for each listed label, for each
// slot, and for requests without a label.
//
// # Which key
//
// Some services give one caller several accounts by mistake:
//
//   - A principal is its kind, tenant and ID together. A user that the
//     authentication names under two tenants has two accounts, and so twice the
//     budget. Name each principal under one tenant.
//   - A subscriber with an IPv6 /48 owns 65,536 networks of the size /64, and each
//     counts as an address. In addition to a budget ByPrincipal for addresses, have a
//     larger one ByTenant: the tenant of an address is its /48, or /24 for IPv4.
//   - Two patterns are two routes, also if they lead to one handler, such as
//     "/login" and "/login/". In a budget ByRoute, or with two budgets on these
//     routes, a caller can use both. Have one budget with both in Routes that is
//     ByPrincipal alone.
//   - A pattern with a host and one without are two routes in the same way, and
//     http.ServeMux compares hosts by letter case: if there is a pattern for
//     api.example.com, a request for API.EXAMPLE.COM is served by the pattern
//     without a host. If hosts share a budget, make it ByPrincipal alone.
//   - LimitFor should depend on the principal alone. If it depends on something
//     else in the context, such as the plan of the credential that was presented,
//     a caller with two credentials changes the limit of its account with each
//     request, and can get more than either limit allows. Give each plan principals of
//     its own, or each principal one plan.
//
// # What the limiter cannot see
//
// Middleware that rewrites paths or methods belongs outside the limiter. Inside, it
// changes the handler after the route was charged. The limiter logs that once if the
// request itself is changed. It cannot see middleware that passes on a copy of the
// request, such as http.StripPrefix.
//
// Middleware that sets http.Request.RemoteAddr to the value of a header, such as
// RealIP of chi, lets each caller choose its address. Use [Addresses.Proxies]
// instead. A server other than net/http's must set RemoteAddr to the address of the
// connection. On unix sockets it must also set http.LocalAddrContextKey, because
// clients choose the name of their own socket; see [Origin.Network].
//
// Everything here is safe for concurrent use.
package keying
