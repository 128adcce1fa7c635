package metrics_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
	"github.com/ration-go/ration/limiter/metrics"
)

const (
	requests  = "ration_requests_total"
	decisions = "ration_budget_decisions_total"
)

func newMetrics(t testing.TB, reg prometheus.Registerer) *metrics.Metrics {
	t.Helper()
	m, err := metrics.New(reg)
	require.NoError(t, err)
	return m
}

// newLimiter returns a limiter with one budget, "shared", of two tokens.
func newLimiter(t testing.TB, name string, m *metrics.Metrics) *limiter.Limiter {
	t.Helper()
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	store, err := memstore.New(memstore.Config{Now: func() time.Time { return at }})
	require.NoError(t, err)
	l, err := limiter.New(store, []limiter.Budget{{Name: "shared", Limit: limiter.PerMinute(2)}},
		limiter.Config{Name: name, Observer: m})
	require.NoError(t, err)
	return l
}

func take(t testing.TB, l *limiter.Limiter, costs ...int64) {
	t.Helper()
	for _, cost := range costs {
		_, err := l.Take(context.Background(), limiter.Caller{}, cost)
		require.NoError(t, err)
	}
}

// text returns the exposition of a metric with the given samples.
func text(name, help string, samples ...string) string {
	return fmt.Sprintf("# HELP %s %s\n# TYPE %s counter\n%s\n",
		name, help, name, strings.Join(samples, "\n"))
}

func TestMetrics_KnownSeriesStartAtZero(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := newMetrics(t, reg)
	l := newLimiter(t, "api", m)
	m.Routes("api", "http", "GET /orders/{id}")

	sample := func(deny int) string {
		return text(decisions, "Decisions of a limiter, by the budget that decided.",
			`ration_budget_decisions_total{budget="shared",limiter="api",outcome="allow"} 0`,
			fmt.Sprintf(`ration_budget_decisions_total{budget="shared",limiter="api",`+
				`outcome="deny"} %d`, deny),
			`ration_budget_decisions_total{budget="shared",limiter="api",outcome="near_limit"} 0`,
			`ration_budget_decisions_total{budget="shared",limiter="api",outcome="never"} 0`,
			`ration_budget_decisions_total{budget="shared",limiter="api",outcome="shadow_allow"} 0`,
			`ration_budget_decisions_total{budget="shared",limiter="api",outcome="shadow_deny"} 0`,
		)
	}
	assert.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(sample(0)), decisions))
	m.Decided(limiter.DecisionEvent{
		Limiter: l.Name(), Budget: "shared", Verdict: limiter.VerdictDeny,
	})
	assert.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(sample(1)), decisions))

	want := []string{}
	for _, route := range []string{"GET /orders/{id}", "unmatched"} {
		for _, outcome := range []string{"allow", "canceled", "deny", "error_closed",
			"error_open", "never", "skipped", "unauthenticated"} {
			want = append(want, fmt.Sprintf(`ration_requests_total{limiter="api",outcome="%s",`+
				`route="%s",transport="http"} 0`, outcome, route))
		}
	}
	assert.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(
		text(requests, "Requests that an adapter has seen, by what became of them.", want...),
	), requests))
}

func TestMetrics_NamesPassTheLinter(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	m := newMetrics(t, reg)
	newLimiter(t, "api", m)
	m.Routes("api", "grpc", "/orders.Orders/Get")
	problems, err := testutil.GatherAndLint(reg)
	require.NoError(t, err)
	assert.Empty(t, problems)
}

func TestMetrics_CountsWhatALimiterDecides(t *testing.T) {
	reg := prometheus.NewRegistry()
	l := newLimiter(t, "api", newMetrics(t, reg))
	take(t, l, 1, 1, 1, 3)
	l.Answered("http", "GET /", limiter.AnswerDeny)

	assert.Equal(t, map[string]float64{"allow": 1, "near_limit": 1, "deny": 1, "never": 1},
		counted(t, reg, decisions, "limiter", "api"))
	assert.Equal(t, map[string]float64{"deny": 1}, counted(t, reg, requests, "route", "GET /"))
}

// counted returns the outcomes above 0 of the series that have the label.
func counted(t testing.TB, reg prometheus.Gatherer, name, label, value string) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	found := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, pair := range m.GetLabel() {
				labels[pair.GetName()] = pair.GetValue()
			}
			if n := m.GetCounter().GetValue(); family.GetName() == name && n > 0 &&
				labels[label] == value {
				found[labels["outcome"]] += n
			}
		}
	}
	return found
}

func TestMetrics_ManyLimitersShareARegistry(t *testing.T) {
	reg := prometheus.NewRegistry()
	first, second := newMetrics(t, reg), newMetrics(t, reg)
	take(t, newLimiter(t, "public", first), 2)
	take(t, newLimiter(t, "internal", second), 3)
	take(t, newLimiter(t, "internal", first), 3)

	assert.Equal(t, map[string]float64{"near_limit": 1},
		counted(t, reg, decisions, "limiter", "public"))
	assert.Equal(t, map[string]float64{"never": 2},
		counted(t, reg, decisions, "limiter", "internal"))
}

func TestMetrics_WrappedRegistererIsRecognised(t *testing.T) {
	reg := prometheus.NewRegistry()
	wrapped := prometheus.WrapRegistererWith(prometheus.Labels{"service": "orders"}, reg)
	first, second := newMetrics(t, wrapped), newMetrics(t, wrapped)
	take(t, newLimiter(t, "api", first), 3)
	take(t, newLimiter(t, "api", second), 3)
	newMetrics(t, prometheus.WrapRegistererWith(prometheus.Labels{"service": "users"}, reg))
	assert.Equal(t, map[string]float64{"never": 2},
		counted(t, reg, decisions, "service", "orders"))
}

func TestNew_ForeignCollectorOfTheNameIsAnError(t *testing.T) {
	for _, labels := range [][]string{{"limiter", "transport", "route", "outcome"}, {"code"}} {
		reg := prometheus.NewRegistry()
		reg.MustRegister(prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: requests, Help: "Requests that an adapter has seen, by what became of them.",
		}, labels))
		_, err := metrics.New(reg)
		require.ErrorContains(t, err, requests)

		again := prometheus.NewCounter(prometheus.CounterOpts{Name: decisions})
		assert.NoError(t, reg.Register(again), "nothing was registered")
	}
}

func TestNew_NilRegistererCountsAndCanBeRegisteredLater(t *testing.T) {
	m := newMetrics(t, nil)
	take(t, newLimiter(t, "api", m), 3)
	reg := prometheus.NewRegistry()
	require.NoError(t, reg.Register(m))
	assert.Same(t, m, newMetrics(t, reg))
	assert.Equal(t, map[string]float64{"never": 1}, counted(t, reg, decisions, "limiter", "api"))
}

func TestMetrics_TextThatCannotBeALabelIsOther(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := newMetrics(t, reg)
	for _, route := range []string{"\xff", "/a\xc3", ""} {
		m.Answered(limiter.RequestEvent{Limiter: "api", Transport: "http", Route: route})
		m.Routes("api", "http", route)
		m.Decided(limiter.DecisionEvent{Limiter: "api", Budget: route})
		m.Configured(route, []string{route})
	}
	hostile := "GET /\"}\n evil 1 {a=\"\\"
	m.Answered(limiter.RequestEvent{Limiter: "api", Transport: "http", Route: hostile})

	assert.Equal(t, map[string]float64{"allow": 3}, counted(t, reg, requests, "route", "other"))
	assert.Equal(t, map[string]float64{"allow": 1}, counted(t, reg, requests, "route", hostile))
	assert.Equal(t, map[string]float64{"allow": 3}, counted(t, reg, decisions, "budget", "other"))
}

func TestMetrics_UnknownOutcomesAreNotCounted(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := newMetrics(t, reg)
	m.Answered(limiter.RequestEvent{Limiter: "api", Transport: "http", Route: "/", Answer: 200})
	m.Decided(limiter.DecisionEvent{Limiter: "api", Budget: "shared", Verdict: 200})
	assert.Empty(t, counted(t, reg, requests, "route", "/"))
	assert.Empty(t, counted(t, reg, decisions, "budget", "shared"))
}

func TestMetrics_RoutesNobodyDeclaredAreBounded(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := newMetrics(t, reg)
	for i := range 1500 {
		m.Answered(limiter.RequestEvent{
			Limiter: "api", Transport: "http", Route: fmt.Sprint("/", i),
		})
	}
	assert.Equal(t, map[string]float64{"allow": 500}, counted(t, reg, requests, "route", "other"))
	assert.Equal(t, map[string]float64{"allow": 1}, counted(t, reg, requests, "route", "/999"))
	n, err := testutil.GatherAndCount(reg, requests)
	require.NoError(t, err)
	assert.Equal(t, 1001*len(limiter.Answers()), n)

	m.Routes("api", "http", "/declared")
	m.Answered(limiter.RequestEvent{Limiter: "api", Transport: "http", Route: "/declared"})
	assert.Equal(t, map[string]float64{"allow": 1}, counted(t, reg, requests, "route", "/declared"))
}

func TestMetrics_CountsEveryEventOfManyGoroutines(t *testing.T) {
	const goroutines, events = 16, 500
	reg := prometheus.NewRegistry()
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			m, err := metrics.New(reg)
			if !assert.NoError(t, err) {
				return
			}
			for i := range events {
				route := fmt.Sprint("/", i%20)
				m.Answered(limiter.RequestEvent{Limiter: "api", Transport: "grpc", Route: route})
				m.Configured("api", []string{"shared", route})
				m.Decided(limiter.DecisionEvent{Limiter: "api", Budget: "shared"})
			}
		})
	}
	wg.Wait()
	want := map[string]float64{"allow": goroutines * events}
	assert.Equal(t, want, counted(t, reg, requests, "limiter", "api"))
	assert.Equal(t, want, counted(t, reg, decisions, "limiter", "api"))
}

func TestMetrics_CountingDoesNotAllocate(t *testing.T) {
	m := newMetrics(t, prometheus.NewRegistry())
	r := limiter.RequestEvent{Limiter: "api", Transport: "http", Route: "GET /orders/{id}"}
	d := limiter.DecisionEvent{Limiter: "api", Budget: "shared"}
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		m.Answered(r)
		m.Decided(d)
	}))
}

func TestNew_RefusesANilPointer(t *testing.T) {
	var registry *prometheus.Registry
	for _, reg := range []prometheus.Registerer{registry, (*wrapped)(nil)} {
		m, err := metrics.New(reg)
		var config *limiter.ConfigError
		require.ErrorAs(t, err, &config)
		assert.Nil(t, m)
		assert.Equal(t, "Registerer", config.Field)
	}
	_, err := metrics.New(registry)
	assert.EqualError(t, err, "metrics: Registerer = *prometheus.Registry: the pointer is nil: "+
		"want prometheus.NewRegistry(), or a nil interface")
}

// wrapped is a Registerer of a service's own.
type wrapped struct{ prometheus.Registerer }

func TestMetrics_CountWhatShadowBudgetsWouldDo(t *testing.T) {
	reg := prometheus.NewRegistry()
	store := limiter.Must(memstore.New(memstore.Config{}))
	l := limiter.Must(limiter.New(store, []limiter.Budget{
		{Name: "trial", Limit: limiter.PerDay(2), Shadow: true},
		{Name: "typo", Limit: limiter.PerDay(2), Shadow: true, Routes: []string{"POST /logn"}},
	}, limiter.Config{Name: "api", Observer: newMetrics(t, reg)}))
	take(t, l, 1, 1, 1)
	var want []string
	for _, budget := range []struct {
		name  string
		allow int
		deny  int
	}{{"trial", 2, 1}, {"typo", 0, 0}} {
		for _, outcome := range []string{"allow", "deny", "near_limit", "never"} {
			want = append(want, fmt.Sprintf(`ration_budget_decisions_total{budget="%s",limiter="api",`+
				`outcome="%s"} 0`, budget.name, outcome))
		}
		for outcome, n := range map[string]int{"shadow_allow": budget.allow, "shadow_deny": budget.deny} {
			want = append(want, fmt.Sprintf(`ration_budget_decisions_total{budget="%s",limiter="api",`+
				`outcome="%s"} %d`, budget.name, outcome, n))
		}
	}
	assert.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(
		text(decisions, "Decisions of a limiter, by the budget that decided.", want...)), decisions))
}
