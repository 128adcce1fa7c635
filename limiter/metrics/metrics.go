// Package metrics counts what limiters decide, for Prometheus.
//
//	registry := prometheus.NewRegistry()
//	counts, err := metrics.New(registry)
//	...
//	l, err := limiter.New(store, budgets, limiter.Config{Name: "api", Observer: counts})
//
// It exports
//
//	ration_requests_total{limiter,transport,route,outcome}
//	ration_budget_decisions_total{limiter,budget,outcome}
//	ration_misuse_total{code}
//
// and, of stores that can fail,
//
//	ration_decision_duration_seconds{limiter,store}
//	ration_store_errors_total{limiter,store,reason}
//	ration_settles_lost_total{limiter,store}
//	ration_breaker_open{limiter,store}
//	ration_local_decisions_total{limiter,store}
//	ration_deny_cache_hits_total{limiter,store}
//
// the last three only of stores that have a breaker, a local side, or a memory of
// denials (a store of several limiters shows all its hits for each of them),
// and, of stores in memory,
//
//	ration_accounts{store}
//	ration_overflow_total{store}
//
// The first adds up to the requests that the adapters have seen, where a request counts
// twice if an inner mount refuses what an outer one has let through: as "allow" when it
// was let through, since its handler may run for hours, and then as "deny". The second
// says which budget decided, with near_limit for an allow that leaves under 20 %. Each
// request that a shadow budget applies to counts as its shadow_allow if it could
// pay, and as its shadow_deny if it could not; a shadow budget that has neither
// applies to no request, for example because of a mistake in its Routes. The third counts
// the warnings about misuse that package limiter and the adapters log, by their code; a code
// that was never logged has no series.
//
// All outcomes of a known budget or route exist at 0 from the start, so that a rate over
// the first denial is not lost. No caller, address, raw path or raw method is ever a label.
package metrics

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/storekit"
)

// collector counts, for one registry. Counting requests takes no lock and does not
// allocate.
type collector struct {
	requests  *table
	decisions *table
	durations *prometheus.HistogramVec
	failures  *prometheus.CounterVec
	lost      *prometheus.CounterVec
	local     *prometheus.CounterVec
	misuses   *misuses
	stores    stores
}

// New returns an Observer that counts in the registry, which is registered once: a
// second New with the same registry counts in the same metrics. Any number of
// limiters and both transports may share one. It is safe for concurrent use, and
// counting a request takes no lock and does not allocate, unless its store failed.
//
// The error is a *[limiter.ConfigError] if reg is nil or holds a nil pointer, and
// otherwise the registry's, such as for other collectors of these names. Nothing is
// registered then.
func New(reg prometheus.Registerer) (limiter.Observer, error) {
	if v := reflect.ValueOf(reg); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return limiter.Observer{}, &limiter.ConfigError{Package: "metrics", Field: "Registerer",
			Reason: "want a registry such as prometheus.NewRegistry(), not nil"}
	}
	c := newCollector()
	err := reg.Register(c)
	var registered prometheus.AlreadyRegisteredError
	if errors.As(err, &registered) {
		if existing, ok := registered.ExistingCollector.(*collector); ok {
			return existing.observer(), nil
		}
	}
	if err != nil {
		return limiter.Observer{}, fmt.Errorf("metrics: %w", err)
	}
	return c.observer(), nil
}

func newCollector() *collector {
	return &collector{
		misuses: newMisuses(),
		requests: newRouteTable(prometheus.CounterOpts{
			Name: "ration_requests_total",
			Help: "Requests that an adapter has seen, by what became of them.",
		}, requestOutcomes),
		decisions: newBudgetTable(prometheus.CounterOpts{
			Name: "ration_budget_decisions_total",
			Help: "Decisions of a limiter, by the budget that decided.",
		}, budgetOutcomes[:]),
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
		lost: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ration_settles_lost_total",
			Help: "Corrections of reserved costs that a store has not made, as far as is known.",
		}, []string{"limiter", "store"}),
		local: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ration_local_decisions_total",
			Help: "Requests that the local side of a store has decided, because the store failed.",
		}, []string{"limiter", "store"}),
	}
}

func (c *collector) observer() limiter.Observer {
	return limiter.Observer{
		Configured: c.configured, Routes: c.routes, StoreCalled: c.storeCalled,
		SettleLost: func(of, store string) { c.lost.WithLabelValues(safe(of), safe(store)).Inc() },
		Warned:     c.misuses.warned,
		// A method value would copy each event once more.
		Decided:  func(_ context.Context, e limiter.DecisionEvent) { c.decided(&e) },
		Answered: func(e limiter.RequestEvent) { c.answered(&e) },
	}
}

// configured makes the series of a limiter's budgets and of its store known, at 0.
// Those of budgets that a Reload drops stay as they are.
func (c *collector) configured(
	of string, budgets []limiter.Budget, s limiter.Store, can limiter.Capabilities,
) {
	keys := make([]key, len(budgets))
	for i, b := range budgets {
		keys[i] = key{limiter: of, name: b.Name}
	}
	c.decisions.declare(keys...)
	of, store := safe(of), safe(can.Name)
	if !can.NeverFails {
		c.durations.WithLabelValues(of, store)
		c.lost.WithLabelValues(of, store)
		for _, reason := range storekit.Reasons() {
			c.failures.WithLabelValues(of, store, reason)
		}
	}
	if can.Local != nil {
		c.local.WithLabelValues(of, store)
	}
	c.stores.add(of, s, store, can)
}

// routes makes the series of routes known, at 0, and that of "unmatched". A route
// that is not made known appears with its first request, and as "other" beyond
// 1,000 routes.
func (c *collector) routes(limiter, transport string, routes []string) {
	keys := []key{{limiter, transport, unmatched}}
	for _, route := range routes {
		keys = append(keys, key{limiter, transport, route})
	}
	c.requests.declare(keys...)
}

// requestOutcomes are those of [limiter.RequestEvent].
var requestOutcomes = []string{"allow", "deny", "never", "unauthenticated", "canceled",
	"error_local", "error_open", "error_closed", "skipped"}

// answered counts a request.
func (c *collector) answered(e *limiter.RequestEvent) {
	if i := slices.Index(requestOutcomes, e.Outcome); i >= 0 {
		c.requests.count(&key{e.Limiter, e.Transport, e.Route}, i)
	}
}

// The outcomes of a budget, as indexes of budgetOutcomes. nearLimit stands in for
// an allow that leaves under 20 % of the capacity, so the outcomes of the enforced
// budgets add up to the decisions.
const (
	allow = iota
	deny
	never
	nearLimit
	shadowAllow
	shadowDeny
)

var budgetOutcomes = [...]string{allow: "allow", deny: "deny", never: "never",
	nearLimit: "near_limit", shadowAllow: "shadow_allow", shadowDeny: "shadow_deny"}

// decided counts the budget that decided, and each shadow budget that applied. A
// decision of the policy Open or Closed is no budget's. One of Local is: but what is left
// of a share says nothing about the limit, so it is never near_limit.
func (c *collector) decided(e *limiter.DecisionEvent) {
	if e.Err != nil {
		c.decidedLocally(e)
		return
	}
	if e.Decision.Budget != "" {
		c.count(e.Limiter, e.Decision.Budget, enforced(&e.Decision))
	}
	for i := range e.Charges {
		switch charge := &e.Charges[i]; {
		case !charge.Shadow || charge.Result.Outcome == 0:
		case charge.Result.Outcome == limiter.Allow:
			c.count(e.Limiter, charge.Key.Budget, shadowAllow)
		default:
			c.count(e.Limiter, charge.Key.Budget, shadowDeny)
		}
	}
}

func (c *collector) decidedLocally(e *limiter.DecisionEvent) {
	failed, ok := errors.AsType[*limiter.StoreError](e.Err)
	if !ok || failed.Policy != limiter.Local {
		return
	}
	c.local.WithLabelValues(safe(e.Limiter), safe(e.Store)).Inc()
	if outcome := enforced(&e.Decision); outcome == nearLimit {
		c.count(e.Limiter, e.Decision.Budget, allow)
	} else {
		c.count(e.Limiter, e.Decision.Budget, outcome)
	}
}

func (c *collector) count(of, name string, outcome int) {
	c.decisions.count(&key{limiter: of, name: name}, outcome)
}

// enforced returns the outcome of the budget that decided.
func enforced(d *limiter.Decision) int {
	capacity := d.Limit.Capacity()
	switch {
	case d.Outcome == limiter.Deny:
		return deny
	case d.Outcome == limiter.Never:
		return never
	case d.Remaining < capacity/5+min(capacity%5, 1): // 20 %, rounded up
		return nearLimit
	default:
		return allow
	}
}

// storeCalled counts an answer of a store, or its error.
func (c *collector) storeCalled(of, store string, took time.Duration, reason string) {
	of, store = safe(of), safe(store)
	c.durations.WithLabelValues(of, store).Observe(took.Seconds())
	switch {
	case reason == "":
	case slices.Contains(storekit.Reasons(), reason):
		c.failures.WithLabelValues(of, store, reason).Inc()
	default: // a store that makes up reasons must not make up series
		c.failures.WithLabelValues(of, store, storekit.Other).Inc()
	}
}

// Describe sends the descriptions of the metrics, for the registry.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	c.requests.vec.Describe(ch)
	c.decisions.vec.Describe(ch)
	c.durations.Describe(ch)
	c.failures.Describe(ch)
	c.lost.Describe(ch)
	c.local.Describe(ch)
	c.misuses.vec.Describe(ch)
	c.stores.Describe(ch)
}

// Collect sends the metrics, for the registry.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	c.requests.vec.Collect(ch)
	c.decisions.vec.Collect(ch)
	c.durations.Collect(ch)
	c.failures.Collect(ch)
	c.lost.Collect(ch)
	c.local.Collect(ch)
	c.misuses.vec.Collect(ch)
	c.stores.Collect(ch)
}
