package memstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
	"github.com/ration-go/ration/limiter/storetest"
)

func newStore(t testing.TB, cfg memstore.Config) *memstore.Store {
	t.Helper()
	s, err := memstore.New(cfg)
	require.NoError(t, err)
	return s
}

func TestStore_KeepsThePromise(t *testing.T) {
	storetest.Run(t, storetest.Harness{
		New: func(t testing.TB, now func() time.Time) limiter.Store {
			return newStore(t, memstore.Config{Now: now})
		},
	})
}
