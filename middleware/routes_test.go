package middleware_test

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/keying/chiroute"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
	"github.com/ration-go/ration/limiter/metrics"
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
				assert.Equal(t, []string{"POST /login"}, budgetsOf(t, l)[0].Routes, "the budgets stay")
				assert.Empty(t, log.String())
			})
		}
	}
}

// budgetsOf returns the budgets of a limiter, as adapters see them.
func budgetsOf(t *testing.T, l *limiter.Limiter) (budgets []limiter.Budget) {
	t.Helper()
	_, err := l.Adapter().Setup("http", false,
		func(b []limiter.Budget, _ limiter.Capabilities, _ []string) error {
			budgets = b
			return nil
		})
	require.NoError(t, err)
	return budgets
}

// Without Check, the first request tells.
func TestMiddleware_LogsARouteThatTheRouterLacks(t *testing.T) {
	for _, s := range services() {
		l, log := logged(t, many("/login"))
		m := limiter.Must(middleware.New(l, byUser, s.finder, middleware.Config{}))
		s.routes()
		for range 2 {
			m.Handler(s.router).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
		}
		assert.Equal(t, []string{"route-unknown"}, codes(log), s.name)
		assert.Contains(t, log.String(), `\"/login\": want a route that the router has: \"POST /login\"`)
	}
}

// methods are routes in the form of gRPC that no router of these tests has.
var methods = []string{"/v1/ordes", "/Greeter/SayHello", "/acme.v1.Orders/List"}

// setUpGRPC sets an adapter of gRPC up that does not know its methods yet.
func setUpGRPC(t *testing.T, l *limiter.Limiter) {
	t.Helper()
	_, err := l.Adapter().Setup("grpc", false, nil)
	require.NoError(t, err)
}

// With HTTP alone, a route of two segments without a method is a mistake like any
// other, as "/v1/ordes" for "/v1/orders" is.
func TestMiddleware_CheckRefusesTheFormOfGRPCWithoutGRPC(t *testing.T) {
	for _, route := range methods {
		for _, s := range services() {
			l, log := logged(t, many(route))
			m := limiter.Must(middleware.New(l, byUser, s.finder, middleware.Config{}))
			s.routes()
			require.ErrorContains(t, m.Check(), `middleware: Budget "many".Routes[0] = "`+route+
				`": want a route that the router has`, s.name)
			require.Error(t, l.Reload([]limiter.Budget{many(route)}))
			assert.Empty(t, log.String())
		}
	}
}

// A limiter that serves HTTP and gRPC has routes of both: what may be a method is
// passed over, and what is another spelling of a route of the router is not.
func TestMiddleware_CheckPassesOverTheFormOfGRPCBesideGRPC(t *testing.T) {
	for _, grpcFirst := range []bool{false, true} {
		for _, s := range services() {
			l, log := logged(t, many(append([]string{"POST /login"}, methods...)...))
			if grpcFirst {
				setUpGRPC(t, l)
			}
			m := limiter.Must(middleware.New(l, byUser, s.finder, middleware.Config{}))
			if !grpcFirst {
				setUpGRPC(t, l)
			}
			s.routes()
			m.Handler(s.router).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
			require.NoError(t, m.Check())
			assert.Empty(t, log.String(), s.name)
			for _, route := range []string{"/orders/list", "/orders/", "POST /logn"} {
				require.ErrorContains(t, l.Reload([]limiter.Budget{many(route)}),
					`Routes[0] = "`+route+`"`)
			}
		}
	}
}

func TestMiddleware_CheckNamesAllWrongRoutesAtOnce(t *testing.T) {
	hourly := many("GET /order", "POST /login", "HEAD /orders/list")
	daily := limiter.Budget{Name: "daily", Scope: limiter.ByPrincipal, Limit: limiter.PerDay(1e9),
		Routes: []string{"GET /orders/lst"}}
	want := []string{
		`middleware: Budget "daily".Routes[0] = "GET /orders/lst": `,
		`middleware: Budget "many".Routes[0] = "GET /order": `,
		`middleware: Budget "many".Routes[2] = "HEAD /orders/list": `,
	}
	names := func(t *testing.T, err error) {
		t.Helper()
		var config *limiter.ConfigError
		require.ErrorAs(t, err, &config)
		lines := strings.Split(err.Error(), "\n")
		require.Len(t, lines, len(want), err)
		for i, line := range lines {
			assert.Contains(t, line, want[i])
		}
	}
	for _, s := range services() {
		l, log := logged(t, many())
		m := limiter.Must(middleware.New(l, byUser, s.finder, middleware.Config{}))
		s.routes()
		require.NoError(t, m.Check())
		names(t, l.Reload([]limiter.Budget{daily, hourly}))
		assert.Empty(t, log.String())
	}
	hourly.Routes[2], want[2] = "POST /logn", `middleware: Budget "many".Routes[2] = "POST /logn": `
	for _, s := range services() {
		l, log := logged(t, hourly, daily)
		m := limiter.Must(middleware.New(l, byUser, s.finder, middleware.Config{}))
		s.routes()
		names(t, m.Check())
		assert.Empty(t, log.String())
	}
	for _, s := range services() { // without Check, by one log line
		l, log := logged(t, hourly, daily)
		m := limiter.Must(middleware.New(l, byUser, s.finder, middleware.Config{}))
		s.routes()
		m.Handler(s.router).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
		assert.Equal(t, []string{"route-unknown"}, codes(log))
		for _, text := range want {
			assert.Contains(t, log.String(), strings.ReplaceAll(text, `"`, `\"`))
		}
	}
}

// Dashboards show all routes at 0 before the first request.
func TestMiddleware_MetricsOfAllRoutesExistAfterCheck(t *testing.T) {
	for _, check := range []bool{true, false} {
		router := chi.NewRouter()
		registry := prometheus.NewRegistry()
		l := limiter.Must(limiter.New(limiter.Must(memstore.New(memstore.Config{})),
			[]limiter.Budget{many()}, limiter.Config{
				Observer: limiter.Must(metrics.New(registry))}))
		m := limiter.Must(middleware.New(l, byAddress, chiroute.New(router).Route,
			middleware.Config{}))
		router.Use(m.Handler)
		router.Get("/orders/{id}", noop)
		router.Route("/api", func(r chi.Router) { r.Post("/login", noop) })
		if check {
			require.NoError(t, m.Check())
		} else {
			router.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/none", nil))
		}
		assert.Subset(t, slices.Collect(maps.Keys(routesOf(t, registry))),
			[]string{"GET /orders/{id}", "POST /api/login", keying.Unmatched}, "Check: %t", check)
		for route, n := range routesOf(t, registry) {
			assert.True(t, n == 0 || !check && route == keying.Unmatched, route)
		}
	}
}

// routesOf returns how many requests ration_requests_total states for each route.
func routesOf(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	routes := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if family.GetName() == "ration_requests_total" && label.GetName() == "route" {
					routes[label.GetValue()] += metric.GetCounter().GetValue()
				}
			}
		}
	}
	return routes
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

func TestCheck_KnowsProceduresAndServices(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/pkg.Orders/", func(http.ResponseWriter, *http.Request) {})
	route := keying.Procedures(keying.Mux(mux), "/pkg.Orders/Get")
	for name, ok := range map[string]bool{
		"/pkg.Orders/Get": true, "/pkg.Orders/*": true, "/pkg.Orders/": true, "/pkg.Orders/Gett": false,
		"/pkg.Order/*": false,
	} {
		budget := limiter.Budget{Name: "orders", Limit: limiter.PerHour(1), Routes: []string{name}}
		for _, finder := range []keying.Route{route, keying.Mux(mux)} {
			m, err := middleware.New(newFixture(t, budget).limiter, byAddress, finder, middleware.Config{})
			require.NoError(t, err)
			err = m.Check()
			if ok && (name != "/pkg.Orders/Get" || reflect.ValueOf(finder) == reflect.ValueOf(route)) {
				assert.NoError(t, err, name)
			} else {
				assert.ErrorContains(t, err, `Budget "orders".Routes[0]`, name)
			}
		}
	}
}
