package storekit_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/storekit"
	"github.com/ration-go/ration/limiter/storetest"
)

// patient is a timeout that no call on a table reaches.
const patient = time.Minute

func newStore(t testing.TB, b storekit.Backend, now func() time.Time) *storekit.Store {
	t.Helper()
	store, err := storekit.New(b, storekit.Config{Timeout: patient, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// harness holds stores on tables that change makes unusual.
func harness(change func(*table)) storetest.Harness {
	tables := map[limiter.Store]*table{}
	return storetest.Harness{
		New: func(t testing.TB, now func() time.Time) limiter.Store {
			b := newTable()
			if now != nil {
				b.clock = now
			}
			change(b)
			store := newStore(t, b, now)
			tables[store] = b
			return store
		},
		AccountClock: true,
		Accounts:     func(s limiter.Store) int { return len(tables[s].rows) },
		Shared: &storetest.Shared{
			Another: func(t testing.TB, s limiter.Store, now func() time.Time) limiter.Store {
				return newStore(t, tables[s], now)
			},
			Hold: func(t testing.TB, s limiter.Store, charges []limiter.Charge) func() {
				return hold(t, tables[s], charges)
			},
			Fail: func(s limiter.Store, at storetest.Moment) { tables[s].fail.Store(uint32(at)) },
		},
	}
}

// hold locks the accounts of the charges until release is called.
func hold(t testing.TB, b storekit.Backend, charges []limiter.Charge) (release func()) {
	t.Helper()
	r, err := storekit.Prepare(storekit.Peek, charges, nil)
	if err != nil {
		t.Fatal(err)
	}
	locked, ended, end := make(chan struct{}), make(chan error, 1), make(chan struct{})
	signal := sync.OnceFunc(func() { close(locked) })
	go func() {
		ended <- b.Update(t.Context(), r.Keys(),
			func(time.Time, [][]byte) ([]storekit.Record, error) {
				signal()
				<-end
				return nil, nil
			})
	}()
	<-locked
	return func() {
		close(end)
		assert.NoError(t, <-ended)
	}
}

func TestStore_KeepsThePromise(t *testing.T) {
	storetest.Run(t, harness(func(*table) {}))
}

func TestStore_KeepsThePromiseIfTransactionsAreTriedAgain(t *testing.T) {
	storetest.Run(t, harness(func(b *table) { b.reruns = true }))
}

func TestStore_KeepsThePromiseIfFullRowsAreDeleted(t *testing.T) {
	storetest.Run(t, harness(func(b *table) { b.sweep = true }))
}
