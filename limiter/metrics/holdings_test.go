package metrics_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
)

func TestMetrics_ShowWhatAStoreInMemoryHolds(t *testing.T) {
	reg := prometheus.NewRegistry()
	store := limiter.Must(memstore.New(memstore.Config{MaxAccounts: 3}))
	l := limiter.Must(limiter.New(store, []limiter.Budget{
		{Name: "users", Scope: limiter.ByPrincipal, Limit: limiter.PerDay(1)},
	}, limiter.Config{Name: "api", Observer: newMetrics(t, reg)}))
	holds := func(accounts, overflow string) {
		t.Helper()
		assert.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(
			"# HELP ration_accounts Accounts that a store keeps, since they are not full.\n"+
				"# TYPE ration_accounts gauge\n"+
				`ration_accounts{limiter="api",store="memory"} `+accounts+"\n"+
				"# HELP ration_overflow_total Charges decided on accounts that several keys share "+
				"for want of room.\n# TYPE ration_overflow_total counter\n"+
				`ration_overflow_total{limiter="api",store="memory"} `+overflow+"\n"),
			"ration_accounts", "ration_overflow_total"))
	}
	holds("0", "0")
	request := func(caller int) {
		_, err := l.Take(t.Context(), limiter.Caller{
			Principal: limiter.Principal{Kind: "user", ID: strconv.Itoa(caller)}}, 1)
		assert.NoError(t, err)
	}
	request(0)
	holds("1", "0")
	request(1)
	request(2)
	request(2)
	holds("3", "2") // the third caller has no place of its own
}

func TestMetrics_TheLatestLimiterOfANameIsShown(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := newMetrics(t, reg)
	for range 2 {
		take(t, newLimiter(t, "api", m), 1)
	}
	newLimiter(t, "other", m)
	families, err := reg.Gather()
	assert.NoError(t, err)
	values := map[string]float64{}
	for _, f := range families {
		if f.GetName() == "ration_accounts" {
			for _, sample := range f.GetMetric() {
				values[sample.GetLabel()[0].GetValue()] = sample.GetGauge().GetValue()
			}
		}
	}
	assert.Equal(t, map[string]float64{"api": 1, "other": 0}, values)
}
