package metrics_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
)

const misuse = "ration_misuse_total"

// The limiter reports what it logs itself, and what its adapters log.
func TestMetrics_CountMisuseByItsCode(t *testing.T) {
	reg := prometheus.NewRegistry()
	l := limiter.Must(limiter.New(limiter.Must(memstore.New(memstore.Config{})), []limiter.Budget{{
		Name: "a", Limit: limiter.PerMinute(2),
		LimitFor: func(context.Context, limiter.Caller) limiter.Limit { return limiter.Limit{Tokens: -1} },
	}}, limiter.Config{Observer: newMetrics(t, reg), Logger: slog.New(slog.DiscardHandler)}))
	take(t, l, 1, 1)
	l.Adapter().Warn(t.Context(), "no-route", "message")
	l.Adapter().Warn(t.Context(), "no-route", "message")
	assert.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(text(misuse,
		"Warnings about misuse, by their code, which the package comments explain.",
		misuse+`{code="limit-for-invalid"} 1`, misuse+`{code="no-route"} 2`)), misuse))
}

func TestMetrics_BoundTheCodesOfMisuse(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := newMetrics(t, reg)
	for i := range 10_000 {
		m.Warned("api", fmt.Sprintf("code-%d", i))
		m.Warned("api", "\xff")
	}
	count, err := testutil.GatherAndCount(reg, misuse)
	assert.NoError(t, err)
	assert.LessOrEqual(t, count, 201)
}

// A route function that returned what callers choose could else keep a MiB a request.
func TestMetrics_KeepNoLongRoute(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := newMetrics(t, reg)
	for i := range 10 {
		m.Answered(allowed("http", strings.Repeat(fmt.Sprint(i), 1<<20)))
	}
	count, err := testutil.GatherAndCount(reg, requests)
	assert.NoError(t, err)
	assert.Equal(t, len(outcomes), count)
}
