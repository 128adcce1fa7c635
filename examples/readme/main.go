// Readme is the code that README.md shows, so that it compiles and runs.
package main

import (
	"log"
	"net/http"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/keying/chiroute"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
	"github.com/ration-go/ration/middleware"
)

func main() { log.Fatal(http.ListenAndServe("127.0.0.1:8080", newRouter())) }

// readme:chi
func newRouter() http.Handler {
	store := limiter.Must(memstore.New(memstore.Config{}))
	limit := limiter.Must(limiter.New(store, []limiter.Budget{{
		Name:  "orders",
		Scope: limiter.ByPrincipal | limiter.ByRoute, // each user, on each route
		Limit: limiter.Limit{Tokens: 100, Per: time.Minute, Burst: 20},
	}}, limiter.Config{}))

	router := chi.NewRouter()
	mw := limiter.Must(middleware.New(limit,
		keying.Authenticated(keying.Refuse(`Bearer realm="api"`)), // nobody: 401
		chiroute.New(router).Route, middleware.Config{}))
	router.Use(authenticate, mw.Handler)
	router.Get("/orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte("order " + r.PathValue("id") + "\n"))
	})
	return router
}

// readme:end

// readme:authenticate
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, ok := verify(r.Header.Get("Authorization")); ok {
			r = r.WithContext(keying.WithPrincipal(r.Context(),
				limiter.Principal{Kind: "user", ID: user}))
		}
		next.ServeHTTP(w, r)
	})
}

// readme:end

func newMux(limit *limiter.Limiter, order http.Handler) http.Handler {
	// readme:mux
	mux := http.NewServeMux()
	mux.Handle("GET /orders/{id}", order)
	mw := limiter.Must(middleware.New(limit,
		keying.Authenticated(keying.Refuse(`Bearer realm="api"`)), keying.Mux(mux),
		middleware.Config{}))
	handler := authenticate(mw.Handler(mux))
	// readme:end
	return handler
}

// verify stands in for the lookup of a token.
func verify(header string) (user string, ok bool) {
	token, ok := strings.CutPrefix(header, "Bearer ")
	return strings.TrimSuffix(token, "-token"), ok && strings.HasSuffix(token, "-token")
}
