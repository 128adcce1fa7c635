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

// remembering is a store that denies from memory.
type remembering struct {
	limiter.Store
	denied int64
}

func (r *remembering) Capabilities() limiter.Capabilities {
	return limiter.Capabilities{Name: "redis", DeniedFromMemory: func() int64 { return r.denied }}
}

func TestMetrics_CountWhatAStoreDeniesFromMemory(t *testing.T) {
	reg := prometheus.NewRegistry()
	observer := newMetrics(t, reg)
	store := &remembering{Store: limiter.Must(memstore.New(memstore.Config{}))}
	budgets := []limiter.Budget{{Name: "a", Limit: limiter.PerHour(5), OnError: limiter.Open}}
	limiter.Must(limiter.New(store, budgets, limiter.Config{Name: "web", Observer: observer}))
	const hits = "ration_deny_cache_hits_total"
	for _, denied := range []string{"0", "7"} {
		store.denied = int64(denied[0] - '0')
		want := text(hits, "Requests that a store denied from memory, without asking its server.",
			hits+`{limiter="web",store="redis"} `+denied)
		assert.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(want), hits))
	}
}
