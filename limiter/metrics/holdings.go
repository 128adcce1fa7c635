package metrics

import (
	"maps"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ration-go/ration/limiter"
)

var (
	accountsDesc = prometheus.NewDesc("ration_accounts",
		"Accounts that a store keeps, since they are not full.", []string{"limiter", "store"}, nil)
	overflowDesc = prometheus.NewDesc("ration_overflow_total",
		"Charges decided on accounts that several keys share for want of room.",
		[]string{"limiter", "store"}, nil)
)

// holdings is what stores hold. It is asked at each scrape; the zero holdings has
// no stores.
type holdings struct {
	mu     sync.Mutex // guards stores
	stores map[holder]limiter.AccountCounter
}

type holder struct{ limiter, store string }

func (h *holdings) add(k holder, accounts limiter.AccountCounter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stores == nil {
		h.stores = map[holder]limiter.AccountCounter{}
	}
	h.stores[k] = accounts
}

// Describe sends the descriptions.
func (h *holdings) Describe(ch chan<- *prometheus.Desc) {
	ch <- accountsDesc
	ch <- overflowDesc
}

// Collect asks the stores, with no lock held.
func (h *holdings) Collect(ch chan<- prometheus.Metric) {
	h.mu.Lock()
	stores := maps.Clone(h.stores)
	h.mu.Unlock()
	for k, store := range stores {
		live, takes := store.Accounts()
		ch <- prometheus.MustNewConstMetric(accountsDesc, prometheus.GaugeValue, float64(live),
			k.limiter, k.store)
		ch <- prometheus.MustNewConstMetric(overflowDesc, prometheus.CounterValue, float64(takes),
			k.limiter, k.store)
	}
}
