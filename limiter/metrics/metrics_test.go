package metrics_test

import (
	"cmp"
	"context"
	"fmt"
	"math"
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
	"github.com/ration-go/ration/limiter/storekit"
)

const (
	requests  = "ration_requests_total"
	decisions = "ration_budget_decisions_total"
)

// outcomes are those of requests, which dashboards know by these names.
var outcomes = []string{"allow", "canceled", "deny", "error_closed", "error_local", "error_open", "never",
	"skipped", "unauthenticated"}

func newMetrics(t testing.TB, reg prometheus.Registerer) limiter.Observer {
	t.Helper()
	m, err := metrics.New(reg)
	require.NoError(t, err)
	return m
}

// newLimiter returns a limiter with one budget, "shared", of two tokens.
func newLimiter(t testing.TB, name string, m limiter.Observer) *limiter.Limiter {
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

// decision is one that a budget of two tokens has made.
func decision(of, name string, outcome limiter.Outcome) limiter.DecisionEvent {
	return limiter.DecisionEvent{Limiter: of, Decision: limiter.Decision{Outcome: outcome,
		Budget: name, Limit: limiter.PerMinute(2), Remaining: 1}}
}

// allowed is a request that was allowed.
func allowed(transport, route string) limiter.RequestEvent {
	return limiter.RequestEvent{Limiter: "api", Transport: transport, Route: route, Outcome: "allow"}
}

// configure makes budgets known, of a limiter whose store never fails.
func configure(m limiter.Observer, of string, names ...string) {
	var budgets []limiter.Budget
	for _, name := range names {
		budgets = append(budgets, limiter.Budget{Name: name})
	}
	m.Configured(of, budgets, nil, limiter.Capabilities{NeverFails: true})
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
	m.Routes("api", "http", []string{"GET /orders/{id}"})

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
	m.Decided(t.Context(), decision(l.Name(), "shared", limiter.Deny))
	assert.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(sample(1)), decisions))

	want := []string{}
	for _, route := range []string{"GET /orders/{id}", "unmatched"} {
		for _, outcome := range outcomes {
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
	m.Routes("api", "grpc", []string{"/orders.Orders/Get"})
	problems, err := testutil.GatherAndLint(reg)
	require.NoError(t, err)
	assert.Empty(t, problems)
}

func TestMetrics_CountsWhatALimiterDecides(t *testing.T) {
	reg := prometheus.NewRegistry()
	l := newLimiter(t, "api", newMetrics(t, reg))
	take(t, l, 1, 1, 1, 3)
	_, err := l.Adapter().Take(t.Context(), &limiter.Request{Transport: "http", Cost: 1,
		Caller: limiter.Caller{Route: "GET /"}})
	require.NoError(t, err)

	assert.Equal(t, map[string]float64{"allow": 1, "near_limit": 1, "deny": 2, "never": 1},
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

func TestMetrics_TextThatCannotBeALabelIsOther(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := newMetrics(t, reg)
	for _, route := range []string{"\xff", "/a\xc3", ""} {
		m.Answered(allowed("http", route))
		m.Routes("api", "http", []string{route})
		m.Decided(t.Context(), decision("api", cmp.Or(route, "\xfe"), limiter.Allow))
		configure(m, route, route)
		m.Configured(route, nil, nil, limiter.Capabilities{Name: route})
		m.StoreCalled(route, route, time.Second, route)
	}
	hostile := "GET /\"}\n evil 1 {a=\"\\"
	m.Answered(allowed("http", hostile))

	assert.Equal(t, map[string]float64{"allow": 3}, counted(t, reg, requests, "route", "other"))
	assert.Equal(t, map[string]float64{"allow": 1}, counted(t, reg, requests, "route", hostile))
	assert.Equal(t, map[string]float64{"allow": 3}, counted(t, reg, decisions, "budget", "other"))
}

func TestMetrics_UnknownOutcomesAreNotCounted(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := newMetrics(t, reg)
	for _, outcome := range []string{"", "200", "Allow"} {
		m.Answered(limiter.RequestEvent{Limiter: "api", Transport: "http", Route: "/", Outcome: outcome})
	}
	e := decision("api", "", limiter.Allow)
	e.Charges = []limiter.Charge{{Key: limiter.Key{Budget: "trial"}, Shadow: true}}
	m.Decided(t.Context(), e)
	assert.Empty(t, counted(t, reg, requests, "route", "/"))
	assert.Empty(t, counted(t, reg, decisions, "limiter", "api"), "no budget has decided, nor a shadow budget")
}

func TestMetrics_EveryOutcomeOfARequestIsCounted(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := newMetrics(t, reg)
	want := map[string]float64{}
	for i, outcome := range outcomes {
		e := allowed("http", "/")
		e.Outcome, want[outcome] = outcome, float64(i+1)
		for range i + 1 {
			m.Answered(e)
		}
	}
	assert.Equal(t, want, counted(t, reg, requests, "route", "/"))
}

// Under a fifth is left, of any capacity.
func TestMetrics_NearLimitIsUnderAFifth(t *testing.T) {
	for _, test := range []struct {
		capacity, left int64
		want           string
	}{{10, 2, "allow"}, {10, 1, "near_limit"}, {11, 3, "allow"}, {11, 2, "near_limit"},
		{1, 1, "allow"}, {1, 0, "near_limit"}, {math.MaxInt64, math.MaxInt64 / 5, "near_limit"},
		{math.MaxInt64, math.MaxInt64/5 + 1, "allow"}} {
		reg := prometheus.NewRegistry()
		e := decision("api", "shared", limiter.Allow)
		e.Decision.Limit, e.Decision.Remaining = limiter.PerMinute(test.capacity), test.left
		newMetrics(t, reg).Decided(t.Context(), e)
		assert.Equal(t, map[string]float64{test.want: 1}, counted(t, reg, decisions, "budget", "shared"),
			"%+v", test)
	}
}

// It is the policy's, which is among the outcomes of requests.
func TestMetrics_ADecisionOfAPolicyIsNoBudgets(t *testing.T) {
	reg := prometheus.NewRegistry()
	e := decision("api", "shared", limiter.Deny)
	e.Err = &limiter.StoreError{Reason: storekit.Timeout}
	e.Charges = []limiter.Charge{{Key: limiter.Key{Budget: "trial"}, Shadow: true,
		Result: limiter.Result{Outcome: limiter.Allow}}}
	newMetrics(t, reg).Decided(t.Context(), e)
	assert.Empty(t, counted(t, reg, decisions, "limiter", "api"))
}

func TestMetrics_RoutesNobodyDeclaredAreBounded(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := newMetrics(t, reg)
	for i := range 1500 {
		m.Answered(allowed("http", fmt.Sprint("/", i)))
	}
	assert.Equal(t, map[string]float64{"allow": 500}, counted(t, reg, requests, "route", "other"))
	assert.Equal(t, map[string]float64{"allow": 1}, counted(t, reg, requests, "route", "/999"))
	n, err := testutil.GatherAndCount(reg, requests)
	require.NoError(t, err)
	assert.Equal(t, 1001*len(outcomes), n)

	m.Routes("api", "http", []string{"/declared"})
	m.Answered(allowed("http", "/declared"))
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
				m.Answered(allowed("grpc", route))
				configure(m, "api", "shared", route)
				m.Decided(context.Background(), decision("api", "shared", limiter.Allow))
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
	r, d := allowed("http", "GET /orders/{id}"), decision("api", "shared", limiter.Allow)
	d.Charges = []limiter.Charge{{Key: limiter.Key{Budget: "trial"}, Shadow: true,
		Result: limiter.Result{Outcome: limiter.Deny}}}
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		m.Answered(r)
		m.Decided(context.Background(), d)
	}))
}

func TestNew_RefusesNoRegistry(t *testing.T) {
	var registry *prometheus.Registry
	for _, reg := range []prometheus.Registerer{nil, registry, (*wrapped)(nil)} {
		m, err := metrics.New(reg)
		var config *limiter.ConfigError
		require.ErrorAs(t, err, &config)
		assert.Equal(t, "Registerer", config.Field)
		assert.Equal(t, "metrics", config.Package)
		assert.Nil(t, m.Decided)
		assert.Nil(t, m.Configured)
	}
	_, err := metrics.New(nil)
	assert.EqualError(t, err, "metrics: Registerer: want a registry such as "+
		"prometheus.NewRegistry(), not nil")
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
