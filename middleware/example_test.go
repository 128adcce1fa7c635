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

// An answer costs what it turns out to be long; 1000 is reserved until it is known.
func ExampleSettle() {
	store := limiter.Must(memstore.New(memstore.Config{}))
	l := limiter.Must(limiter.New(store, []limiter.Budget{
		{Name: "tokens", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(1500)},
	}, limiter.Config{}))
	who := keying.ByAddress(keying.Addresses{})
	limit := limiter.Must(middleware.New(l, who, keying.Pattern, middleware.Config{
		Cost:    func(*http.Request) int64 { return 1000 },
		Settles: true,
	}))
	h := limit.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("settled:", middleware.Settle(r.Context(), 150))
	}))
	for range 5 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		fmt.Println(w.Code)
	}
	// Output:
	// settled: <nil>
	// 200
	// settled: <nil>
	// 200
	// settled: <nil>
	// 200
	// settled: <nil>
	// 200
	// 429
}

// Only failed logins count.
func ExampleConfig_byStatus() {
	store := limiter.Must(memstore.New(memstore.Config{}))
	l := limiter.Must(limiter.New(store, []limiter.Budget{
		{Name: "failed-logins", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(2)},
	}, limiter.Config{}))
	who := keying.ByAddress(keying.Addresses{})
	limit := limiter.Must(middleware.New(l, who, keying.Pattern, middleware.Config{
		ByStatus: func(status int, reserved int64) int64 {
			if status == http.StatusOK {
				return 0
			}
			return reserved
		},
	}))
	login := limit.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Password") != "correct horse" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.WriteHeader(http.StatusOK) // a handler that writes nothing keeps its cost
	}))
	for _, password := range []string{"correct horse", "guess", "correct horse", "guess", "guess"} {
		w, r := httptest.NewRecorder(), httptest.NewRequest("POST", "/login", nil)
		r.Header.Set("Password", password)
		login.ServeHTTP(w, r)
		fmt.Println(password, w.Code)
	}
	// Output:
	// correct horse 200
	// guess 401
	// correct horse 200
	// guess 401
	// guess 429
}
