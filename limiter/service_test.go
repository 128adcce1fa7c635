package limiter_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
)

func TestRoutes_AServiceIsAllItsMethods(t *testing.T) {
	store := limiter.Must(memstore.New(memstore.Config{}))
	l := limiter.Must(limiter.New(store, []limiter.Budget{{
		Name: "orders", Limit: limiter.PerHour(1000), Routes: []string{"/pkg.Orders/*", "/files/*", "GET /x"},
	}}, limiter.Config{}))
	for route, want := range map[string]bool{
		"/pkg.Orders/Get": true, "/pkg.Orders/": true, "/pkg.Orders/*": true, "GET /x": true, "/files/*": true,
		"/pkg.Orders": false, "/pkg.Orders/a/b": false, "/pkg.OrdersToo/Get": false, "GET /pkg.Orders/Get": false,
		"/files/a": false, "/other.Orders/Get": false, "unmatched": false, "": false,
	} {
		d, err := l.Take(t.Context(), limiter.Caller{Route: route}, 1)
		require.NoError(t, err)
		assert.Equal(t, want, d.Budget == "orders", route)
	}
}

func TestRoutes_AServiceBoundsTheWorkloadsOfItsMethods(t *testing.T) {
	store := limiter.Must(memstore.New(memstore.Config{}))
	workloads := func(routes ...string) limiter.Budget {
		return limiter.Budget{Name: "workload", Scope: limiter.ByPrincipal | limiter.ByWorkload,
			Limit: limiter.PerHour(1), Routes: routes}
	}
	service := limiter.Budget{Name: "own", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(1),
		Routes: []string{"/pkg.Orders/*"}}
	_, err := limiter.New(store, []limiter.Budget{workloads("/pkg.Orders/Get"), service}, limiter.Config{})
	require.NoError(t, err)
	_, err = limiter.New(store, []limiter.Budget{workloads("/pkg.Orders/*"), service}, limiter.Config{})
	require.NoError(t, err)
	service.Routes = []string{"/pkg.Orders/Get", "/pkg.Orders/List"}
	_, err = limiter.New(store, []limiter.Budget{workloads("/pkg.Orders/*"), service}, limiter.Config{})
	assert.Error(t, err, "the service may have other methods")
}
