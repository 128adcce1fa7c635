package middleware

import (
	"context"
	"net/http"
)

// preflight reports whether a request that matches no route is a CORS preflight
// of one that does: OPTIONS, where a handler is registered for the method that it
// announces and none for OPTIONS. Such a request is free, since no handler of the
// service's runs for it. One that a handler answers costs like any other, and so
// does one for a path that the router does not know: its headers are the
// caller's to write.
func (m *Middleware) preflight(r *http.Request) bool {
	method := r.Header.Get("Access-Control-Request-Method")
	if r.Method != http.MethodOptions || method == "" || r.Header.Get("Origin") == "" {
		return false
	}
	// A new context, so that a router looks at the path and not at its own state
	// of routing OPTIONS.
	announced := r.WithContext(context.Background())
	announced.Method = method
	_, ok := m.route(announced)
	return ok
}
