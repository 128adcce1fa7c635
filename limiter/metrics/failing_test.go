package metrics_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
	"github.com/ration-go/ration/limiter/resilient"
)

// unreliable is a store that fails while down is set.
type unreliable struct {
	limiter.Store
	down bool
}

func (u *unreliable) Capabilities() limiter.Capabilities {
	return limiter.Capabilities{Name: "redis", BreakerOpen: func() bool { return false }}
}

var errDown = &limiter.StoreError{Reason: "unavailable", Err: errors.New("down")}

func (u *unreliable) Take(ctx context.Context, c []limiter.Charge) (limiter.Decision, error) {
	if u.down {
		return limiter.Decision{}, errDown
	}
	return u.Store.Take(ctx, c)
}

func (u *unreliable) Settle(ctx context.Context, c []limiter.Charge) error {
	if u.down {
		return errDown
	}
	return u.Store.Settle(ctx, c)
}

// The share of a process says nothing about near_limit, so that a local decision counts
// as allow or deny of the budget; shadow budgets are not counted.
func TestMetrics_CountLocalDecisionsAndLostSettles(t *testing.T) {
	reg := prometheus.NewRegistry()
	observer := newMetrics(t, reg)
	shared := &unreliable{Store: limiter.Must(memstore.New(memstore.Config{}))}
	store := limiter.Must(resilient.New(shared, limiter.Must(memstore.New(memstore.Config{})),
		resilient.Config{Replicas: func() int { return 10 }}))
	l := limiter.Must(limiter.New(store, []limiter.Budget{
		{Name: "a", Limit: limiter.PerHour(20), OnError: limiter.Local},
		{Name: "b", Limit: limiter.PerHour(30), OnError: limiter.Local, Shadow: true},
	}, limiter.Config{Name: "api", Observer: observer, Logger: slog.New(slog.DiscardHandler)}))
	compare := func(metric, help string, lines ...string) {
		t.Helper()
		assert.NoError(t, testutil.GatherAndCompare(reg,
			strings.NewReader(text(metric, help, lines...)), metric))
	}
	const (
		local = "Requests that the local side of a store has decided, because the store failed."
		lost  = "Corrections of reserved costs that a store has not made, as far as is known."
	)
	compare("ration_local_decisions_total", local,
		`ration_local_decisions_total{limiter="api",store="redis"} 0`)
	compare("ration_settles_lost_total", lost, `ration_settles_lost_total{limiter="api",store="redis"} 0`)

	r, err := l.Reserve(t.Context(), limiter.Caller{}, 1)
	require.NoError(t, err)
	shared.down = true
	require.Error(t, r.Cancel(t.Context()))
	for range 3 {
		_, _ = l.Take(t.Context(), limiter.Caller{}, 1)
	}
	compare("ration_local_decisions_total", local,
		`ration_local_decisions_total{limiter="api",store="redis"} 3`)
	compare("ration_settles_lost_total", lost, `ration_settles_lost_total{limiter="api",store="redis"} 1`)
	compare("ration_budget_decisions_total", "Decisions of a limiter, by the budget that decided.",
		`ration_budget_decisions_total{budget="a",limiter="api",outcome="allow"} 3`,
		`ration_budget_decisions_total{budget="a",limiter="api",outcome="deny"} 1`,
		`ration_budget_decisions_total{budget="a",limiter="api",outcome="near_limit"} 0`,
		`ration_budget_decisions_total{budget="a",limiter="api",outcome="never"} 0`,
		`ration_budget_decisions_total{budget="a",limiter="api",outcome="shadow_allow"} 0`,
		`ration_budget_decisions_total{budget="a",limiter="api",outcome="shadow_deny"} 0`,
		`ration_budget_decisions_total{budget="b",limiter="api",outcome="allow"} 0`,
		`ration_budget_decisions_total{budget="b",limiter="api",outcome="deny"} 0`,
		`ration_budget_decisions_total{budget="b",limiter="api",outcome="near_limit"} 0`,
		`ration_budget_decisions_total{budget="b",limiter="api",outcome="never"} 0`,
		`ration_budget_decisions_total{budget="b",limiter="api",outcome="shadow_allow"} 1`,
		`ration_budget_decisions_total{budget="b",limiter="api",outcome="shadow_deny"} 0`)
}
