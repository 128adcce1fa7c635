package middleware

import (
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ration-go/ration/internal/misuse"
	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
)

// watch notices where a limiter is mounted so that it cannot work, which only
// requests show. Each kind of misuse is logged once.
type watch struct {
	routes    sync.Once     // the routes of budgets were looked up
	complete  atomic.Bool   // all routes are registered, so Reload can check
	unmatched misuse.Streak // requests that match no route
	nobody    misuse.Streak // requests of callers whom nobody has named
	callers   misuse.Once   // how callers are named; see keying.Who.Misuse
	proxied   misuse.Streak // requests that came through a proxy that nobody has named
	moved     atomic.Bool   // told that the route changed further in
	upgraded  atomic.Bool   // told that HTTP/2 began further in
	lost      atomic.Bool   // told that a cost could not be corrected
	preflight atomic.Bool   // told that a CORS preflight arrived
	unknown   atomic.Bool   // told that the status of an answer was unknown
}

// find returns the route of a request, or Unmatched.
func (m *Middleware) find(r *http.Request) string {
	route, ok := m.route(r)
	m.watch.routes.Do(func() { m.warnOfRoutes(r.Context()) })
	if ok {
		m.watch.unmatched.Hit()
		return route
	}
	if m.watch.unmatched.Miss() && m.routed() {
		m.limiter.Warn(r.Context(), "no-route", "no request so far matched a route, so all share "+
			"one: around a mux want keying.Mux(mux), and chiroute.New of the outermost chi router; "+
			"what rewrites paths, such as http.StripPrefix, belongs outside",
			slog.Int("requests", misuse.Patience))
	}
	return keying.Unmatched
}

// routed reports whether it matters to a budget which route a request has.
func (m *Middleware) routed() bool {
	return slices.ContainsFunc(m.limiter.Budgets(), func(b limiter.Budget) bool {
		return b.Routes != nil || b.Scope&limiter.ByRoute != 0
	})
}

// principal finds who sends a request.
func (m *Middleware) principal(r *http.Request, p *limiter.Principal) error {
	var named bool
	if *p, named = m.who.Named(r.Context()); named {
		m.watch.nobody.Hit()
		return nil
	}
	var err error
	*p, err = m.who.Request(r)
	m.watchProxies(r, p.Kind)
	code, message := m.who.Misuse(r.Context(), keying.Origin{TLS: r.TLS}, err)
	if code != "" && m.watch.callers.First(code) {
		m.limiter.Warn(r.Context(), code, message)
	}
	switch {
	case !m.who.Expects():
	case p.Kind == limiter.KindCertificate || errors.Is(err, keying.ErrInvalidPrincipal):
		m.watch.nobody.Hit()
	case m.watch.nobody.Miss():
		m.limiter.Warn(r.Context(), "no-principal", "no request so far had a principal: the "+
			"authentication has to be outside the limiter and to call keying.WithPrincipal",
			slog.Int("requests", misuse.Patience))
	}
	return err
}

// watchProxies notices where every caller's address is that of a proxy.
func (m *Middleware) watchProxies(r *http.Request, kind string) {
	if kind != limiter.KindAddress || m.who.ReadsHeader() {
		return
	}
	if r.Header["X-Forwarded-For"] == nil {
		m.watch.proxied.Hit()
	} else if m.watch.proxied.Miss() {
		m.limiter.Warn(r.Context(), "proxy-unnamed", "all requests so far came through a proxy, "+
			"whose address all callers share: want it in keying.Addresses.Proxies",
			slog.Int("requests", misuse.Patience))
	}
}

// pass runs the handler, and looks whether it was that of the route: whatever
// finds or changes it further in is out of the limiter's sight.
func (m *Middleware) pass(
	w http.ResponseWriter, r *http.Request, route string, next http.Handler,
) {
	method, path, pattern := r.Method, r.URL.Path, r.Pattern
	next.ServeHTTP(w, r)
	if m.watch.moved.Load() || r.URL == nil {
		return
	}
	rewritten := r.Method != method || r.URL.Path != path
	if !rewritten && (route != keying.Unmatched || r.Pattern == pattern) {
		return
	}
	served, ok := m.route(r)
	if !ok || served == route || m.watch.moved.Swap(true) || !m.routed() {
		return
	}
	m.watch.unmatched.Hit() // it is told here, and not again
	if rewritten {
		m.limiter.Warn(r.Context(), "route-rewritten", "a request was charged on one route and "+
			"served on another: what rewrites paths or methods belongs outside the limiter",
			slog.String("charged", route))
		return
	}
	m.limiter.Warn(r.Context(), "no-route", "a request's route was found further in than the "+
		"limiter, so all requests share one: around a mux want keying.Mux(mux), and chiroute for chi")
}

// watchPreflight warns, once, that a CORS preflight arrived: CORS middleware
// outside the limiter would have answered it.
func (m *Middleware) watchPreflight(r *http.Request) {
	if r.Method != http.MethodOptions || m.watch.preflight.Load() ||
		r.Header.Get("Origin") == "" || r.Header.Get("Access-Control-Request-Method") == "" ||
		m.watch.preflight.Swap(true) {
		return
	}
	m.limiter.Warn(r.Context(), "cors-inside", "a CORS preflight arrived at the limiter, which "+
		"charges it like any request: move the CORS middleware outside the limiter")
}

// blockH2C prevents inner handlers from starting HTTP/2 without TLS on the
// connection, whose requests would bypass the limiter. It reports whether the
// request is the connection preface of HTTP/2, which no handler may see.
func (m *Middleware) blockH2C(r *http.Request) (preface bool) {
	preface = r.Method == "PRI" && r.URL.Path == "*"
	if !preface && r.Header["Http2-Settings"] == nil {
		return false
	}
	delete(r.Header, "Http2-Settings")
	if !m.watch.upgraded.Swap(true) {
		m.limiter.Warn(r.Context(), "h2c-inside", "HTTP/2 without TLS was asked for and not begun: "+
			"a handler for h2c belongs outside the limiter, or http.Server.Protocols in its place")
	}
	return preface
}

// refusePreface is the handler of connection prefaces. They are charged like any
// request.
func refusePreface(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusHTTPVersionNotSupported)
}
