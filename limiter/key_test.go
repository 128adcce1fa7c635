package limiter_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/kind"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
)

// witness is a store that remembers the keys and the plans that it was told.
type witness struct {
	*memstore.Store
	keys  []limiter.Key
	plans []string
	calls int
}

func (w *witness) Take(ctx context.Context, c []limiter.Charge) (limiter.Decision, error) {
	w.calls++
	for _, charge := range c {
		w.keys = append(w.keys, charge.Key)
	}
	return w.Store.Take(ctx, c)
}

func (w *witness) Capabilities() limiter.Capabilities {
	can := w.Store.Capabilities()
	plan := can.Plan
	can.Plan = func(add, remove []string) {
		w.plans = append(w.plans, fmt.Sprintf("+%v -%v", add, remove))
		plan(add, remove)
	}
	return can
}

// Tenants are apart by name and, for those that no service named, by kind.
func TestByTenant_TenantsOfAddressesAndCertificatesAreTheirOwn(t *testing.T) {
	w := &witness{Store: newStore(t, new(manual))}
	l := limiter.Must(limiter.New(w, []limiter.Budget{
		{Name: "b", Scope: limiter.ByTenant, Limit: limiter.PerHour(9)},
	}, limiter.Config{}))
	for _, test := range []struct{ caller, key limiter.Principal }{
		{limiter.Principal{Kind: "user", Tenant: "t", ID: "1"}, limiter.Principal{Tenant: "t"}},
		{limiter.Principal{Kind: "robot", Tenant: "t", ID: "1"}, limiter.Principal{Tenant: "t"}},
		{limiter.Principal{Kind: "user", ID: "1"}, limiter.Principal{Kind: "user", ID: "1"}},
		{limiter.Principal{Kind: kind.Address, Tenant: "t", ID: "1"},
			limiter.Principal{Kind: kind.Address, Tenant: "t"}},
		{limiter.Principal{Kind: kind.Certificate, Tenant: "t", ID: "1"},
			limiter.Principal{Kind: kind.Certificate, Tenant: "t"}},
		{limiter.Principal{Kind: kind.Shared, Tenant: "t", ID: "1"},
			limiter.Principal{Kind: kind.Shared, Tenant: "t"}},
	} {
		w.keys = nil
		_, err := l.Take(t.Context(), limiter.Caller{Principal: test.caller}, 1)
		require.NoError(t, err)
		assert.Equal(t, []limiter.Key{{Budget: "b", Principal: test.key}}, w.keys, test.caller)
	}
}

func TestLimiter_TellsTheStoreItsBudgets(t *testing.T) {
	w := &witness{Store: newStore(t, new(manual))}
	a, b := limiter.Budget{Name: "a", Limit: limiter.PerHour(1)}, limiter.Budget{Name: "b",
		Limit: limiter.PerHour(1)}
	l := limiter.Must(limiter.New(w, []limiter.Budget{a, b}, limiter.Config{}))
	require.NoError(t, l.Reload([]limiter.Budget{b}))
	require.Error(t, l.Reload(nil))
	assert.Equal(t, []string{"+[a b] -[]", "+[b] -[a b]"}, w.plans)
}

func TestLimiter_AsksTheStoreOnlyWhatItDecides(t *testing.T) {
	w := &witness{Store: newStore(t, new(manual))}
	l := limiter.Must(limiter.New(w, []limiter.Budget{
		{Name: "b", Limit: limiter.PerHour(1), Routes: []string{"elsewhere"}},
	}, limiter.Config{}))
	d, err := l.Take(t.Context(), limiter.Caller{Route: "here"}, 5)
	require.NoError(t, err)
	assert.Equal(t, limiter.Decision{Outcome: limiter.Allow}, d, "no budget applies")
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, route := range []string{"here", "elsewhere"} {
		_, err = l.Take(gone, limiter.Caller{Route: route}, 1)
		assert.ErrorIs(t, err, context.Canceled, route)
	}
	assert.Zero(t, w.calls)
}
