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

// A route that is misspelt has no accounts, so none can be made full.
func TestOperators_ResetNeedsARouteWithABudget(t *testing.T) {
	operators := newService(t, nil).Operators
	for query, want := range map[string]int{
		"user=bob&route=GET+/v1/exports/{id}": http.StatusOK,
		"user=bob&route=GET+/v1/exports/7":    http.StatusBadRequest,
		"user=bob":                            http.StatusBadRequest,
		"route=GET+/v1/exports/{id}":          http.StatusBadRequest,
	} {
		w := httptest.NewRecorder()
		operators.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "http://localhost/reset?"+query, nil))
		if w.Code != want {
			t.Errorf("%s: %d %s", query, w.Code, w.Body)
		}
	}
}
