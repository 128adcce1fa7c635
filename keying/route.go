package keying

import (
	"context"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/ration-go/ration/internal/routes"
)

// Unmatched is the one route of all requests that match none.
const Unmatched = "unmatched"

// Route finds the registered pattern of a request before its handler runs. ok is
// false if the request matches no route. The raw path is never a route, because
// callers choose it. Implementations are [Pattern], [Mux] and package chiroute.
type Route func(r *http.Request) (pattern string, ok bool)

// Registered reports whether the router has the route. If it does not, nearest
// are the routes that may have been meant, or the one that serves such requests;
// nil if there are none. known is false if the finder does not know the router's
// routes, as with [Pattern] and most finders that a service writes.
//
// It calls the finder with a synthetic request; see [Probed].
func (route Route) Registered(pattern string) (registered, known bool, nearest []string) {
	p := &probe{pattern: pattern}
	answer, ok := route.ask(p)
	if ok || answer != pattern {
		return ok, answer == pattern, nil
	}
	return false, true, p.nearest
}

// List returns the router's routes; nil if the finder cannot list them, or there
// are none yet. [Mux] cannot: a mux says only whether it has a given pattern.
func (route Route) List() []string {
	p := &probe{pattern: Unmatched}
	if answer, ok := route.ask(p); ok || answer != p.pattern {
		return nil
	}
	return p.listed
}

func (route Route) ask(p *probe) (answer string, ok bool) {
	defer func() {
		if recover() != nil { // a finder that relies on more of a request
			answer, ok = "", false
		}
	}()
	r := &http.Request{Method: probing, URL: &url.URL{Path: "/"}, Header: http.Header{},
		Pattern: p.pattern}
	return route(r.WithContext(context.WithValue(context.Background(), probeKey{}, p)))
}

// probing is the method of a synthetic request. Servers accept no such method.
// Method-override middleware may produce it, but without a probe in the context.
const probing = "?"

type probeKey struct{}

// probe is the question whether a router has a pattern.
type probe struct {
	pattern string
	nearest []string // the answer's
	listed  []string // the routes, if the finder can list them
}

func probeOf(r *http.Request) *probe {
	if r.Method != probing {
		return nil
	}
	p, _ := r.Context().Value(probeKey{}).(*probe)
	return p
}

// Probed is for finders that can list their routes. It reports whether the request
// is a synthetic one of [Route.Registered] or [Route.List]. If so, the finder returns
// pattern and ok. Probed calls list only then, and does not allocate otherwise.
func Probed(r *http.Request, list func() []string) (pattern string, ok, probed bool) {
	p := probeOf(r)
	if p == nil {
		return "", false, false
	}
	known := list()
	p.listed = known
	if slices.Contains(known, p.pattern) {
		return p.pattern, true, true
	}
	p.nearest = routes.Nearest(p.pattern, known)
	return p.pattern, false, true
}

// Pattern returns the pattern that http.ServeMux stored in the request, such as
// "GET /orders/{id}". It is for a limiter around single handlers of a mux. Around the
// mux itself no request has a pattern yet; use [Mux] there. If muxes are nested, it
// is the pattern of the innermost one, so equal patterns of two muxes are one route.
// It allocates only for a pattern registered for HEAD.
func Pattern(r *http.Request) (pattern string, ok bool) {
	return normal(r.Pattern), r.Pattern != ""
}

// Mux returns the route that mux will take, for a limiter around the mux. A
// redirect to a cleaner path counts on the route that it leads to. It costs one
// look-up and one allocation a request, in addition to the mux's own; CONNECT costs
// two look-ups. It panics if mux is nil.
func Mux(mux *http.ServeMux) Route {
	if mux == nil {
		panic("keying: Mux of a nil mux")
	}
	return func(r *http.Request) (string, bool) {
		if p := probeOf(r); p != nil {
			if registered(mux, p.pattern) {
				return p.pattern, true
			}
			p.nearest = similar(mux, p.pattern)
			return p.pattern, false
		}
		if r.RequestURI == "*" {
			return "", false // the mux answers it without a handler
		}
		pattern := serving(mux, r)
		return normal(pattern), pattern != ""
	}
}

// serving returns the pattern that serves a request. For a CONNECT that it redirects,
// the mux returns the path, which the caller chose, instead of the pattern. A second
// look-up detects that: a registered handler is the same every time, but a redirect
// is a new value.
func serving(mux *http.ServeMux, r *http.Request) string {
	handler, pattern := mux.Handler(r)
	if r.Method != http.MethodConnect || pattern == "" {
		return pattern
	}
	again, _ := mux.Handler(r)
	if reflect.ValueOf(again) == reflect.ValueOf(handler) { // by identity; == panics for funcs
		return pattern
	}
	// The path ends in a slash, so it is not redirected again.
	_, pattern = mux.Handler(&http.Request{
		Method: r.Method, Host: r.Host, URL: &url.URL{Host: r.URL.Host, Path: pattern},
	})
	return pattern
}

// registered reports whether the mux has the pattern: whether a request made from
// the pattern is routed to it. A pattern for HEAD alone counts as one for GET.
func registered(mux *http.ServeMux, pattern string) bool {
	method, _, _ := split(pattern)
	got := serves(mux, pattern, method)
	if got != pattern && method == http.MethodGet {
		got = serves(mux, pattern, http.MethodHead)
	}
	return pattern != "" && got == pattern
}

// serves returns the pattern that serves a request with the method that is made from
// pattern, or "" if there is none.
func serves(mux *http.ServeMux, pattern, method string) string {
	_, host, path := split(pattern)
	target, err := url.ParseRequestURI(sample(path))
	if err != nil {
		return ""
	}
	if method == "" {
		method = "RATION" // a method that no pattern names
	}
	return normal(serving(mux, &http.Request{Method: method, Host: host, URL: target}))
}

// similar returns the routes of the mux that may have been meant by a pattern that
// it does not have, or the pattern that serves such requests.
func similar(mux *http.ServeMux, pattern string) (found []string) {
	method, host, path := split(pattern)
	base := strings.TrimSuffix(strings.TrimSuffix(path, "{$}"), "/")
	for _, m := range []string{"", "CONNECT ", "DELETE ", "GET ", "OPTIONS ", "PATCH ", "POST ",
		"PUT ", "QUERY ", "TRACE "} {
		for _, end := range []string{"", "/", "/{$}"} {
			if other := m + host + base + end; registered(mux, other) {
				found = append(found, other)
			}
		}
	}
	if found == nil {
		if other := serves(mux, pattern, strings.ToUpper(method)); other != "" {
			found = []string{other}
		}
	}
	return found
}

// split returns the parts of a pattern, "[METHOD ][HOST]/[PATH]".
func split(pattern string) (method, host, path string) {
	if i := strings.IndexAny(pattern, " \t"); i >= 0 {
		method, pattern = pattern[:i], strings.TrimLeft(pattern[i:], " \t")
	}
	host, path, _ = strings.Cut(pattern, "/")
	return method, host, "/" + path
}

// sample returns a path that matches the pattern and no more specific one: wildcards
// become text that no pattern contains, and a trailing wildcard becomes more segments
// than any pattern has.
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

// normal returns a pattern with one space after its method, and with GET instead of
// HEAD, since they share an account.
func normal(pattern string) string {
	if pattern == "" || pattern[0] == '/' || strings.HasPrefix(pattern, "GET /") {
		return pattern // as nearly all are
	}
	i := strings.IndexAny(pattern, " \t")
	if i < 0 {
		return pattern
	}
	method, rest := pattern[:i], strings.TrimLeft(pattern[i:], " \t")
	switch {
	case method == http.MethodHead:
		method = http.MethodGet
	case pattern[i] == ' ' && len(rest) == len(pattern)-i-1:
		return pattern
	}
	return method + " " + rest
}
