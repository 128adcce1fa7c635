package metrics

import (
	"maps"
	"reflect"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ration-go/ration/limiter"
)

var (
	accountsDesc = prometheus.NewDesc("ration_accounts",
		"Accounts that a store keeps, since they are not full.", []string{"store"}, nil)
	overflowDesc = prometheus.NewDesc("ration_overflow_total",
		"Charges decided on accounts that several keys share for want of room.",
		[]string{"store"}, nil)
	breakerDesc = prometheus.NewDesc("ration_breaker_open",
		"1 while a store asks its server no more, because it does not answer, else 0.",
		[]string{"limiter", "store"}, nil)
	deniedDesc = prometheus.NewDesc("ration_deny_cache_hits_total",
		"Requests that a store denied from memory, without asking its server.",
		[]string{"limiter", "store"}, nil)
)

// stores is what the stores of limiters hold, asked at each scrape. A store counts
// once, however many limiters it has, until each of these names is configured on
// another. Stores of one name are added up. The zero stores has none.
type stores struct {
	mu sync.Mutex // guards by
	by map[string]counted
}

// counted is the store of a limiter.
type counted struct {
	store       limiter.Store
	name        string
	accounts    func() (live, overflowTakes int64) // nil: not known
	breakerOpen func() bool                        // nil: there is none
	denied      func() int64                       // nil: nothing is remembered
}

// add makes s the store of the limiter of that name.
func (t *stores) add(of string, s limiter.Store, name string, can limiter.Capabilities) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.by == nil {
		t.by = map[string]counted{}
	}
	t.by[of] = counted{s, name, can.Accounts, can.BreakerOpen, can.DeniedFromMemory}
}

// distinct returns each store once that counts its accounts. Stores that cannot be
// compared count for each of their limiters.
func (t *stores) distinct() []counted {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []counted
	seen := map[limiter.Store]bool{}
	for _, c := range t.by {
		if c.accounts == nil {
			continue
		}
		if comparable := reflect.ValueOf(c.store).Comparable(); comparable && seen[c.store] {
			continue
		} else if comparable {
			seen[c.store] = true
		}
		all = append(all, c)
	}
	return all
}

// Describe sends the descriptions.
func (t *stores) Describe(ch chan<- *prometheus.Desc) {
	ch <- accountsDesc
	ch <- overflowDesc
	ch <- breakerDesc
	ch <- deniedDesc
}

// byLimiter returns the stores by the name of the limiter.
func (t *stores) byLimiter() map[string]counted {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.by)
}

// Collect asks the stores, with no lock held.
func (t *stores) Collect(ch chan<- prometheus.Metric) {
	type sums struct{ live, takes int64 }
	byName := map[string]sums{}
	for _, c := range t.distinct() {
		live, takes := c.accounts()
		sum := byName[c.name]
		byName[c.name] = sums{sum.live + live, sum.takes + takes}
	}
	for name, sum := range byName {
		ch <- prometheus.MustNewConstMetric(accountsDesc, prometheus.GaugeValue, float64(sum.live), name)
		ch <- prometheus.MustNewConstMetric(overflowDesc, prometheus.CounterValue, float64(sum.takes), name)
	}
	for of, c := range t.byLimiter() {
		if c.breakerOpen != nil {
			open := 0.0
			if c.breakerOpen() {
				open = 1
			}
			ch <- prometheus.MustNewConstMetric(breakerDesc, prometheus.GaugeValue, open, of, c.name)
		}
		if c.denied != nil {
			ch <- prometheus.MustNewConstMetric(deniedDesc, prometheus.CounterValue,
				float64(c.denied()), of, c.name)
		}
	}
}
