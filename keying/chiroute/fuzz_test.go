package chiroute_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/stretchr/testify/assert"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/keying/chiroute"
)

// Whatever the path, a request that a handler serves is charged on the pattern of that
// handler, and every other one on a route that the router has, or on Unmatched.
func FuzzPath(f *testing.F) {
	for _, path := range []string{"/", "//", "/orders/7", "/orders/7/", "//orders//7", "/./orders/7",
		"/../orders", "/files/a/b", "/files//", "/v1/users/1", "/v1//users/1", "/%2e%2e/", "/a%2Fb", "*"} {
		f.Add("GET", path)
		f.Add("HEAD", path)
	}
	served := ""
	serve := func(pattern string) http.HandlerFunc {
		return func(http.ResponseWriter, *http.Request) { served = pattern }
	}
	router := chi.NewRouter()
	find := chiroute.New(router).Route
	charged := ""
	router.Use(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var ok bool
			if charged, ok = find(r); !ok {
				charged = keying.Unmatched
			}
			next.ServeHTTP(w, r)
		})
	}, middleware.CleanPath)
	router.Get("/orders/{id}", serve("GET /orders/{id}"))
	router.Post("/{org}/login", serve("POST /{org}/login"))
	router.Handle("/files/*", serve("/files/*"))
	router.Route("/v1", func(v1 chi.Router) {
		v1.Get("/", serve("GET /v1"))
		v1.Get("/users/{id:[0-9]+}", serve("GET /v1/users/{id:[0-9]+}"))
	})
	routes := append(chiroute.New(router).Routes(), keying.Unmatched)

	f.Fuzz(func(t *testing.T, method, path string) {
		target, err := url.ParseRequestURI(path)
		if err != nil {
			return // net/http refuses it
		}
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Method, r.URL, r.RequestURI = method, target, path
		served, charged = "", ""
		router.ServeHTTP(httptest.NewRecorder(), r)
		assert.Contains(t, routes, charged)
		if served != "" && served != "GET /v1" { // which the router lists with its slash
			assert.Equal(t, served, charged)
		}
	})
}
