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

// An allowed request is one decision and one answer.
func BenchmarkAllowedRequest(b *testing.B) {
	m := newMetrics(b, prometheus.NewRegistry())
	configure(m, "api", "shared", "tenant", "address")
	answered, decided := allowed("http", "GET /orders/{id}"), decision("api", "tenant", limiter.Allow)
	decided.Decision.Remaining = 2
	m.Routes("api", "http", []string{answered.Route, "GET /orders", "POST /orders"})
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		m.Decided(ctx, decided)
		m.Answered(answered)
	}
}
