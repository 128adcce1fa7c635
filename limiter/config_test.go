package limiter_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
)

func newStore(t *testing.T, clock *manual) *memstore.Store {
	t.Helper()
	s, err := memstore.New(memstore.Config{Now: clock.now})
	require.NoError(t, err)
	return s
}

func TestNew_RefusesBadBudgets(t *testing.T) {
	good := limiter.PerSecond(1)
	long := strings.Repeat("x", 65)
	type budgets = []limiter.Budget
	tests := []struct {
		name    string
		budgets budgets
		field   string
		value   any
	}{
		{"none", nil, "Budgets", nil},
		{"empty", budgets{}, "Budgets", nil},
		{"no-name", budgets{{Limit: good}}, "Budgets[0].Name", ""},
		{"name-begins-with-a-digit", budgets{{Name: "1a", Limit: good}}, "Budgets[0].Name", "1a"},
		{"name-with-a-space", budgets{{Name: "a b", Limit: good}}, "Budgets[0].Name", "a b"},
		{"name-with-a-newline", budgets{{Name: "a\n", Limit: good}}, "Budgets[0].Name", "a\n"},
		{"name-with-a-quote", budgets{{Name: `a"`, Limit: good}}, "Budgets[0].Name", `a"`},
		{"name-outside-ascii", budgets{{Name: "größe", Limit: good}}, "Budgets[0].Name", "größe"},
		{"name-too-long", budgets{{Name: long, Limit: good}}, "Budgets[0].Name", long},
		{"name-twice", budgets{{Name: "a", Limit: good}, {Name: "b", Limit: good},
			{Name: "a", Limit: good}}, "Budgets[2].Name", "a"},
		{"no-limit", budgets{{Name: "a"}}, `Budgets[0] ("a").Limit.Tokens`, int64(0)},
		{"limit-without-period", budgets{{Name: "a", Limit: good},
			{Name: "b", Limit: limiter.Limit{Tokens: 6}}}, `Budgets[1] ("b").Limit.Per`, time.Duration(0)},
		{"negative-burst", budgets{{Name: "a", Limit: bucketOf(1, time.Second, -1)}},
			`Budgets[0] ("a").Limit.Burst`, int64(-1)},
		{"limit-unlimited", budgets{{Name: "a", Limit: limiter.Unlimited}},
			`Budgets[0] ("a").Limit`, limiter.Unlimited},
		{"limit-blocked", budgets{{Name: "a", Limit: limiter.Blocked}},
			`Budgets[0] ("a").Limit`, limiter.Blocked},
		{"unknown-scope", budgets{{Name: "a", Limit: good, Scope: 16}},
			`Budgets[0] ("a").Scope`, "unknown"},
		{"routes-that-are-empty", budgets{{Name: "a", Limit: good, Routes: []string{}}},
			`Budgets[0] ("a").Routes`, []string{}},
		{"a-route-that-is-empty", budgets{{Name: "a", Limit: good, Routes: []string{"GET /", ""}}},
			`Budgets[0] ("a").Routes`, []string{"GET /", ""}},
		{"unknown-policy", budgets{{Name: "a", Limit: good, OnError: 4}},
			`Budgets[0] ("a").OnError`, uint8(4)},
		{"workload-without-principal", budgets{{Name: "a", Limit: good, Scope: limiter.ByWorkload}},
			`Budgets[0] ("a").Scope`, "ByWorkload"},
		{"workload-of-a-tenant", budgets{{Name: "a", Limit: good,
			Scope: limiter.ByTenant | limiter.ByWorkload}},
			`Budgets[0] ("a").Scope`, "ByTenant|ByWorkload"},
		{"workload-without-principal-beside-one-with", budgets{
			{Name: "a", Limit: good, Scope: limiter.ByPrincipal},
			{Name: "b", Limit: good, Scope: limiter.ByWorkload}},
			`Budgets[1] ("b").Scope`, "ByWorkload"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := limiter.New(newStore(t, new(manual)), test.budgets, limiter.Config{})
			requireConfigError(t, err, test.field, test.value)
		})
	}
}

// A caller invents workloads, so something else has to bound it.
func TestNew_RefusesWorkloadsThatNothingBounds(t *testing.T) {
	const workload = limiter.ByPrincipal | limiter.ByWorkload
	split := limiter.Budget{Name: "split", Scope: workload, Limit: limiter.PerSecond(1)}
	bound := limiter.Budget{Name: "bound", Scope: limiter.ByPrincipal, Limit: limiter.PerSecond(5)}
	on := func(b limiter.Budget, routes ...string) limiter.Budget { b.Routes = routes; return b }
	shadow, tenant, everybody, other := bound, bound, bound, split
	shadow.Shadow, tenant.Scope, everybody.Scope, other.Name = true, limiter.ByTenant, 0, "other"
	byRoute := bound
	byRoute.Scope |= limiter.ByRoute
	tests := []struct {
		name string
		with limiter.Budget
		of   limiter.Budget
		ok   bool
	}{
		{"bound-everywhere", bound, split, true},
		{"bound-by-route", byRoute, split, true},
		{"bound-on-the-same-routes", on(bound, "b", "a", "c"), on(split, "a", "b"), true},
		{"bound-everywhere-split-on-some", bound, on(split, "a"), true},
		{"bound-on-fewer-routes", on(bound, "a"), on(split, "a", "b"), false},
		{"bound-on-some-split-everywhere", on(bound, "a"), split, false},
		{"shadow", shadow, split, false},
		{"by-tenant", tenant, split, false},
		{"everybody", everybody, split, false},
		{"by-workload-too", other, split, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			for _, budgets := range [][]limiter.Budget{{test.with, test.of}, {test.of, test.with}} {
				l, err := limiter.New(newStore(t, new(manual)), budgets, limiter.Config{})
				if test.ok {
					require.NoError(t, err)
					require.NotNil(t, l)
					continue
				}
				var config *limiter.ConfigError
				require.ErrorAs(t, err, &config)
				assert.Regexp(t, `^Budgets\[[01]\] \("(split|other)"\)\.Scope$`, config.Field)
			}
		})
	}
}

func TestNew_ErrorsNameTheBudget(t *testing.T) {
	good, none := limiter.PerSecond(1), limiter.Limit{Per: time.Second}
	l, _ := newLimiter(t, limiter.Budget{Name: "a", Limit: good})
	for want, budgets := range map[string][]limiter.Budget{
		`limiter: Budgets[1] ("orders").Limit.Tokens = 0: want at least 1`: {
			{Name: "a", Limit: good}, {Name: "orders", Limit: none}},
		`limiter: Budgets[0].Name = "": want a letter, then up to 63 letters, digits, dots, ` +
			`underscores or hyphens`: {{Limit: none}},
		`limiter: Budgets[1].Name = "a": want a name of its own: Budgets[0] has this one`: {
			{Name: "a", Limit: good}, {Name: "a", Limit: none}},
		`limiter: Budgets: want at least one budget`: nil,
	} {
		_, err := limiter.New(newStore(t, new(manual)), budgets, limiter.Config{})
		require.EqualError(t, err, want)
		require.EqualError(t, l.Reload(budgets), want)
	}
}

func TestConfigError_BeginsWithItsPackage(t *testing.T) {
	err := &limiter.ConfigError{Field: "Config.Jitter", Value: -1, Reason: "want at least 0"}
	assert.EqualError(t, err, "limiter: Config.Jitter = -1: want at least 0")
	err.Package = "middleware"
	assert.EqualError(t, err, "middleware: Config.Jitter = -1: want at least 0")
}

func TestNew_RefusesNoStore(t *testing.T) {
	budgets := []limiter.Budget{{Name: "a", Limit: limiter.PerSecond(1)}}
	var typed *memstore.Store
	for _, s := range []limiter.Store{nil, typed} {
		_, err := limiter.New(s, budgets, limiter.Config{})
		requireConfigError(t, err, "Store", nil)
	}
}

func TestNew_RefusesBadConfig(t *testing.T) {
	budgets := []limiter.Budget{{Name: "a", Limit: limiter.PerSecond(1)}}
	for _, name := range []string{"with space", "1", "-", "a\x00", strings.Repeat("x", 65)} {
		_, err := limiter.New(newStore(t, new(manual)), budgets, limiter.Config{Name: name})
		requireConfigError(t, err, "Config.Name", name)
	}
	_, err := limiter.New(newStore(t, new(manual)), budgets, limiter.Config{Logger: new(slog.Logger)})
	requireConfigError(t, err, "Config.Logger", nil)
}

func TestNew_ZeroConfigIsUsable(t *testing.T) {
	l, err := limiter.New(newStore(t, new(manual)),
		[]limiter.Budget{{Name: "a", Limit: limiter.PerSecond(1)}}, limiter.Config{})
	require.NoError(t, err)
	assert.Equal(t, "default", l.Name())
}

// pickyStore holds only whole tokens a second.
type pickyStore struct {
	limiter.Store
	within string // what it writes before a field
}

func (s pickyStore) Check(l limiter.Limit) error {
	if l.Per != time.Second {
		return &limiter.ConfigError{Field: s.within + "Per", Value: l.Per, Reason: "want 1s"}
	}
	return nil
}

func TestNew_RefusesWhatTheStoreCannotHold(t *testing.T) {
	for _, within := range []string{"", "Limit."} {
		s := pickyStore{newStore(t, new(manual)), within}
		_, err := limiter.New(s, []limiter.Budget{
			{Name: "a", Limit: limiter.PerSecond(1), OnError: limiter.Closed},
			{Name: "b", Limit: limiter.PerHour(1), OnError: limiter.Closed}}, limiter.Config{})
		requireConfigError(t, err, `Budgets[1] ("b").Limit.Per`, time.Hour)
	}
}

func TestNew_RefusesALimitThatIsNotValidWhateverTheStoreHolds(t *testing.T) {
	_, err := limiter.New(pickyStore{Store: newStore(t, new(manual))},
		[]limiter.Budget{{Name: "a", Limit: limiter.Limit{Per: time.Second}, OnError: limiter.Closed}},
		limiter.Config{})
	requireConfigError(t, err, `Budgets[0] ("a").Limit.Tokens`, int64(0))
}

func TestReload_RefusesWhatNewRefusesAndChangesNothing(t *testing.T) {
	l := limiter.Must(limiter.New(newStore(t, new(manual)),
		[]limiter.Budget{{Name: "a", Limit: limiter.PerHour(2)}}, limiter.Config{}))
	requireConfigError(t, l.Reload([]limiter.Budget{{Name: "b"}}),
		`Budgets[0] ("b").Limit.Tokens`, int64(0))
	d, err := l.Take(context.Background(), alice, 1)
	require.NoError(t, err)
	assert.Equal(t, "a", d.Budget)
}

func TestNew_KeepsNoHoldOfTheCallersSlices(t *testing.T) {
	routes := []string{"a"}
	budgets := []limiter.Budget{{Name: "a", Limit: limiter.PerHour(1), Routes: routes}}
	l := limiter.Must(limiter.New(newStore(t, new(manual)), budgets, limiter.Config{}))
	routes[0], budgets[0].Name = "b", "changed"
	d, err := l.Take(context.Background(), limiter.Caller{Route: "a"}, 1)
	require.NoError(t, err)
	assert.Equal(t, "a", d.Budget)
}

func TestMust_ReturnsTheValueOrPanics(t *testing.T) {
	assert.Equal(t, 7, limiter.Must(7, nil))
	assert.PanicsWithError(t, "limiter: Limit.Tokens = 0: want at least 1", func() {
		limiter.Must(limiter.NewBucket(limiter.Limit{}, nil))
	})
}

func TestNew_ErrorsSayScopesByTheirNames(t *testing.T) {
	for scope, want := range map[limiter.Scope]string{
		limiter.ByTenant | limiter.ByWorkload:                      "ByTenant|ByWorkload",
		limiter.ByRoute | limiter.ByWorkload:                       "ByRoute|ByWorkload",
		limiter.ByPrincipal | limiter.ByRoute | limiter.ByWorkload: "ByPrincipal|ByRoute|ByWorkload",
		limiter.ByTenant | 32:                                      "ByTenant|unknown",
	} {
		_, err := limiter.New(newStore(t, new(manual)), []limiter.Budget{
			{Name: "a", Limit: limiter.PerHour(1), Scope: scope}}, limiter.Config{})
		requireConfigError(t, err, `Budgets[0] ("a").Scope`, want)
	}
}
