package metrics_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
)

// broken is a store with a breaker.
type broken struct {
	limiter.Store
	open bool
}

func (b *broken) Capabilities() limiter.Capabilities {
	return limiter.Capabilities{Name: "redis", BreakerOpen: func() bool { return b.open }}
}

func TestMetrics_ShowWhetherTheBreakerOfAStoreIsOpen(t *testing.T) {
	reg := prometheus.NewRegistry()
	observer := newMetrics(t, reg)
	memory := limiter.Must(memstore.New(memstore.Config{}))
	store := &broken{Store: memory}
	budgets := []limiter.Budget{{Name: "a", Limit: limiter.PerHour(5), OnError: limiter.Open}}
	for name, s := range map[string]limiter.Store{"web": store, "jobs": store, "local": memory} {
		limiter.Must(limiter.New(s, budgets, limiter.Config{Name: name, Observer: observer}))
	}
	for _, open := range []string{"0", "1", "0"} {
		store.open = open == "1"
		want := text("ration_breaker_open",
			"1 while a store asks its server no more, because it does not answer, else 0.",
			`ration_breaker_open{limiter="jobs",store="redis"} `+open,
			`ration_breaker_open{limiter="web",store="redis"} `+open)
		want = strings.Replace(want, "counter", "gauge", 1)
		assert.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(want), "ration_breaker_open"))
	}
}
