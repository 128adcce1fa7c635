package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// A page in an operator's browser changes nothing and learns nothing, not even if its own
// host name leads to the operators' address (DNS rebinding).
func TestOperators_AreNotForPagesInABrowser(t *testing.T) {
	operators := newService(t, nil).Operators
	for _, tt := range []struct {
		method, target, origin string
		want                   int
	}{
		{http.MethodPost, "http://127.0.0.1:9081/gate?user=bob&answer=none", "", http.StatusOK},
		{http.MethodPost, "http://[::1]:9081/gate?user=bob&answer=none", "", http.StatusOK},
		{http.MethodGet, "http://localhost:9081/callers", "", http.StatusOK},
		{http.MethodGet, "http://quickstart:9081/metrics", "", http.StatusOK},
		{http.MethodPost, "http://127.0.0.1:9081/gate?user=bob&answer=none", "http://evil.example",
			http.StatusForbidden},
		{http.MethodPost, "http://evil.example:9081/gate?user=bob&answer=none", "http://evil.example:9081",
			http.StatusForbidden},
		{http.MethodGet, "http://evil.example:9081/callers", "", http.StatusForbidden},
		{http.MethodGet, "http://evil.example:9081/explain?user=bob", "", http.StatusForbidden},
	} {
		r := httptest.NewRequest(tt.method, tt.target, nil)
		if tt.origin != "" {
			r.Header.Set("Origin", tt.origin)
		}
		w := httptest.NewRecorder()
		operators.ServeHTTP(w, r)
		if w.Code != tt.want {
			t.Errorf("%s %s from %q: %d, want %d", tt.method, tt.target, tt.origin, w.Code, tt.want)
		}
	}
}
