package grpcinterceptor_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/interop/grpc_testing"

	"github.com/ration-go/ration/grpcinterceptor"
	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
	"github.com/ration-go/ration/limiter/metrics"
)

func TestInterceptor_CheckFindsBudgetsOnMethodsThatTheServerLacks(t *testing.T) {
	server := grpc.NewServer()
	grpc_testing.RegisterTestServiceServer(server, &service{})
	const meant = `want a method that the server has: "/grpc.testing.TestService/EmptyCall"`
	for _, tt := range []struct {
		name   string
		routes []string
		wrong  int // which of them; -1: none
		want   string
	}{
		{"methods of the server, of its handler and unknown ones",
			[]string{emptyCall, duplex, "/other.Service/Method", keying.Unmatched}, -1, ""},
		{"of a server of net/http", []string{"GET /orders/{id}", "/orders/{id}", "/orders",
			"/orders/list", "/orders/*"}, -1, ""},
		{"another case", []string{emptyCall, "/grpc.testing.TestService/emptycall"}, 1, meant},
		{"another service", []string{"/grpc.testing.TestServices/EmptyCall"}, 0, meant},
		{"nothing like it", []string{"/acme.orders.v1.Orders/ListAllOfThem"}, 0,
			"want a method that the server has"},
		{"without the slash", []string{"grpc.testing.TestService/EmptyCall"}, 0, meant},
		{"with a slash too many", []string{duplex, emptyCall + "/"}, 1, meant},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := perUser(limiter.PerSecond(5))
			b.Routes = tt.routes
			l, _ := newLimiter(t, standing, b)
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

func TestInterceptor_RoutesLetMetricsStartAtZero(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := metrics.New(registry)
	require.NoError(t, err)
	l, err := limiter.New(limiter.Must(memstore.New(memstore.Config{})),
		[]limiter.Budget{perUser(slow)}, limiter.Config{Name: "calls", Observer: m})
	require.NoError(t, err)
	i := intercept(t, l, users, grpcinterceptor.Config{
		Methods: []string{"/other.Service/Method", "/other.Service/Another"},
	})
	server := start(t, "bufconn", chain(i)...)

	routes := i.Routes(server)
	assert.IsIncreasing(t, routes)
	assert.Subset(t, routes, []string{emptyCall, duplex, "/grpc.health.v1.Health/Check",
		"/other.Service/Method", "/other.Service/Another"})

	m.Routes(l.Name(), "grpc", routes...)
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
	l, _ := newLimiter(t, standing, b)
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
	l, _ := newLimiter(t, standing, good)
	i := intercept(t, l, users, grpcinterceptor.Config{})
	bad := good
	bad.Routes = []string{"/grpc.testing.TestService/EmptyCal"}
	require.NoError(t, l.Reload([]limiter.Budget{bad}), "the methods are not known yet")
	require.NoError(t, l.Reload([]limiter.Budget{good}))
	require.NoError(t, i.Check(server))
	require.ErrorContains(t, l.Reload([]limiter.Budget{bad}), `Budget "per-user".Routes[0]`)
	assert.Empty(t, l.Budgets()[0].Routes, "the budgets stay")
}
