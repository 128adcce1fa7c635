package metrics_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
				`ration_accounts{store="memory"} `+accounts+"\n"+
				"# HELP ration_overflow_total Charges decided on accounts that several keys share "+
				"for want of room.\n# TYPE ration_overflow_total counter\n"+
				`ration_overflow_total{store="memory"} `+overflow+"\n"),
			"ration_accounts", "ration_overflow_total"))
	}
	holds("0", "0")
	request(t, l, "alice")
	holds("1", "0")
	request(t, l, "bob", "carol", "carol")
	holds("3", "2") // the third caller has no place of its own
}

// holdings returns what the stores hold, by the name of the store.
func holdings(t *testing.T, reg prometheus.Gatherer, name string) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	values := map[string]float64{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, sample := range f.GetMetric() {
			require.Len(t, sample.GetLabel(), 1)
			require.Equal(t, "store", sample.GetLabel()[0].GetName())
			values[sample.GetLabel()[0].GetValue()] = sample.GetGauge().GetValue() +
				sample.GetCounter().GetValue()
		}
	}
	return values
}

// limiterOf returns a limiter of that name on a store, for each principal.
func limiterOf(t *testing.T, name string, s limiter.Store, m limiter.Observer) *limiter.Limiter {
	t.Helper()
	l, err := limiter.New(s, []limiter.Budget{{Name: name, Scope: limiter.ByPrincipal,
		Limit: limiter.PerDay(9), OnError: limiter.Closed}}, limiter.Config{Name: name, Observer: m})
	require.NoError(t, err)
	return l
}

// request takes 1 for each caller.
func request(t *testing.T, l *limiter.Limiter, callers ...string) {
	t.Helper()
	for _, id := range callers {
		_, err := l.Take(t.Context(), limiter.Caller{
			Principal: limiter.Principal{Kind: "user", ID: id}}, 1)
		require.NoError(t, err)
	}
}

func newStore(t *testing.T) *memstore.Store {
	t.Helper()
	s, err := memstore.New(memstore.Config{})
	require.NoError(t, err)
	return s
}

// Whatever the number of limiters, and of reloads.
func TestMetrics_AStoreCountsOnce(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	m, store := newMetrics(t, reg), newStore(t)
	a, b := limiterOf(t, "a", store, m), limiterOf(t, "b", store, m)
	request(t, a, "alice", "bob")
	request(t, b, "alice")
	require.NoError(t, a.Reload([]limiter.Budget{{Name: "a", Limit: limiter.PerDay(8)}}))
	assert.Equal(t, map[string]float64{"memory": 3}, holdings(t, reg, "ration_accounts"))
	assert.Equal(t, map[string]float64{"memory": 0}, holdings(t, reg, "ration_overflow_total"))
}

func TestMetrics_StoresOfOneNameAddUp(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	m := newMetrics(t, reg)
	full := limiter.Must(memstore.New(memstore.Config{MaxAccounts: 1}))
	request(t, limiterOf(t, "a", full, m), "alice", "bob")
	request(t, limiterOf(t, "b", newStore(t), m), "alice", "bob", "carol")
	named := counting{Store: newStore(t), name: "tape"}
	limiterOf(t, "c", named, m)
	limiterOf(t, "d", named, m)
	assert.Equal(t, map[string]float64{"memory": 5, "tape": 7}, holdings(t, reg, "ration_accounts"))
	assert.Equal(t, map[string]float64{"memory": 1, "tape": 5},
		holdings(t, reg, "ration_overflow_total"))
}

// counting is a store that can be compared, with 7 accounts.
type counting struct {
	limiter.Store
	name string
}

func (c counting) Capabilities() limiter.Capabilities {
	return limiter.Capabilities{Name: c.name, Accounts: func() (_, _ int64) { return 7, 5 }}
}

// incomparable is a store that cannot be compared.
type incomparable struct {
	counting
	_ []int
}

func TestMetrics_AStoreThatCannotBeComparedIsCounted(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	m := newMetrics(t, reg)
	store := incomparable{counting: counting{newStore(t), ""}}
	l := limiterOf(t, "a", store, m)
	require.NoError(t, l.Reload([]limiter.Budget{
		{Name: "a", Limit: limiter.PerDay(1), OnError: limiter.Open}}))
	assert.Equal(t, map[string]float64{"store": 7}, holdings(t, reg, "ration_accounts"))
}

func TestMetrics_AStoreThatCountsNothingIsNotShown(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	limiterOf(t, "a", &flaky{newStore(t)}, newMetrics(t, reg))
	assert.Empty(t, holdings(t, reg, "ration_accounts"))
	assert.Empty(t, holdings(t, reg, "ration_overflow_total"))
}

func TestMetrics_TheLatestStoreOfALimitersNameIsShown(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	m := newMetrics(t, reg)
	request(t, limiterOf(t, "api", newStore(t), m), "alice", "bob")
	request(t, limiterOf(t, "api", newStore(t), m), "alice")
	assert.Equal(t, map[string]float64{"memory": 1}, holdings(t, reg, "ration_accounts"))
	limiterOf(t, "api", &flaky{newStore(t)}, m)
	assert.Empty(t, holdings(t, reg, "ration_accounts"), "it does not count")
}

// A store may take a while to count, and a limiter may be made meanwhile.
func TestMetrics_StoresAreAskedWithNoLockHeld(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	m := newMetrics(t, reg)
	can := limiter.Capabilities{Name: "slow", Accounts: func() (_, _ int64) {
		limiterOf(t, "b", counting{newStore(t), "late"}, m)
		return 1, 0
	}}
	m.Configured("a", nil, newStore(t), can)
	assert.InDelta(t, 1, holdings(t, reg, "ration_accounts")["slow"], 0)
}
