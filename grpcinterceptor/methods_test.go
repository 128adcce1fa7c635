package grpcinterceptor_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/ration-go/ration/grpcinterceptor"
	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/metrics"
)

func TestInterceptor_CheckFindsBudgetsOnMethodsThatTheServerLacks(t *testing.T) {
	server := grpc.NewServer()
	grpc_testing.RegisterTestServiceServer(server, &service{})
	const meant = `want a method that the server has: "/grpc.testing.TestService/EmptyCall"`
	for _, tt := range []struct {
		name   string
		mixed  bool // the limiter serves HTTP, too
		routes []string
		wrong  int // which of them; -1: none
		want   string
	}{
		{"methods of the server, of its handler and unknown ones", false,
			[]string{emptyCall, duplex, "/other.Service/Method", keying.Unmatched}, -1, ""},
		{"of a server of net/http", true, []string{"GET /orders/{id}", "/orders/{id}", "/orders",
			"/orders/list", "/orders/*"}, -1, ""},
		{"another case", true, []string{emptyCall, "/grpc.testing.TestService/emptycall"}, 1, meant},
		{"another service", true, []string{"/grpc.testing.TestServices/EmptyCall"}, 0, meant},
		{"nothing like it", true, []string{"/acme.orders.v1.Orders/ListAllOfThem"}, 0,
			"want a method that the server has"},
		{"without the slash", true, []string{"grpc.testing.TestService/EmptyCall"}, 0, meant},
		{"with a slash too many", true, []string{duplex, emptyCall + "/"}, 1, meant},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := perUser(limiter.PerSecond(5))
			b.Routes = tt.routes
			l, _ := newLimiter(t, b)
			if tt.mixed {
				alsoServesHTTP(t, l)
			}
			i := intercept(t, l, users, grpcinterceptor.Config{
				Methods: []string{"/other.Service/Method"},
			})
			err := i.Check(server)
			if tt.wrong < 0 {
				require.NoError(t, err)
				return
			}
			var config *limiter.ConfigError
			require.ErrorAs(t, err, &config)
			assert.Equal(t, &limiter.ConfigError{
				Package: "grpcinterceptor",
				Field:   [...]string{`Budget "per-user".Routes[0]`, `Budget "per-user".Routes[1]`}[tt.wrong],
				Value:   tt.routes[tt.wrong], Reason: tt.want,
			}, config)
		})
	}
}

// alsoServesHTTP gives the limiter an adapter of HTTP.
func alsoServesHTTP(t *testing.T, l *limiter.Limiter) {
	t.Helper()
	_, err := l.Adapter().Setup("http", false, nil)
	require.NoError(t, err)
}

// Without another transport, each route has to be a method.
func TestInterceptor_CheckReportsAllWrongRoutes(t *testing.T) {
	const meant = `want a method that the server has: "/grpc.testing.TestService/EmptyCall"`
	server := grpc.NewServer()
	grpc_testing.RegisterTestServiceServer(server, &service{})
	one, two := perUser(limiter.PerSecond(5)), perUser(limiter.PerSecond(5))
	one.Name, one.Routes = "one", []string{"GET /orders/{id}", emptyCall, "/a/b"}
	two.Name, two.Routes = "two", []string{keying.Unmatched, "/grpc.testing.TestService/EmptyCal"}
	l, _ := newLimiter(t, two, one)
	err := intercept(t, l, users, grpcinterceptor.Config{}).Check(server)
	require.EqualError(t, err, strings.Join([]string{
		`grpcinterceptor: Budget "one".Routes[0] = "GET /orders/{id}": want a method that the server has`,
		`grpcinterceptor: Budget "one".Routes[2] = "/a/b": want a method that the server has`,
		`grpcinterceptor: Budget "two".Routes[1] = "/grpc.testing.TestService/EmptyCal": ` + meant,
	}, "\n"))
	var config *limiter.ConfigError
	require.ErrorAs(t, err, &config)
	assert.Equal(t, `Budget "one".Routes[0]`, config.Field)
}

func TestInterceptor_CheckSaysThatAServerHasNoServicesYet(t *testing.T) {
	for _, tt := range []struct {
		name   string
		routes []string
		cfg    grpcinterceptor.Config
		want   string
	}{
		{"no routes", nil, grpcinterceptor.Config{}, ""},
		{"unknown methods", []string{keying.Unmatched}, grpcinterceptor.Config{}, ""},
		{"a method of its handler", []string{"/other.Service/Method"},
			grpcinterceptor.Config{Methods: []string{"/other.Service/Method"}}, ""},
		{"a method", []string{emptyCall}, grpcinterceptor.Config{},
			"the server has no services yet: call Check once they are registered"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := perUser(limiter.PerSecond(5))
			b.Routes = tt.routes
			l, _ := newLimiter(t, b)
			err := intercept(t, l, users, tt.cfg).Check(grpc.NewServer())
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err,
				`grpcinterceptor: Budget "per-user".Routes[0] = "`+tt.routes[0]+`": `+tt.want)
		})
	}
}

// To a limiter that serves HTTP, too, these may be patterns of a mux, as connect
// registers them.
func TestInterceptor_CheckFindsAServiceWithoutAMethod(t *testing.T) {
	server := grpc.NewServer()
	grpc_testing.RegisterTestServiceServer(server, &service{})
	for _, route := range []string{"grpc.testing.TestService", "/grpc.testing.TestService",
		"/grpc.testing.TestService/"} {
		t.Run(route, func(t *testing.T) {
			b := perUser(limiter.PerSecond(5))
			b.Routes = []string{route}
			l, _ := newLimiter(t, b)
			i := intercept(t, l, users, grpcinterceptor.Config{})
			var config *limiter.ConfigError
			require.ErrorAs(t, i.Check(server), &config)
			assert.Equal(t, route, config.Value)
			assert.Contains(t, config.Reason, "want a method that the server has")

			alsoServesHTTP(t, l)
			require.NoError(t, i.Check(server))
		})
	}
}

func TestInterceptor_CheckLetsMetricsOfAllMethodsStartAtZero(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := metrics.New(registry)
	require.NoError(t, err)
	l, _ := limiterWith(t, limiter.Config{Name: "calls", Observer: m}, newStore(standing),
		perUser(slow))
	i := intercept(t, l, users, grpcinterceptor.Config{
		Methods: []string{"/other.Service/Method", "/other.Service/Another"},
	})
	server := start(t, "bufconn", chain(i)...)

	routes := i.Routes(server)
	assert.IsIncreasing(t, routes)
	assert.Subset(t, routes, []string{emptyCall, duplex, "/grpc.health.v1.Health/Check",
		"/other.Service/Method", "/other.Service/Another"})

	require.NoError(t, i.Check(server))
	denied := func(route string) float64 {
		t.Helper()
		families, err := registry.Gather()
		require.NoError(t, err)
		for _, family := range families {
			for _, series := range family.GetMetric() {
				var labels []string
				for _, label := range series.GetLabel() {
					labels = append(labels, label.GetValue())
				}
				if assert.ObjectsAreEqual([]string{"calls", "deny", route, "grpc"}, labels) {
					return series.GetCounter().GetValue()
				}
			}
		}
		t.Errorf("no series of %s", route)
		return -1
	}
	for _, route := range append(routes, keying.Unmatched) {
		assert.Zero(t, denied(route))
	}
	client := server.client(t, "{}")
	for range 3 {
		_, _ = client.EmptyCall(as(t, "alice"), empty)
	}
	assert.EqualValues(t, 2, denied(emptyCall))
}

// A service without a package is one of gRPC, too.
func TestInterceptor_CheckFindsMethodsOfAServiceWithoutAPackage(t *testing.T) {
	b := perUser(limiter.PerSecond(5))
	b.Routes = []string{"/Greeter/SayHello", "/orders/list", "/Greeter/SayHelo"}
	l, _ := newLimiter(t, b)
	alsoServesHTTP(t, l)
	i := intercept(t, l, users, grpcinterceptor.Config{})
	err := i.Check(services{"Greeter": {Methods: []grpc.MethodInfo{{Name: "SayHello"}}}})
	require.EqualError(t, err, `grpcinterceptor: Budget "per-user".Routes[2] = "/Greeter/SayHelo": `+
		`want a method that the server has: "/Greeter/SayHello"`)
}

type services map[string]grpc.ServiceInfo

func (s services) GetServiceInfo() map[string]grpc.ServiceInfo { return s }

func TestInterceptor_ReloadRefusesMethodsThatTheServerLacks(t *testing.T) {
	server := grpc.NewServer()
	grpc_testing.RegisterTestServiceServer(server, &service{})
	good := perUser(limiter.PerSecond(5))
	l, log := newLimiter(t, good)
	i := intercept(t, l, users, grpcinterceptor.Config{})
	bad := good
	bad.Routes = []string{"/grpc.testing.TestService/EmptyCal"}
	require.NoError(t, l.Reload([]limiter.Budget{bad}), "the methods are not known yet")
	require.NoError(t, l.Reload([]limiter.Budget{good}))
	require.NoError(t, i.Check(server))
	require.ErrorContains(t, l.Reload([]limiter.Budget{bad}), `Budget "per-user".Routes[0]`)
	assert.Contains(t, log.remaining(t, l, alicesDuplex), "per-user", "the budgets stay")
}

// A newcomer who never calls Check learns that nothing verifies the spelling.
func TestInterceptor_LogsOnceThatItWasNotChecked(t *testing.T) {
	server := grpc.NewServer()
	grpc_testing.RegisterTestServiceServer(server, &service{})
	check := func(i *grpcinterceptor.Interceptor) error { return i.Check(server) }
	misspelt := emptyCall + "s"
	for _, tt := range []struct {
		name   string
		routes []string
		before func(*grpcinterceptor.Interceptor) error // the first call
		want   []string
	}{
		{"a method", []string{emptyCall}, nil, []string{"route-unknown"}},
		{"a misspelt method", []string{misspelt}, nil, []string{"route-unknown"}},
		{"checked", []string{emptyCall}, check, nil},
		{"all methods", nil, nil, nil},
		{"unknown methods", []string{keying.Unmatched}, nil, nil},
		{"a method of Config.Methods", []string{"/proxied.Orders/List"}, nil, nil},
		{"routes of net/http", []string{"GET /orders/{id}", "/orders/{id}", "/orders"}, nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := perUser(limiter.PerHour(9))
			b.Routes = tt.routes
			l, log := newLimiter(t, b)
			i := intercept(t, l, users, grpcinterceptor.Config{
				Methods: []string{"/proxied.Orders/List"}})
			if tt.before != nil {
				require.NoError(t, tt.before(i))
			}
			client := start(t, "bufconn", chain(i)...).client(t, "{}")
			assert.Empty(t, log.warnings(), "before a call")
			for range 3 {
				_, err := streams[0].use(as(t, "alice"), client)
				require.NoError(t, err)
				_, err = client.EmptyCall(as(t, "alice"), empty)
				require.NoError(t, err)
			}
			assert.Equal(t, tt.want, log.warnings())
			if tt.want != nil {
				assert.Contains(t, log.logged(), "budgets=[per-user]")
			}
		})
	}
}

// Budgets that a Reload brings need Check as well, and it is still said once.
func TestInterceptor_LogsThatItWasNotCheckedAfterAReload(t *testing.T) {
	plain, onMethod := perUser(limiter.PerHour(9)), perUser(limiter.PerHour(9))
	onMethod.Routes = []string{emptyCall}
	l, log := newLimiter(t, plain)
	i := intercept(t, l, users, grpcinterceptor.Config{})
	client := start(t, "bufconn", chain(i)...).client(t, "{}")
	for _, budget := range []limiter.Budget{plain, onMethod, plain, onMethod} {
		require.NoError(t, l.Reload([]limiter.Budget{budget}))
		_, err := client.EmptyCall(as(t, "alice"), empty)
		require.NoError(t, err)
	}
	assert.Equal(t, []string{"route-unknown"}, log.warnings())
}

func TestCheck_KnowsServices(t *testing.T) {
	for route, ok := range map[string]bool{
		"/grpc.testing.TestService/*": true, "/grpc.testing.TestServices/*": false, "/TestService/*": false,
	} {
		b := perUser(slow)
		b.Routes = []string{route}
		l, _ := newLimiter(t, b)
		i := intercept(t, l, users, grpcinterceptor.Config{})
		server := start(t, "bufconn", chain(i)...)
		err := i.Check(server)
		if !ok {
			assert.ErrorContains(t, err, route)
			continue
		}
		require.NoError(t, err)
		client := server.client(t, "{}")
		_, err = client.EmptyCall(as(t, "alice"), empty)
		require.NoError(t, err)
		_, err = client.UnaryCall(as(t, "alice"), &grpc_testing.SimpleRequest{})
		assert.Equal(t, codes.ResourceExhausted, status.Code(err), "one budget for all methods")
	}
}
