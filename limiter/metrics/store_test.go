package metrics_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
	"github.com/ration-go/ration/limiter/storekit"
)

// flaky is a store that can fail.
type flaky struct{ limiter.Store }

func (*flaky) Capabilities() limiter.Capabilities { return limiter.Capabilities{Name: "redis"} }

func TestMetrics_CountStoresThatCanFail(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := newMetrics(t, reg)
	memory, err := memstore.New(memstore.Config{})
	require.NoError(t, err)
	budgets := []limiter.Budget{{Name: "a", Limit: limiter.PerHour(5), OnError: limiter.Open}}
	l, err := limiter.New(&flaky{Store: memory}, budgets, limiter.Config{Name: "api", Observer: m})
	require.NoError(t, err)
	const failures = "ration_store_errors_total"
	want := func(ambiguous string) string {
		return text(failures, "Requests that a store could not decide, by the reason.",
			failures+`{limiter="api",reason="ambiguous",store="redis"} `+ambiguous,
			failures+`{limiter="api",reason="other",store="redis"} 0`,
			failures+`{limiter="api",reason="overload",store="redis"} 0`,
			failures+`{limiter="api",reason="timeout",store="redis"} 0`,
			failures+`{limiter="api",reason="unavailable",store="redis"} 0`)
	}
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(want("0")), failures))

	take(t, l, 1, 1)
	m.StoreCalled("api", "redis", time.Millisecond, storekit.Ambiguous)
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(want("1")), failures))

	m.StoreCalled("api", "redis", time.Millisecond, "dial tcp 10.0.0.7:5432: refused")
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(strings.ReplaceAll(want("1"),
		`"other",store="redis"} 0`, `"other",store="redis"} 1`)), failures), "a reason is one of five")

	families, err := reg.Gather()
	require.NoError(t, err)
	for _, family := range families {
		if family.GetName() == "ration_decision_duration_seconds" {
			h := family.GetMetric()[0].GetHistogram()
			assert.EqualValues(t, 4, h.GetSampleCount())
			assert.InDelta(t, 50e-6, h.GetBucket()[0].GetUpperBound(), 1e-9)
			return
		}
	}
	t.Error("no durations")
}
