package middleware_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
	"github.com/ration-go/ration/middleware"
)

func ExampleNew() {
	store := limiter.Must(memstore.New(memstore.Config{}))
	l := limiter.Must(limiter.New(store, []limiter.Budget{{
		Name:  "orders",
		Scope: limiter.ByPrincipal | limiter.ByRoute,
		Limit: limiter.PerMinute(2),
	}}, limiter.Config{}))
	who := keying.ByAddress(keying.Addresses{})
	limit := limiter.Must(middleware.New(l, who, keying.Pattern, middleware.Config{}))

	mux := http.NewServeMux()
	mux.Handle("GET /orders/{id}", limit.Handler(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "order", r.PathValue("id")) },
	)))

	for range 3 {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest("GET", "/orders/7", nil))
		fmt.Printf("%d Retry-After=%q\n", w.Code, w.Header().Get("Retry-After"))
	}
	// Output:
	// 200 Retry-After=""
	// 200 Retry-After=""
	// 429 Retry-After="30"
}
