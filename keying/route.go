package keying

import (
	"context"
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

// Registered reports whether the router has the route, or whether that is not
// known: finders of a caller's own, and [Pattern], do not know.
//
// It asks by a request of which [Asked] tells. A finder that knows answers with
// the very pattern, and ok if it is registered.
func (route Route) Registered(pattern string) (registered, known bool) {
	defer func() {
		if recover() != nil { // a finder that takes more of a request for granted
			registered, known = false, false
		}
	}()
	r := &http.Request{Method: asking, URL: &url.URL{Path: "/"}, Header: http.Header{},
		Pattern: pattern}
	answer, ok := route(r.WithContext(context.WithValue(context.Background(), askedKey{}, pattern)))
	return ok, answer == pattern
}

// asking is the method of a request that asks. Servers let no caller send it, but
// what overrides methods may.
const asking = "?"

type askedKey struct{}

// Asked is for finders: it returns the pattern about which [Route.Registered]
// asks, and whether the request is such a question and not one of a caller.
func Asked(r *http.Request) (pattern string, ok bool) {
	if r.Method != asking {
		return "", false
	}
	pattern, ok = r.Context().Value(askedKey{}).(string)
	return pattern, ok
}

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
// and one allocation a request, beside the mux's own. It panics for a nil mux.
func Mux(mux *http.ServeMux) Route {
	if mux == nil {
		panic("keying: Mux of a nil mux")
	}
	return func(r *http.Request) (string, bool) {
		if pattern, ok := Asked(r); ok {
			return pattern, registered(mux, pattern)
		}
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

// registered reports whether the mux has the pattern: a request that is made
// from it is then routed to it. A pattern for HEAD alone is GET's to callers.
func registered(mux *http.ServeMux, pattern string) bool {
	method, rest, found := strings.Cut(pattern, " ")
	if !found {
		method, rest = "RATION", pattern // which no other pattern is for
	}
	host, path, _ := strings.Cut(rest, "/")
	target, err := url.ParseRequestURI("/" + sample(path))
	if err != nil {
		return false
	}
	r := &http.Request{Method: method, Host: host, URL: target}
	_, got := mux.Handler(r)
	if got != pattern && method == http.MethodGet {
		r.Method = http.MethodHead
		_, got = mux.Handler(r)
	}
	return pattern != "" && forGet(got) == pattern
}

// sample returns a path that the pattern matches and no other one that is more
// specific: what a wildcard stands for is spelt out nowhere, and a rest is longer
// than any pattern.
func sample(path string) string {
	const other = "ration-any"
	segments := strings.Split(path, "/")
	last := len(segments) - 1
	for i, s := range segments {
		switch {
		case s == "{$}":
			segments[i] = ""
		case i == last && (s == "" || strings.HasSuffix(s, "...}")):
			segments[i] = other + strings.Repeat("/"+other, 63)
		case strings.HasPrefix(s, "{"):
			segments[i] = other
		}
	}
	return strings.Join(segments, "/")
}

// forGet makes HEAD share GET's route where it has a pattern of its own.
func forGet(pattern string) string {
	if rest, ok := strings.CutPrefix(pattern, http.MethodHead+" "); ok {
		return http.MethodGet + " " + rest
	}
	return pattern
}
