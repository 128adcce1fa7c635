package metrics_test

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
	"github.com/ration-go/ration/limiter/metrics"
)

func ExampleNew() {
	registry := prometheus.NewRegistry()
	m := limiter.Must(metrics.New(registry))

	store := limiter.Must(memstore.New(memstore.Config{}))
	l := limiter.Must(limiter.New(store, []limiter.Budget{
		{Name: "everybody", Limit: limiter.PerMinute(10)},
	}, limiter.Config{Name: "api", Observer: m}))
	for range 12 {
		limiter.Must(l.Take(context.Background(), limiter.Caller{}, 1))
	}

	for _, family := range limiter.Must(registry.Gather()) {
		for _, series := range family.GetMetric() {
			for _, label := range series.GetLabel() {
				if label.GetName() == "outcome" {
					fmt.Println(label.GetValue(), series.GetCounter().GetValue())
				}
			}
		}
	}
	// Output:
	// allow 8
	// deny 2
	// near_limit 2
	// never 0
	// shadow_allow 0
	// shadow_deny 0
}
