package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/keying/chiroute"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/middleware"
)

// service is a router whose routes are registered after the middleware is made.
type service struct {
	name   string
	finder keying.Route
	router http.Handler
	routes func()
}

func services() []service {
	router := chi.NewRouter()
	mux := http.NewServeMux()
	return []service{
		{"chi", chiroute.New(router).Route, router, func() {
			router.Post("/login", noop)
			router.Get("/orders/list", noop)
		}},
		{"mux", keying.Mux(mux), mux, func() {
			mux.HandleFunc("POST /login", noop)
			mux.HandleFunc("GET /orders/list", noop)
		}},
	}
}

func TestMiddleware_CheckNamesTheBudgetAndTheNearestRoute(t *testing.T) {
	for _, tt := range []struct{ route, want string }{
		{"POST /login/", `"POST /login"`},
		{"/login", `"POST /login"`},
		{"GET /login", `"POST /login"`},
		{"/orders/list", `"GET /orders/list"`}, // it has the form of a gRPC method
		{"POST /login", ""},
		{keying.Unmatched, ""},
		{"/Greeter/SayHello", ""}, // of gRPC
		{"/acme.v1.Orders/List", ""},
	} {
		for _, s := range services() {
			t.Run(s.name+" "+tt.route, func(t *testing.T) {
				l, _ := logged(t, many("GET /orders/list", tt.route))
				m, err := middleware.New(l, byUser, s.finder, middleware.Config{})
				require.NoError(t, err)
				s.routes()
				if err = m.Check(); tt.want == "" {
					require.NoError(t, err)
					return
				}
				require.EqualError(t, err, `middleware: Budget "many".Routes[1] = "`+tt.route+
					`": want a route that the router has: `+tt.want)
			})
		}
	}
}

func TestMiddleware_CheckKnowsNothingOfSingleHandlers(t *testing.T) {
	l, _ := logged(t, many("POST /logn"))
	assert.NoError(t, limiter.Must(middleware.New(l, byUser, keying.Pattern,
		middleware.Config{})).Check())
}

// A chi router that has routes can be checked at once.
func TestNew_RefusesABudgetOnARouteThatTheRouterLacks(t *testing.T) {
	router := chi.NewRouter()
	router.Post("/login", noop)
	l, _ := logged(t, many("POST /logn"))
	_, err := middleware.New(l, byUser, chiroute.New(router).Route, middleware.Config{})
	require.EqualError(t, err, `middleware: Budget "many".Routes[0] = "POST /logn": `+
		`want a route that the router has: "POST /login"`)
}

func TestMiddleware_ReloadRefusesARouteThatTheRouterLacks(t *testing.T) {
	for _, after := range []string{"Check", "the first request"} {
		for _, s := range services() {
			t.Run(s.name+" after "+after, func(t *testing.T) {
				l, log := logged(t, many("POST /login"))
				m := limiter.Must(middleware.New(l, byUser, s.finder, middleware.Config{}))
				require.NoError(t, l.Reload([]limiter.Budget{many("POST /logn")}), "no routes yet")
				require.NoError(t, l.Reload([]limiter.Budget{many("POST /login")}))
				s.routes()
				if after == "Check" {
					require.NoError(t, m.Check())
				} else {
					m.Handler(s.router).ServeHTTP(httptest.NewRecorder(),
						httptest.NewRequest("GET", "/", nil))
				}
				require.ErrorContains(t, l.Reload([]limiter.Budget{many("POST /logn")}),
					`Budget "many".Routes[0] = "POST /logn"`)
				require.Error(t, l.Reload([]limiter.Budget{many("HEAD /orders/list")}))
				assert.Equal(t, []string{"POST /login"}, l.Budgets()[0].Routes, "the budgets stay")
				assert.Empty(t, log.String())
			})
		}
	}
}

// Without Check, the first request tells.
func TestMiddleware_TellsOfARouteThatTheRouterLacks(t *testing.T) {
	for _, s := range services() {
		l, log := logged(t, many("/login"))
		m := limiter.Must(middleware.New(l, byUser, s.finder, middleware.Config{}))
		s.routes()
		for range 2 {
			m.Handler(s.router).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
		}
		assert.Equal(t, []string{"route-unknown"}, told(log), s.name)
		assert.Contains(t, log.String(), `\"/login\": want a route that the router has: \"POST /login\"`)
	}
}

// A limiter that serves HTTP and gRPC has routes of both.
func TestMiddleware_TellsNothingOfMethodsOfGRPC(t *testing.T) {
	for _, s := range services() {
		l, log := logged(t, many("/Greeter/SayHello", "/acme.v1.Orders/List", "POST /login"))
		m := limiter.Must(middleware.New(l, byUser, s.finder, middleware.Config{}))
		s.routes()
		m.Handler(s.router).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
		assert.Empty(t, log.String(), s.name)
	}
}

// CONNECT past a budget, over a real connection: the mux serves it by "/files/",
// though a redirect would lead to "/files/{$}".
func TestMiddleware_ChargesCONNECTOnThePatternThatServes(t *testing.T) {
	mux := http.NewServeMux()
	served := 0
	mux.HandleFunc("/files/", func(http.ResponseWriter, *http.Request) { served++ })
	mux.HandleFunc("/files/{$}", noop)
	l, _ := logged(t, limiter.Budget{Name: "files", Limit: limiter.PerHour(2),
		Routes: []string{"/files/"}})
	m := limiter.Must(middleware.New(l, byAddress, keying.Mux(mux), middleware.Config{}))
	server := serve(t, m.Handler(mux))
	for range 6 {
		send(t, server, "CONNECT /files/secret HTTP/1.1\r\nHost: a\r\n\r\n")
	}
	server.Close() // waits for the handlers
	assert.Equal(t, 2, served)
}

// POST past a budget: chi serves it by the handler beside a mounted router.
func TestMiddleware_ChargesAHandlerBesideAMountedRouter(t *testing.T) {
	router := chi.NewRouter()
	served := 0
	l, _ := logged(t, limiter.Budget{Name: "hooks", Limit: limiter.PerHour(3),
		Routes: []string{"POST /hooks/*"}})
	m := limiter.Must(middleware.New(l, byAddress, chiroute.New(router).Route, middleware.Config{}))
	router.Use(m.Handler)
	router.Route("/hooks", func(r chi.Router) { r.Get("/list", noop) })
	router.Post("/hooks/*", func(http.ResponseWriter, *http.Request) { served++ })
	require.NoError(t, m.Check())
	for range 50 {
		router.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/hooks/github", nil))
	}
	assert.Equal(t, 3, served)
}
