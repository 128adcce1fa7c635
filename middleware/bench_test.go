package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
	"github.com/ration-go/ration/limiter/metrics"
	"github.com/ration-go/ration/middleware"
)

// BenchmarkMiddleware is the whole middleware around a handler that does nothing,
// with the principal in the context already and metrics on.
func BenchmarkMiddleware(b *testing.B) {
	allow := limiter.Limit{Tokens: 1_000_000, Per: time.Second, Burst: 1 << 40}
	for name, bench := range map[string]struct {
		headers middleware.Headers
		limit   limiter.Limit
	}{
		"answer=allow/headers=draft11":    {middleware.Draft11, allow},
		"answer=allow/headers=xratelimit": {middleware.XRateLimit, allow},
		"answer=allow/headers=off":        {middleware.Off, allow},
		"answer=deny/headers=draft11":     {middleware.Draft11, limiter.PerDay(1)},
		"answer=deny/headers=off":         {middleware.Off, limiter.PerDay(1)},
	} {
		b.Run(name, func(b *testing.B) {
			l := limiter.Must(limiter.New(limiter.Must(memstore.New(memstore.Config{})),
				[]limiter.Budget{{Name: "exports", Scope: perRoute, Limit: bench.limit}},
				limiter.Config{Observer: limiter.Must(metrics.New(prometheus.NewRegistry()))}))
			h := limiter.Must(middleware.New(l, byUser, keying.Pattern,
				middleware.Config{Headers: bench.headers})).Handler(http.HandlerFunc(noop))
			r := httptest.NewRequest("GET", "/v1/exports/7", nil)
			r.Pattern = "GET /v1/exports/{id}"
			r = r.WithContext(keying.WithPrincipal(r.Context(), limiter.Principal{Kind: "user", ID: "alice"}))
			w := &discard{http.Header{}}
			h.ServeHTTP(w, r)
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				h.ServeHTTP(w, r)
			}
		})
	}
}
