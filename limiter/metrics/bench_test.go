package metrics_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ration-go/ration/limiter"
)

func BenchmarkAnswered(b *testing.B) {
	m := newMetrics(b, prometheus.NewRegistry())
	e := allowed("http", "GET /orders/{id}")
	m.Routes("api", "http", []string{e.Route, "GET /orders", "POST /orders"})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			m.Answered(e)
		}
	})
}

func BenchmarkDecided(b *testing.B) {
	m := newMetrics(b, prometheus.NewRegistry())
	configure(m, "api", "shared", "tenant", "address")
	e := decision("api", "tenant", limiter.Allow)
	b.ReportAllocs()
	for b.Loop() {
		m.Decided(b.Context(), e)
	}
}
