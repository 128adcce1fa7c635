package middleware

import (
	"net/http"
	"net/url"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
)

// transport is the metric label of this package's requests.
const transport = "http"

// describe fills in the request for the limiter: route, caller and cost.
func (m *Middleware) describe(r *http.Request, req *limiter.Request) {
	req.Transport = transport
	req.Caller.Route = m.find(r)
	if m.cfg.settles() || m.shared() {
		req.ID = identify(r)
	}
	if m.cfg.Skip != nil && m.cfg.Skip(r) {
		req.Skip = true
		return
	}
	if req.Err = m.identify(r, &req.Caller.Principal); req.Err != nil {
		return
	}
	req.Caller.Workload = m.workloads.Request(r)
	req.Cost = m.cfg.cost(r)
	req.Reserve, req.Settles = m.cfg.ByStatus != nil, m.cfg.Settles
	req.KnowsCaller = m.cfg.Caller
	req.WantState = m.cfg.Headers != Off && protocolOf(r) != grpcCall
}

// find returns the route of a request, or Unmatched.
func (m *Middleware) find(r *http.Request) string {
	if route, ok := m.route(r); ok {
		return route
	}
	return keying.Unmatched
}

// identify finds the principal of a request.
func (m *Middleware) identify(r *http.Request, p *limiter.Principal) (err error) {
	if named := m.who.Named(r.Context()); named != nil {
		*p = *named
		return nil
	}
	*p, err = m.who.Request(r)
	return err
}

// identity is the limiter.Request.ID of a request. One that a handler makes up has no
// RequestURI of a server, or another method or URL. A clone has the same identity.
type identity struct {
	method, uri string
	url         url.URL
}

func identify(r *http.Request) identity {
	id := identity{r.Method, r.RequestURI, *r.URL}
	id.url.User = nil // a pointer, which a clone does not share
	return id
}

// asksForH2C reports whether an inner handler could start HTTP/2 without TLS on the
// connection of the request.
func asksForH2C(r *http.Request) bool {
	return r.Header["Http2-Settings"] != nil || isPreface(r)
}

// isPreface reports whether the request is the connection preface of HTTP/2.
func isPreface(r *http.Request) bool { return r.Method == "PRI" && r.URL.Path == "*" }

// blockH2C prevents inner handlers from starting HTTP/2 without TLS, since the
// requests of that connection would bypass the limiter. It returns the handler of the
// request: next, or one that refuses a connection preface, which next may not see.
func blockH2C(r *http.Request, next http.Handler) http.Handler {
	delete(r.Header, "Http2-Settings")
	if isPreface(r) {
		return http.HandlerFunc(refusePreface)
	}
	return next
}

// refusePreface is the handler of connection prefaces, which are charged like any
// request.
func refusePreface(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusHTTPVersionNotSupported)
}
