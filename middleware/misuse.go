package middleware

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/ration-go/ration/internal/misuse"
	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
)

// watch records mistakes of the service that only requests show. Each is logged
// once. The methods called watch... return nothing and change no answer; the path of a
// request enters them twice, by watchRequest and watchServed.
type watch struct {
	routes          sync.Once     // the first request has checked the routes of budgets
	routed          atomic.Bool   // a budget depends on routes
	complete        atomic.Bool   // all routes are registered, so Reload can check
	unmatched       misuse.Streak // requests that match no route
	unauthenticated misuse.Streak // requests without a principal
	callers         misuse.Once   // codes about callers that were logged
	proxies         proxies       // requests with the header of a proxy
	moved           atomic.Bool   // route-rewritten or no-route was logged
	upgraded        atomic.Bool   // h2c-inside was logged
	lost            atomic.Bool   // settle-failed was logged
	preflight       atomic.Bool   // cors-inside was logged
	unknown         atomic.Bool   // status-unknown was logged
	mounted         atomic.Bool   // Handler was called
}

// watchRequest looks at a request before it is charged. h2c is the result of
// asksForH2C. At the first request it checks the routes of budgets.
func (m *Middleware) watchRequest(r *http.Request, req *limiter.Request, h2c bool) {
	m.watch.routes.Do(func() { m.warnOfRoutes(r.Context()) })
	if req.Caller.Route == keying.Unmatched {
		m.watchUnmatched(r)
	} else {
		m.watch.unmatched.Hit()
	}
	if h2c {
		m.watchUpgrade(r)
	}
	if req.Skip {
		return
	}
	if r.Method == http.MethodOptions {
		m.watchPreflight(r, req.Caller.Route)
	}
	switch p := &req.Caller.Principal; p.Kind {
	case "", keying.KindAddress, keying.KindCertificate, keying.KindShared:
		m.watchUnauthenticated(r, p, req.Err)
	default:
		m.watch.unauthenticated.Hit()
	}
}

// watchUnmatched logs if no request matches a route.
func (m *Middleware) watchUnmatched(r *http.Request) {
	if m.watch.unmatched.Miss() && m.watch.routed.Load() {
		m.adapter.Warn(r.Context(), "no-route", "no request so far matched a route, so all share one "+
			"account: use keying.Mux(mux) around a mux, or chiroute.New of the outermost chi router, "+
			"and move what rewrites paths, such as http.StripPrefix, outside the limiter",
			slog.Int("requests", misuse.Patience))
	}
}

// watchUnauthenticated logs if the authentication identifies no caller, or if a
// certificate or an address cannot be used.
func (m *Middleware) watchUnauthenticated(r *http.Request, p *limiter.Principal, err error) {
	m.watchProxies(r, p.Kind, err)
	code, message := m.who.Misuse(r.Context(), keying.Origin{TLS: r.TLS}, err)
	if code != "" && m.watch.callers.First(code) {
		m.adapter.Warn(r.Context(), code, message)
	}
	switch {
	case !m.who.Expects():
	case p.Kind == keying.KindCertificate || errors.Is(err, keying.ErrInvalidPrincipal):
		m.watch.unauthenticated.Hit()
	case m.watch.unauthenticated.Miss():
		m.adapter.Warn(r.Context(), "no-principal", "no request so far had a principal: mount the "+
			"limiter inside the authentication, and let that call keying.WithPrincipal",
			slog.Int("requests", misuse.Patience))
	}
}

// watchProxies logs if callers share the address of a proxy, because the service
// does not trust it, or because it does not state its callers.
func (m *Middleware) watchProxies(r *http.Request, kind string, err error) {
	byAddress := kind == keying.KindAddress
	// missing is false in the usual case, so that the address is not parsed again.
	missing := m.header != "" && (!byAddress || r.Header[m.header] == nil) &&
		kind != keying.KindCertificate && !errors.Is(err, keying.ErrInvalidPrincipal)
	if !missing && (!byAddress || !m.watch.proxies.open()) {
		return
	}
	trusted, stated := m.who.Forwarded(r.Context(),
		keying.Origin{Remote: r.RemoteAddr, Header: r.Header.Values})
	switch {
	case trusted:
		m.watch.proxies.close()
		if !stated && missing && m.watch.callers.First("forwarded-missing") {
			m.adapter.Warn(r.Context(), "forwarded-missing", "a trusted proxy sent no header with "+
				"the address of its caller, or one that is not readable: configure the proxy to append "+
				"the address", slog.String("header", m.header),
				slog.String("remote", r.RemoteAddr))
		}
	case byAddress:
		if remote := m.watch.proxies.add(r.RemoteAddr, stated); remote != "" {
			m.adapter.Warn(r.Context(), "proxy-unnamed", "most requests by address came through a "+
				"proxy that is not trusted, so all its callers share one account: add its network to "+
				"keying.Addresses.Proxies", slog.String("remote", remote),
				slog.Int("requests", misuse.Patience))
		}
	}
}

// proxies counts, among the first requests by address, those with a header that
// states another address, until one came from a trusted proxy. The zero proxies
// is ready for use, by many goroutines.
type proxies struct {
	seen, forwarded atomic.Int64
	remote          atomic.Pointer[string] // of the first with the header
}

// open reports whether more requests are to be counted.
func (p *proxies) open() bool { return p.seen.Load() < misuse.Patience }

// close ends the count.
func (p *proxies) close() {
	if p.open() {
		p.seen.Store(math.MaxInt64 / 2)
	}
}

// add counts one request. With the last one, if most had the header, it returns
// the remote address of the first of those, and otherwise "".
func (p *proxies) add(remote string, forwarded bool) string {
	if !p.open() {
		return ""
	}
	if forwarded {
		first := remote // only this copy is allocated
		p.remote.CompareAndSwap(nil, &first)
		p.forwarded.Add(1)
	}
	if p.seen.Add(1) == misuse.Patience && p.forwarded.Load() > misuse.Patience/2 {
		return *p.remote.Load()
	}
	return ""
}

// watchPreflight logs that a CORS preflight arrived. CORS middleware outside the
// limiter would have answered it.
func (m *Middleware) watchPreflight(r *http.Request, route string) {
	if m.watch.preflight.Load() ||
		r.Header.Get("Origin") == "" || r.Header.Get("Access-Control-Request-Method") == "" ||
		m.watch.preflight.Swap(true) {
		return
	}
	m.adapter.Warn(r.Context(), "cors-inside", "a CORS preflight was charged or refused: mount the "+
		"CORS middleware outside the limiter, so that it answers preflights first",
		slog.String("route", route))
}

// watchUpgrade logs that an inner handler might have started HTTP/2.
func (m *Middleware) watchUpgrade(r *http.Request) {
	if !m.watch.upgraded.Swap(true) {
		m.adapter.Warn(r.Context(), "h2c-inside", "a client asked for HTTP/2 without TLS, and the "+
			"limiter prevented it: move the handler for h2c outside the limiter, or use "+
			"http.Server.Protocols instead")
	}
}

// served is what a request looked like before its handler ran, and the route that was
// charged.
type served struct{ method, path, pattern, route string }

// look is not a constructor, whose result would be copied.
func (s *served) look(r *http.Request, req *limiter.Request) {
	s.method, s.path, s.pattern, s.route = r.Method, r.URL.Path, r.Pattern, req.Caller.Route
}

// watchServed looks at a request after its handler has returned. err is that of
// correct.
func (m *Middleware) watchServed(r *http.Request, before *served, err error) {
	if err != nil {
		m.watchCost(r.Context(), before.route, err)
	}
	if r.URL == nil {
		return
	}
	rewritten := r.Method != before.method || r.URL.Path != before.path
	if rewritten || before.route == keying.Unmatched && r.Pattern != before.pattern {
		m.watchMoved(r, before, rewritten)
	}
}

// watchMoved logs if another route was served than was charged: the handler that
// rewrites the request, or finds its route, is inside the limiter.
func (m *Middleware) watchMoved(r *http.Request, before *served, rewritten bool) {
	if m.watch.moved.Load() {
		return
	}
	actual, ok := m.route(r)
	if !ok || actual == before.route || m.watch.moved.Swap(true) || !m.watch.routed.Load() {
		return
	}
	m.watch.unmatched.Hit() // do not log it again
	if rewritten {
		m.adapter.Warn(r.Context(), "route-rewritten", "a request was charged on one route and "+
			"served on another: move what rewrites paths or methods outside the limiter",
			slog.String("charged", before.route))
		return
	}
	m.adapter.Warn(r.Context(), "no-route", "the route of a request was found only inside the "+
		"limiter, so all requests share one account: use keying.Mux(mux) around a mux, or "+
		"chiroute.New around chi")
}

// watchCost logs that the reserved cost of a request was not corrected. Handlers that
// write no status may have called Settle, if they can.
func (m *Middleware) watchCost(ctx context.Context, route string, err error) {
	switch {
	case err != errStatus:
		if !m.watch.lost.Swap(true) {
			m.adapter.Warn(ctx, "settle-failed", "the cost of a request could not be corrected by its "+
				"status; the reserved cost stands", slog.Any("error", err))
		}
	case !m.cfg.Settles && !m.watch.unknown.Swap(true):
		m.adapter.Warn(ctx, "status-unknown", "a handler returned without writing a status, or wrote "+
			"two: ByStatus is not called, and the reserved cost stands; write one status inside the "+
			"limiter, or use Settle", slog.String("route", route))
	}
}
