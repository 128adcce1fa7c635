package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/model"
	"github.com/ration-go/ration/internal/redistest"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/redisstore"
)

// rules are those of the store, as the model wants them.
var rules = model.Rules{
	Step: time.Microsecond, AccountClock: true, Unit: redisstore.Unit, Most: redisstore.Most,
}

// forever is more than any clock can be ahead.
const forever = 1<<63 - 1

// span is what the store can hold of time, to both sides of 1970.
const span = 1 << 52 * time.Microsecond

func TestStore_AgreesWithTheModel(t *testing.T) {
	const steps, lanes = 120_000 / slowdown, 4
	for lane := range uint64(lanes) {
		t.Run(fmt.Sprint(lane), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			client := newClient(t, server.Network, server.Addr)
			factory := func(now func() time.Time) limiter.Store {
				return newStore(t, client, redisstore.Config{
					Prefix: newPrefix(), Timeout: patient, MaxAhead: forever, Now: now,
				})
			}
			check := newStore(t, client, redisstore.Config{}).Check
			shape := model.Shape{Accepts: check, Step: time.Microsecond, Span: span}
			for seed := range uint64(steps / lanes / 500) {
				g := model.NewGenerator(rand.NewPCG(seed, lane), shape)
				require.NoError(t, rules.Check(factory, g, 500), "seed %d, %d", seed, lane)
			}
		})
	}
}
