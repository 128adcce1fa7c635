package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/lab/model"
	"github.com/ration-go/ration/internal/lab/redistest"
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

// drive runs so many streams in each of some lanes, each on a server of its own.
func drive(t *testing.T, streams uint64, shape model.Shape,
	run func(model.Factory, *model.Generator) error,
) {
	const lanes = 4
	if testing.Short() {
		streams = max(streams/10, lanes)
	}
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
			shape := shape
			shape.Accepts = newStore(t, client, redisstore.Config{}).Check
			shape.Step, shape.Span = time.Microsecond, span
			for seed := range streams / lanes {
				g := model.NewGenerator(rand.NewPCG(seed, lane), shape)
				require.NoError(t, run(factory, g), "seed %d, %d", seed, lane)
			}
		})
	}
}

const stepsAStream = 500

func check(f model.Factory, g *model.Generator) error { return rules.Check(f, g, stepsAStream) }

func TestStore_AgreesWithTheModel(t *testing.T) {
	drive(t, 240/slowdown, model.Shape{}, check)
}

// Limits of all algorithms that change all the time, and corrections that come
// long after what they correct has gone.
func TestStore_AgreesWithTheModelWhileLimitsChange(t *testing.T) {
	drive(t, 80/slowdown, model.Shape{Reloads: true}, check)
}

func TestStore_AllowsNoMoreThanTheLargestCapacityAtOneInstant(t *testing.T) {
	shape := model.Shape{OneKey: true, Decisions: true, Reloads: true, Still: true}
	drive(t, 400/slowdown, shape, func(f model.Factory, g *model.Generator) error {
		return rules.Conserves(f, g, 40)
	})
}

func TestStore_AllowsNoMoreThanTheLargestCapacityAndWhatTimeGaveBack(t *testing.T) {
	shape := model.Shape{OneKey: true, Decisions: true, Reloads: true, Forward: true}
	drive(t, 40/slowdown, shape, func(f model.Factory, g *model.Generator) error {
		return rules.Conserves(f, g, stepsAStream)
	})
}
