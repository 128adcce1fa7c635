// Readme is the program that README.md shows.
package main

import (
	"log"
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/keying/chiroute"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
	"github.com/ration-go/ration/middleware"
)

func main() { log.Fatal(http.ListenAndServe("127.0.0.1:8080", newRouter())) }

func newRouter() http.Handler {
	store := limiter.Must(memstore.New(memstore.Config{}))
	limit := limiter.Must(limiter.New(store, []limiter.Budget{{
		Name:  "orders",
		Scope: limiter.ByPrincipal | limiter.ByRoute, // each user, on each route
		Limit: limiter.PerMinute(100),
	}}, limiter.Config{}))

	router := chi.NewRouter()
	mw := limiter.Must(middleware.New(limit,
		keying.Authenticated(keying.Refuse(`Bearer realm="api"`)), // without a principal: 401
		chiroute.New(router).Route, middleware.Config{}))
	router.Use(authenticate, mw.Handler)
	router.Get("/orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte("order " + r.PathValue("id") + "\n"))
	})
	if err := mw.Check(); err != nil { // a budget on a route that does not exist
		log.Fatal(err)
	}
	return router
}

// authenticate is your own: once it has verified who calls, it says so.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, ok := verify(r.Header.Get("Authorization")); ok {
			p := limiter.Principal{Kind: "user", ID: user}
			r = r.WithContext(keying.WithPrincipal(r.Context(), p))
		}
		next.ServeHTTP(w, r)
	})
}

// verify stands for the look-up of a token.
func verify(header string) (user string, ok bool) {
	token, ok := strings.CutPrefix(header, "Bearer ")
	return strings.TrimSuffix(token, "-token"), ok && strings.HasSuffix(token, "-token")
}
