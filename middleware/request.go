package middleware

import (
	"errors"
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
	m.watchPreflight(r, req.Caller.Route)
	if req.Err = m.identify(r, &req.Caller.Principal); req.Err != nil {
		return
	}
	req.Caller.Workload = m.workloads.Request(r)
	req.Cost = m.cfg.cost(r)
	req.Reserve, req.Settles = m.cfg.ByStatus != nil, m.cfg.Settles
	req.KnowsCaller = m.cfg.Caller
	req.WantState = m.cfg.Headers != Off && !isGRPC(r)
}

// find returns the route of a request, or Unmatched.
func (m *Middleware) find(r *http.Request) string {
	route, ok := m.route(r)
	m.watchRoutes(r, ok)
	if !ok {
		return keying.Unmatched
	}
	return route
}

// identify finds the principal of a request.
func (m *Middleware) identify(r *http.Request, p *limiter.Principal) (err error) {
	var named bool
	if *p, named = m.who.Named(r.Context()); !named {
		*p, err = m.who.Request(r)
	}
	m.watchCaller(r, named, p, err)
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

// blockH2C prevents inner handlers from starting HTTP/2 without TLS on the
// connection, whose requests would bypass the limiter. It reports whether the
// request is the connection preface of HTTP/2, which no handler may see.
func (m *Middleware) blockH2C(r *http.Request) (preface bool) {
	preface = r.Method == "PRI" && r.URL.Path == "*"
	if preface || r.Header["Http2-Settings"] != nil {
		delete(r.Header, "Http2-Settings")
		m.watchUpgrade(r)
	}
	return preface
}

// refusePreface is the handler of connection prefaces, which are charged like any
// request.
func refusePreface(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusHTTPVersionNotSupported)
}

// storeFailed reports whether a failure policy made the decision.
func storeFailed(err error) bool {
	_, failed := errors.AsType[*limiter.StoreError](err)
	return failed
}
