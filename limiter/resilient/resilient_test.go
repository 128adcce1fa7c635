package resilient_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
	"github.com/ration-go/ration/limiter/resilient"
	"github.com/ration-go/ration/limiter/storetest"
)

// The store keeps the promise, with a shared store that bounds its calls and with one that
// does not. So does the local side.
func TestStore_KeepsThePromise(t *testing.T) {
	front := func(shared limiter.Store, now func() time.Time) *resilient.Store {
		return limiter.Must(resilient.New(shared, newMemory(t, now), resilient.Config{
			Replicas: func() int { return 2 }, Timeout: time.Minute,
		}))
	}
	for name, store := range map[string]func(now func() time.Time) limiter.Store{
		"bounds its calls": func(now func() time.Time) limiter.Store {
			return front(&shared{Store: newMemory(t, now)}, now)
		},
		"does not": func(now func() time.Time) limiter.Store {
			return front(struct{ limiter.Store }{newMemory(t, now)}, now)
		},
		"local side": func(now func() time.Time) limiter.Store {
			return front(newShared(t), now).Capabilities().Local
		},
	} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, storetest.Harness{
				New: func(_ testing.TB, now func() time.Time) limiter.Store { return store(now) },
			})
		})
	}
}

func TestNew_SaysWhatIsWrong(t *testing.T) {
	one := func() int { return 1 }
	memory := newMemory(t, nil)
	for want, f := range map[string]func() (*resilient.Store, error){
		"resilient: Shared: want a store, not nil": func() (*resilient.Store, error) {
			return resilient.New(nil, memory, resilient.Config{Replicas: one})
		},
		"resilient: Local: want a store, not nil": func() (*resilient.Store, error) {
			return resilient.New(memory, (*memstore.Store)(nil), resilient.Config{Replicas: one})
		},
		"resilient: Local: want a store of its own": func() (*resilient.Store, error) {
			return resilient.New(memory, memory, resilient.Config{Replicas: one})
		},
		"resilient: Config.Replicas: want a function": func() (*resilient.Store, error) {
			return resilient.New(memory, newMemory(t, nil), resilient.Config{})
		},
		"resilient: Config.MaxCost = -1: want": func() (*resilient.Store, error) {
			return resilient.New(memory, newMemory(t, nil), resilient.Config{Replicas: one, MaxCost: -1})
		},
		"resilient: Config.Timeout = 1ns: want": func() (*resilient.Store, error) {
			return resilient.New(memory, newMemory(t, nil), resilient.Config{Replicas: one, Timeout: 1})
		},
	} {
		s, err := f()
		var config *limiter.ConfigError
		require.ErrorAs(t, err, &config, want)
		assert.ErrorContains(t, err, want)
		assert.Nil(t, s)
	}
	_, err := limiter.New(&resilient.Store{}, []limiter.Budget{{Name: "a", Limit: limiter.PerHour(1)}},
		limiter.Config{})
	assert.ErrorContains(t, err, "resilient.New")
}

// What the shared store can do, the store in front of it can do.
func TestCapabilities_AreThoseOfTheSharedStore(t *testing.T) {
	memory := newMemory(t, nil)
	front, err := resilient.New(memory, newMemory(t, nil),
		resilient.Config{Replicas: func() int { return 1 }})
	require.NoError(t, err)
	can := front.Capabilities()
	assert.Equal(t, "memory", can.Name)
	assert.True(t, can.NeverFails)
	assert.NotNil(t, can.Reset)
	assert.NotNil(t, can.Plan)
	assert.NotNil(t, can.Local)
	_, _ = front.Take(background, []limiter.Charge{
		{Key: limiter.Key{Budget: "a"}, Limit: limiter.PerHour(1), Cost: 1}})
	live, _ := can.Accounts()
	assert.EqualValues(t, 1, live)
	assert.Error(t, front.Check(limiter.Limit{}))

	front, err = resilient.New(struct{ limiter.Store }{memory}, newMemory(t, nil),
		resilient.Config{Replicas: func() int { return 1 }})
	require.NoError(t, err)
	can = front.Capabilities()
	assert.Empty(t, can.Name)
	assert.False(t, can.NeverFails)
	assert.Nil(t, can.Reset)
	assert.NotNil(t, can.Plan, "that of the local store")
	assert.False(t, can.BreakerOpen())
}

// A receipt is settled only in the store that wrote it.
func TestSettle_KnowsWhoseReceiptItIs(t *testing.T) {
	p := newProcess(t, 2, limiter.Budget{Name: "a", Limit: limiter.PerHour(10), OnError: limiter.Local})
	side := p.store.Capabilities().Local
	charge := func(name string) []limiter.Charge {
		return []limiter.Charge{{Key: limiter.Key{Budget: name}, Limit: limiter.PerHour(10), Cost: 4}}
	}
	left := func(s limiter.Store, c limiter.Charge) int64 {
		c.Cost = 0
		d, err := s.Peek(background, []limiter.Charge{c})
		require.NoError(t, err)
		return d.Remaining
	}
	here, there := charge("a"), charge("a")
	for s, c := range map[limiter.Store][]limiter.Charge{side: here, p.store: there} {
		_, err := s.Take(background, c)
		require.NoError(t, err)
		c[0].Cost = -1
	}
	require.ErrorIs(t, side.Settle(background, there), limiter.ErrReceipt)
	require.ErrorIs(t, p.store.Settle(background, []limiter.Charge{here[0], there[0]}),
		limiter.ErrReceipt, "no request is taken in two stores")
	assert.EqualValues(t, 6, left(side, here[0]))
	assert.EqualValues(t, 6, left(p.store, there[0]))

	require.NoError(t, p.store.Settle(background, here))
	assert.EqualValues(t, 7, left(side, here[0]))
	assert.EqualValues(t, 6, left(p.store, there[0]))
	require.NoError(t, p.store.Settle(background, there))
	assert.EqualValues(t, 7, left(p.store, there[0]))
	for _, c := range [][]limiter.Charge{here, there} {
		assert.ErrorIs(t, p.store.Settle(background, c), limiter.ErrReceipt)
	}
}

// receipts is a store that debits and writes receipts, and then fails.
type receipts struct{ limiter.Store }

func (r receipts) Take(ctx context.Context, charges []limiter.Charge) (limiter.Decision, error) {
	_, _ = r.Store.Take(ctx, charges)
	return limiter.Decision{}, errDown
}

// bounding is a store with a breaker of its own.
type bounding struct{ limiter.Store }

func (bounding) Capabilities() limiter.Capabilities {
	return limiter.Capabilities{BreakerOpen: func() bool { return false }}
}

// A Take that failed leaves no receipt, whatever the store behind it did.
func TestTake_ThatFailedLeavesNoReceipt(t *testing.T) {
	cfg := resilient.Config{Replicas: func() int { return 1 }}
	front := func(shared, local limiter.Store) *resilient.Store {
		return limiter.Must(resilient.New(shared, local, cfg))
	}
	bad := receipts{newMemory(t, nil)}
	for name, s := range map[string]limiter.Store{
		"no breaker": front(bad, newMemory(t, nil)),
		"a breaker":  front(bounding{bad}, newMemory(t, nil)),
		"local":      front(newShared(t), bad).Capabilities().Local,
	} {
		charges := []limiter.Charge{{Key: limiter.Key{Budget: "a"}, Limit: limiter.PerHour(9), Cost: 1}}
		_, err := s.Take(background, charges)
		require.ErrorIs(t, err, errDown, name)
		assert.Zero(t, charges[0].Receipt, name)
	}
}

// A local store can be a Store itself, such as one in front of a second server. What its
// shared store took is not settled in its own local one.
func TestSettle_OfALocalStoreThatIsAStoreItself(t *testing.T) {
	cfg := resilient.Config{Replicas: func() int { return 1 }}
	second, memory := newShared(t), newMemory(t, nil)
	s := newShared(t)
	s.down.Store(true)
	l := limiter.Must(limiter.New(limiter.Must(resilient.New(s, limiter.Must(
		resilient.New(second, memory, cfg)), cfg)), []limiter.Budget{
		{Name: "a", Limit: limiter.PerHour(10), OnError: limiter.Local},
	}, limiter.Config{Logger: quiet}))
	reserved, err := l.Reserve(background, alice, 10)
	var failed *limiter.StoreError
	require.ErrorAs(t, err, &failed)
	second.down.Store(true)
	require.ErrorAs(t, reserved.Cancel(background), &failed, "it stays open")
	second.down.Store(false)
	require.NoError(t, reserved.Cancel(background))
	assert.ErrorIs(t, reserved.Cancel(background), limiter.ErrReceipt)
	d, _ := l.Peek(background, alice, 10)
	assert.Equal(t, limiter.Allow, d.Outcome)
	assert.Zero(t, memory.Stats())
}

// Construction does no I/O, requests follow the policies, and nothing has to be
// restarted.
func TestStore_StartsWhileTheSharedStoreIsDown(t *testing.T) {
	s := newShared(t)
	s.down.Store(true)
	p := newProcessWith(t, s, limiter.Config{Logger: quiet},
		resilient.Config{Replicas: func() int { return 5 }},
		limiter.Budget{Name: "a", Limit: limiter.PerHour(10), OnError: limiter.Local})
	d, policy := p.take(t, 1)
	assert.Equal(t, limiter.Allow, d.Outcome)
	assert.Equal(t, limiter.Local, policy)
	s.down.Store(false)
	d, policy = p.take(t, 1)
	assert.EqualValues(t, 9, d.Remaining, "nothing is charged afterwards")
	assert.Zero(t, policy)
}
