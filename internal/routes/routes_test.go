package routes_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ration-go/ration/internal/routes"
)

func TestNearest_FindsTheRouteThatWasMeant(t *testing.T) {
	for _, tt := range []struct {
		route string
		known []string
		want  []string
	}{
		{"POST /logn", []string{"GET /", "POST /login", "POST /logout"}, []string{"POST /login"}},
		{"GET /v1/orgs/{org}/", []string{"GET /v1/orgs/{org}", "GET /v1/orgs"},
			[]string{"GET /v1/orgs/{org}"}},
		{"POST /upload", []string{"/upload", "POST /uploads"}, []string{"/upload"}},
		{"/a", []string{"POST /a", "GET /a", "/b"}, []string{"GET /a", "POST /a"}},
		{"/s.T/method", []string{"/s.T/Method"}, []string{"/s.T/Method"}},
		{"s.T/Method", []string{"/s.T/Method"}, []string{"/s.T/Method"}},
		{"/exact/", []string{"GET /exact/{$}"}, []string{"GET /exact/{$}"}},
		{"POST /orders", []string{"/healthz"}, nil},
		{"/a", nil, nil},
	} {
		assert.Equal(t, tt.want, routes.Nearest(tt.route, tt.known), tt.route)
	}
}

func TestQuote_NamesAllOfThem(t *testing.T) {
	assert.Equal(t, `"GET /a" or "POST /a"`, routes.Quote([]string{"GET /a", "POST /a"}))
}

func TestIsFullMethod_IsTheFormOfGRPC(t *testing.T) {
	for route, want := range map[string]bool{
		"/pkg.Service/Method": true, "/Greeter/SayHello": true, "/orders/list": true,
		"pkg.Service/Method": false, "/pkg.Service/": false, "/orders": false, "/a/b/c": false,
		"GET /orders/list": false, "/orders/{id}": false, "/orders/*": false, "//Method": false,
		"unmatched": false, "": false,
	} {
		assert.Equal(t, want, routes.IsFullMethod(route), route)
	}
	assert.True(t, routes.HasPackage("/pkg.Service/Method"))
	assert.False(t, routes.HasPackage("/Greeter/Say.Hello"))
	assert.False(t, routes.HasPackage("/v1.0/orders/{id}"))
}

func TestIsService_IsAServiceInAPackage(t *testing.T) {
	for route, want := range map[string]bool{
		"/pkg.Service/*": true, "/a.b.c.V1/*": true, "/pkg._S/*": true,
		"/Service/*": false, "/v1.0/*": false, "/pkg.Service/": false, "/pkg.Service/Method": false,
		"pkg.Service/*": false, "GET /pkg.Service/*": false, "/a/pkg.Service/*": false, "/pkg./*": false,
		"/.Service/*": false, "/{x}.Service/*": false, "/*": false, "*": false, "": false,
	} {
		assert.Equal(t, want, routes.IsService(route), route)
	}
}

func TestServiceOf_IsAllBeforeTheMethod(t *testing.T) {
	for route, want := range map[string]string{
		"/pkg.Service/Method": "/pkg.Service", "/pkg.Service/": "/pkg.Service",
		"/pkg.Service/*": "/pkg.Service", "/pkg.Service": "", "unmatched": "", "GET /pkg.Service/Method": "", "": "",
	} {
		got, ok := routes.ServiceOf(route)
		assert.Equal(t, want, got, route)
		assert.Equal(t, want != "", ok, route)
	}
}
