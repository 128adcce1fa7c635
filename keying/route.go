package keying

import "net/http"

// Unmatched is the one route of all requests that match none.
const Unmatched = "unmatched"

// Route finds the registered pattern of a request, before its handler runs; ok
// is false where the request matches no route. The raw path is never a route:
// callers choose it. Implementations are [Pattern], [Mux] and package chiroute.
type Route func(r *http.Request) (pattern string, ok bool)

// Pattern is the route that http.ServeMux noted in the request, such as
// "GET /orders/{id}": for a limiter around single handlers of a mux. Around the
// mux itself no request has a pattern yet; use [Mux] there.
func Pattern(r *http.Request) (pattern string, ok bool) {
	return r.Pattern, r.Pattern != ""
}

// Mux returns the route that mux will take, for a limiter around the mux. One
// look-up and one allocation a request, beside the mux's own.
func Mux(mux *http.ServeMux) Route {
	return func(r *http.Request) (string, bool) {
		_, pattern := mux.Handler(r)
		return pattern, pattern != ""
	}
}
