package metrics

import (
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
	store    limiter.Store
	name     string
	accounts func() (live, overflowTakes int64)
}

// add makes s the store of the limiter of that name. A store that does not count
// its accounts is not shown.
func (t *stores) add(of string, s limiter.Store, name string, accounts func() (_, _ int64)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.by == nil {
		t.by = map[string]counted{}
	}
	delete(t.by, of)
	if accounts != nil {
		t.by[of] = counted{s, name, accounts}
	}
}

// distinct returns each store once. Stores that cannot be compared count for each
// of their limiters.
func (t *stores) distinct() []counted {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []counted
	seen := map[limiter.Store]bool{}
	for _, c := range t.by {
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
}
