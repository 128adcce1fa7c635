// Package metrics counts what limiters decide, for Prometheus.
//
//	registry := prometheus.NewRegistry()
//	m, err := metrics.New(registry)
//	...
//	l, err := limiter.New(store, budgets, limiter.Config{Name: "api", Observer: m})
//
// It exports
//
//	ration_requests_total{limiter,transport,route,outcome}
//	ration_budget_decisions_total{limiter,budget,outcome}
//
// and, of stores that can fail,
//
//	ration_decision_duration_seconds{limiter,store}
//	ration_store_errors_total{limiter,store,reason}
//
// and, of stores in memory,
//
//	ration_accounts{limiter,store}
//	ration_overflow_total{limiter,store}
//
// The first adds up to the requests that the adapters have seen; the second says
// which budget decided, with near_limit for an allow that leaves under 20 %. Each
// request that a shadow budget applies to counts as its shadow_allow if it could
// pay, and as its shadow_deny if it could not; a shadow budget that has neither
// applies to no request, for example because of a mistake in its Routes. All outcomes of a known
// budget or route exist at 0 from the start, so that a rate over the first
// denial is not lost. No caller, address, raw path or raw method is ever a label.
package metrics

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ration-go/ration/limiter"
)

// Metrics is a [limiter.Observer] that counts, and a [prometheus.Collector].
// Any number of limiters and both transports may share one. It is safe for
// concurrent use, and counting requests takes no lock and does not allocate.
// The zero Metrics is not usable; see [New].
type Metrics struct {
	requests  *table[route]
	decisions *table[budget]
	durations *prometheus.HistogramVec
	failures  *prometheus.CounterVec
	holdings  holdings
}

var (
	_ limiter.StoreObserver   = (*Metrics)(nil)
	_ limiter.AccountObserver = (*Metrics)(nil)
	_ prometheus.Collector    = (*Metrics)(nil)
)

// New returns the metrics of a registry, registered once: a second New with the
// same registry returns the same Metrics. A nil interface registers nothing;
// Metrics is a Collector that can be registered later.
//
// The error is a *[limiter.ConfigError] if reg holds a nil pointer, such as a
// *prometheus.Registry that was never made, and otherwise the registry's, such as
// for other collectors of these names. Nothing is registered then.
func New(reg prometheus.Registerer) (*Metrics, error) {
	if v := reflect.ValueOf(reg); v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, &limiter.ConfigError{Package: "metrics", Field: "Registerer", Value: v.Type(),
			Reason: "the pointer is nil: want prometheus.NewRegistry(), or a nil interface"}
	}
	m := &Metrics{
		requests: newTable[route](prometheus.CounterOpts{
			Name: "ration_requests_total",
			Help: "Requests that an adapter has seen, by what became of them.",
		}, names(limiter.Answers()), "limiter", "transport", "route", "outcome"),
		decisions: newTable[budget](prometheus.CounterOpts{
			Name: "ration_budget_decisions_total",
			Help: "Decisions of a limiter, by the budget that decided.",
		}, names(limiter.Verdicts()), "limiter", "budget", "outcome"),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:                           "ration_decision_duration_seconds",
			Help:                           "How long a store that can fail took to answer.",
			Buckets:                        prometheus.ExponentialBuckets(50e-6, 2, 12), // to 0.1 s
			NativeHistogramBucketFactor:    1.1,
			NativeHistogramMaxBucketNumber: 100,
		}, []string{"limiter", "store"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ration_store_errors_total",
			Help: "Requests that a store could not decide, by the reason.",
		}, []string{"limiter", "store", "reason"}),
	}
	if reg == nil {
		return m, nil
	}
	err := reg.Register(m)
	var registered prometheus.AlreadyRegisteredError
	if errors.As(err, &registered) {
		if existing, ok := registered.ExistingCollector.(*Metrics); ok {
			return existing, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return m, nil
}

// names returns the label of each outcome, at its own index.
func names[T fmt.Stringer](outcomes []T) []string {
	labels := make([]string, len(outcomes))
	for i, o := range outcomes {
		labels[i] = o.String()
	}
	return labels
}

// Routes makes the series of routes known, at 0: those that the limiter guards
// on a transport ("http" or "grpc"), as the router lists them. "unmatched" is
// always among them. A route that is not made known appears with its first
// request, and as "other" beyond 1,000 routes.
func (m *Metrics) Routes(limiter, transport string, routes ...string) {
	keys := []route{{limiter, transport, unmatched}}
	for _, r := range routes {
		keys = append(keys, route{limiter, transport, r})
	}
	m.requests.declare(keys...)
}

// Configured makes the series of a limiter's budgets known, at 0. Those of
// budgets that a Reload drops stay as they are.
func (m *Metrics) Configured(limiter string, budgets []string) {
	keys := make([]budget, len(budgets))
	for i, name := range budgets {
		keys[i] = budget{limiter, name}
	}
	m.decisions.declare(keys...)
}

// Decided counts a budget's part in a decision.
func (m *Metrics) Decided(e limiter.DecisionEvent) {
	m.decisions.count(budget{e.Limiter, e.Budget}, budget{e.Limiter, other}, int(e.Verdict))
}

// Answered counts a request.
func (m *Metrics) Answered(e limiter.RequestEvent) {
	m.requests.count(route{e.Limiter, e.Transport, e.Route},
		route{e.Limiter, e.Transport, other}, int(e.Answer))
}

// ConfiguredStore makes the series of a store known, at 0.
func (m *Metrics) ConfiguredStore(of, store string) {
	m.durations.WithLabelValues(of, store)
	for _, reason := range limiter.StoreReasons() {
		m.failures.WithLabelValues(of, store, string(reason))
	}
}

// ConfiguredAccounts shows what the store of a limiter holds, at each scrape, until
// another limiter of that name is configured on a store of that name.
func (m *Metrics) ConfiguredAccounts(of, store string, accounts limiter.AccountCounter) {
	m.holdings.add(holder{of, safe(store)}, accounts)
}

// Asked counts an answer of a store, or its error.
func (m *Metrics) Asked(e limiter.StoreEvent) {
	m.durations.WithLabelValues(e.Limiter, e.Store).Observe(e.Took.Seconds())
	if e.Reason != "" {
		m.failures.WithLabelValues(e.Limiter, e.Store, string(e.Reason)).Inc()
	}
}

// Describe sends the descriptions of the metrics, for the registry.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	m.requests.vec.Describe(ch)
	m.decisions.vec.Describe(ch)
	m.durations.Describe(ch)
	m.failures.Describe(ch)
	m.holdings.Describe(ch)
}

// Collect sends the metrics, for the registry.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.requests.vec.Collect(ch)
	m.decisions.vec.Collect(ch)
	m.durations.Collect(ch)
	m.failures.Collect(ch)
	m.holdings.Collect(ch)
}
