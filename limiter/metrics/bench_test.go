package metrics_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ration-go/ration/limiter"
)

func BenchmarkAnswered(b *testing.B) {
	m := newMetrics(b, prometheus.NewRegistry())
	e := limiter.RequestEvent{Limiter: "api", Transport: "http", Route: "GET /orders/{id}"}
	m.Routes("api", "http", e.Route, "GET /orders", "POST /orders")
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			m.Answered(e)
		}
	})
}

func BenchmarkDecided(b *testing.B) {
	m := newMetrics(b, prometheus.NewRegistry())
	m.Configured("api", []string{"shared", "tenant", "address"})
	e := limiter.DecisionEvent{Limiter: "api", Budget: "tenant"}
	b.ReportAllocs()
	for b.Loop() {
		m.Decided(e)
	}
}
