package keying

import (
	"net/http"
	"net/url"
	"strings"
)

// Unmatched is the one route of all requests that match none.
const Unmatched = "unmatched"

// Route finds the registered pattern of a request, before its handler runs; ok
// is false where the request matches no route. The raw path is never a route:
// callers choose it. Implementations are [Pattern], [Mux] and package chiroute.
type Route func(r *http.Request) (pattern string, ok bool)

// Pattern is the route that http.ServeMux noted in the request, such as
// "GET /orders/{id}": for a limiter around single handlers of a mux. Around the
// mux itself no request has a pattern yet; use [Mux] there. Where muxes are
// nested it is the innermost one's, so that equal patterns of two of them are one
// route. It does not allocate, but for a pattern registered for HEAD.
func Pattern(r *http.Request) (pattern string, ok bool) {
	return forGet(r.Pattern), r.Pattern != ""
}

// Mux returns the route that mux will take, for a limiter around the mux. A
// redirect to a cleaner path counts on the route that it leads to. One look-up
// and one allocation a request, beside the mux's own.
func Mux(mux *http.ServeMux) Route {
	return func(r *http.Request) (string, bool) {
		_, pattern := mux.Handler(r)
		if r.Method == http.MethodConnect && strings.HasSuffix(pattern, "/") {
			pattern = connect(mux, r, pattern)
		}
		return forGet(pattern), pattern != ""
	}
}

// connect returns the pattern for CONNECT. Where the mux redirects it to path,
// it names the path, which is the caller's choice, and not the pattern.
func connect(mux *http.ServeMux, r *http.Request, path string) string {
	if !strings.HasPrefix(path, "/") {
		return path // begins with a method or a host
	}
	_, pattern := mux.Handler(&http.Request{
		Method: r.Method, Host: r.Host, URL: &url.URL{Host: r.URL.Host, Path: path},
	})
	return pattern
}

// forGet makes HEAD share GET's route where it has a pattern of its own.
func forGet(pattern string) string {
	if rest, ok := strings.CutPrefix(pattern, http.MethodHead+" "); ok {
		return http.MethodGet + " " + rest
	}
	return pattern
}
