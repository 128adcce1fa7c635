package chiroute_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/go-chi/chi/v5"

	"github.com/ration-go/ration/keying/chiroute"
)

func ExampleNew() {
	router := chi.NewRouter()
	routes := chiroute.New(router) // before any route is registered
	router.Use(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Println(routes.Route(r))
			next.ServeHTTP(w, r)
		})
	})
	order := func(http.ResponseWriter, *http.Request) {}
	router.Route("/v1", func(r chi.Router) { r.Get("/orders/{id}", order) })

	for _, path := range []string{"/v1/orders/7", "/v1/orders/8", "/v2/orders/7"} {
		router.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", path, nil))
	}
	// Output:
	// GET /v1/orders/{id} true
	// GET /v1/orders/{id} true
	//  false
}
