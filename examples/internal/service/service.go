// Package service is the service of the quickstart, and of the example with
// Redis: a chi router with users, routes and limits.
package service

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/keying/chiroute"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/denylog"
	"github.com/ration-go/ration/limiter/metrics"
	"github.com/ration-go/ration/limiter/topcallers"
	"github.com/ration-go/ration/middleware"
)

const challenge = `Bearer realm="quickstart"`

// userBudgets give each user an account on each route: five summaries a second,
// and two exports at once, then one a second.
var userBudgets = []limiter.Budget{
	{
		Name:   "summaries",
		Scope:  limiter.ByPrincipal | limiter.ByRoute,
		Limit:  limiter.PerSecond(5),
		Routes: []string{"GET /v1/summaries/{id}"},
		// A store in memory never fails. While one in Redis does, each process decides
		// about summaries by its share, and exports are refused.
		OnError: limiter.Local,
	},
	{
		Name:    "exports",
		Scope:   limiter.ByPrincipal | limiter.ByRoute,
		Limit:   limiter.Limit{Tokens: 1, Per: time.Second, Burst: 2},
		Routes:  []string{"GET /v1/exports/{id}"},
		OnError: limiter.Closed,
	},
}

// addressBudgets hold back those who guess tokens, and all others: this limiter
// stands in front of the authentication, where nobody is known yet.
var addressBudgets = []limiter.Budget{{
	Name:  "address",
	Scope: limiter.ByPrincipal,
	Limit: limiter.Limit{Tokens: 20, Per: time.Second, Burst: 100},
}}

// Service is the handler of the public, and that of those who run the service.
type Service struct {
	http.Handler
	// Operators must not be public: it names users, and changes what they may do.
	Operators http.Handler
}

// New returns the service, with the accounts of users in one store and those of
// addresses in another. They may be the same: the names of the budgets keep the
// accounts apart.
func New(users, addresses limiter.Store) (*Service, error) {
	registry := prometheus.NewRegistry()
	counts, err := metrics.New(registry)
	if err != nil {
		return nil, err
	}
	// The users are made up. If yours are people, use Hashed and a Secret, or the zero
	// Config.
	denials, err := denylog.New(denylog.Config{Principals: denylog.Plain, Shadow: true})
	if err != nil {
		return nil, err
	}
	top, err := topcallers.New(topcallers.Config{})
	if err != nil {
		return nil, err
	}
	observer := counts.And(denials).And(top.Observer())
	byAddress, err := limiter.New(addresses, addressBudgets,
		limiter.Config{Name: "address", Observer: observer})
	if err != nil {
		return nil, err
	}
	rulings := new(gate)
	byUser, err := limiter.New(users, userBudgets,
		limiter.Config{Name: "user", Observer: observer, Gate: rulings.ask})
	if err != nil {
		return nil, err
	}

	router := chi.NewRouter()
	routes := chiroute.New(router)
	limitAddress, err := middleware.New(byAddress,
		keying.ByAddress(keying.Addresses{}), routes.Route, middleware.Config{})
	if err != nil {
		return nil, err
	}
	limitUser, err := middleware.New(byUser,
		keying.Authenticated(keying.Refuse(challenge)), routes.Route, middleware.Config{})
	if err != nil {
		return nil, err
	}

	scrape := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	router.Handle("/metrics", scrape)
	router.Get("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	router.Route("/v1", func(v1 chi.Router) {
		v1.Use(limitAddress.Handler, authenticate, limitUser.Handler)
		v1.Get("/summaries/{id}", answer("summary"))
		v1.Get("/exports/{id}", answer("export"))
	})

	// All routes are registered: a budget on one that does not exist is an error, and
	// series that exist at 0 from the start show the first denial as an increase.
	if err := limitAddress.Check(); err != nil {
		return nil, err
	}
	if err := limitUser.Check(); err != nil {
		return nil, err
	}
	private := http.NewServeMux()
	private.Handle("GET /callers", top)
	(&operators{byUser, rulings}).routes(private)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", scrape)
	// A page in an operator's browser must not block users.
	mux.Handle("/", http.NewCrossOriginProtection().Handler(byIP(private)))
	return &Service{router, mux}, nil
}

// userOf says whose a token is: of alice, bob, or one of user-0 to user-99999, of whom a
// load test needs many. A real service looks tokens up.
func userOf(token string) (user string, ok bool) {
	user, ok = strings.CutSuffix(token, "-token")
	switch user {
	case "alice", "bob":
		return user, ok
	}
	number, numbered := strings.CutPrefix(user, "user-")
	n, err := strconv.Atoi(number)
	return user, ok && numbered && err == nil && n < 100_000 && number == strconv.Itoa(n)
}

// authenticate says who calls. Only what it has verified is counted.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		user, ok := userOf(token)
		if !ok {
			w.Header().Set("WWW-Authenticate", challenge)
			http.Error(w, "unknown token", http.StatusUnauthorized)
			return
		}
		ctx := keying.WithPrincipal(r.Context(), limiter.Principal{Kind: "user", ID: user})
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

func answer(what string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s\n", what, r.PathValue("id"))
	}
}
