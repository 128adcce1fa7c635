package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/lab/model"
	"github.com/ration-go/ration/internal/lab/oracle"
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

// Logs of hundreds of entries, most of which are corrected, some to nothing; under
// limits of which few change.
func TestStore_LongLogsAgreeWithTheOracle(t *testing.T) {
	server := redistest.Start(t)
	client := newClient(t, server.Network, server.Addr)
	for seed := range uint64(18 / slowdown) {
		agreeOnLogs(t, client, rand.New(rand.NewPCG(seed, 7)))
	}
}

func agreeOnLogs(t *testing.T, client redisstore.Client, r *rand.Rand) {
	now := time.Unix(1_800_000_000, 0)
	s := newStore(t, client, redisstore.Config{Prefix: newPrefix(), Timeout: patient,
		MaxAhead: forever, Now: func() time.Time { return now }})
	want := oracle.NewAs(oracle.Rules(rules))
	log := limiter.Limit{Tokens: 150 + r.Int64N(200), Per: time.Second, Algorithm: limiter.RollingLog}
	others := []limiter.Limit{{Tokens: 100, Per: time.Second, Algorithm: limiter.RollingLog},
		{Tokens: 200, Per: 2 * time.Second, Algorithm: limiter.RollingLog}, limiter.PerSecond(200)}
	full, credits := 1+r.Int64N(12), r.IntN(3)
	var open []limiter.Charge
	for step := range 3000 {
		if r.IntN(3) > 0 {
			now = now.Add(time.Duration(r.Int64N(full*int64(time.Millisecond)) / 1000 * 1000))
		}
		if r.IntN(50) == 0 {
			now = now.Add(time.Duration(r.Int64N(int64(time.Second))) / 1000 * 1000)
		}
		if len(open) > 0 && r.IntN(4) < credits+1 {
			i := r.IntN(len(open))
			if r.IntN(2) == 0 {
				i = len(open) - 1 - r.IntN(min(len(open), 5))
			}
			c := open[i]
			if r.IntN(2) == 0 { // else it is corrected once more, later
				open = slices.Delete(open, i, i+1)
			}
			c.Cost = -c.Cost
			if r.IntN(3) == 0 {
				c.Cost = r.Int64N(c.Receipt.Taken+3) - c.Receipt.Taken
			}
			same := c
			require.NoError(t, want.Settle(now.UnixNano(), []limiter.Charge{same}))
			require.NoError(t, s.Settle(t.Context(), []limiter.Charge{c}))
			continue
		}
		l := log
		if r.IntN(300) == 0 {
			l = others[r.IntN(len(others))]
		}
		charges := on("alice", l, 1+r.Int64N(3))
		if r.IntN(3) == 0 {
			charges[0].Cost = r.Int64N(l.Capacity() + 1)
			same := slices.Clone(charges)
			expected, err := want.Peek(now.UnixNano(), same)
			require.NoError(t, err)
			got, err := s.Peek(t.Context(), charges)
			require.NoError(t, err)
			require.Equal(t, expected, got, "step %d", step)
			require.Equal(t, same, charges, "step %d", step)
			continue
		}
		same := slices.Clone(charges)
		expected, err := want.Take(now.UnixNano(), same)
		require.NoError(t, err)
		got, err := s.Take(t.Context(), charges)
		require.NoError(t, err)
		require.Equal(t, expected, got, "step %d", step)
		require.Equal(t, same, charges, "step %d", step)
		if got.Allowed() {
			open = append(open, charges...)
			if len(open) > 400 {
				open = open[len(open)-300:]
			}
		}
	}
}
