package memstore

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
)

// bothPaths is two stores with the same hash seeds and the same clock. One uses the fast
// path if that can decide, the other never does.
type bothPaths struct {
	t             *testing.T
	random        *rand.Rand
	now           time.Time
	fast, general *Store
	decided       int              // requests that the fast path decided
	taken         []limiter.Charge // what the last request took
}

func newBothPaths(t *testing.T, seed uint64, maxAccounts int) *bothPaths {
	w := &bothPaths{t: t, random: rand.New(rand.NewPCG(seed, 0)), now: time.Unix(1000, 0)}
	open := func() *Store {
		s, err := New(Config{MaxAccounts: maxAccounts, Now: func() time.Time { return w.now }})
		require.NoError(t, err)
		return s
	}
	w.fast, w.general = open(), open()
	w.general.hash.a, w.general.hash.b = w.fast.hash.a, w.fast.hash.b
	return w
}

// charges returns up to four charges on few accounts, whose limits rarely change.
func (w *bothPaths) charges() []limiter.Charge {
	limits := []limiter.Limit{
		{Tokens: 3, Per: time.Second},
		{Tokens: 7, Per: 3 * time.Second, Burst: 5},
		{Tokens: 3, Per: 2 * time.Second, Algorithm: limiter.FixedWindow},
		{Tokens: 4, Per: time.Second, Algorithm: limiter.RollingLog},
	}
	one := func(of ...string) string { return of[w.random.IntN(len(of))] }
	charges := make([]limiter.Charge, 1+w.random.IntN(maxFast))
	for i := range charges {
		budget := w.random.IntN(len(limits))
		limit := limits[budget]
		if w.random.IntN(30) == 0 {
			limit = limits[w.random.IntN(len(limits))]
		}
		charges[i] = limiter.Charge{
			Key: limiter.Key{Budget: strconv.Itoa(budget), Route: one("", "x"),
				Principal: limiter.Principal{Kind: one("", "x"), ID: one("", "x", "y")}},
			Limit: limit, Cost: w.random.Int64N(1 + w.random.Int64N(6)), Shadow: w.random.IntN(4) == 0,
		}
	}
	return charges
}

// step makes the same call to both stores, which must answer alike.
func (w *bothPaths) step() {
	w.now = w.now.Add(time.Duration(w.random.Int64N(150)-50) * time.Millisecond)
	ctx := w.t.Context()
	switch n := w.random.IntN(40); {
	case n == 0:
		charges := w.charges()
		require.NoError(w.t, w.fast.Reset(ctx, charges))
		require.NoError(w.t, w.general.Reset(ctx, charges))
	case n < 10:
		charges := w.taken
		w.taken = nil
		for i := range charges {
			charges[i].Cost = w.random.Int64N(8) - charges[i].Cost
		}
		require.NoError(w.t, w.fast.Settle(ctx, slices.Clone(charges)))
		require.NoError(w.t, w.general.Settle(ctx, charges))
	default:
		w.decide(w.charges(), n < 35)
	}
}

func (w *bothPaths) decide(charges []limiter.Charge, take bool) {
	if _, decided := decideFast(w.fast, slices.Clone(charges), false); decided {
		w.decided++
	}
	var want, got limiter.Decision
	others := slices.Clone(charges)
	err := w.general.run(make([]draw, len(charges)), charges, take, &want)
	require.Equal(w.t, err, w.fast.decide(w.t.Context(), others, take, &got))
	require.Equal(w.t, want, got)
	require.Equal(w.t, charges, others)
	if err == nil && take {
		w.taken = slices.DeleteFunc(charges, func(c limiter.Charge) bool {
			paid := c.Receipt.Valid
			return !paid
		})
	}
}

// Whatever came before, a request on the fast path gets the same answer and leaves the
// same accounts as on the general path.
func TestFastPath_LeavesTheAccountsThatTheGeneralPathLeaves(t *testing.T) {
	const seeds, steps = 40, 300
	for _, maxAccounts := range []int{0, 60} {
		decided := 0
		for seed := range uint64(seeds) {
			w := newBothPaths(t, seed, maxAccounts)
			for range steps {
				w.step()
			}
			audit(t, w.fast)
			require.Equal(t, w.general.Stats(), w.fast.Stats())
			decided += w.decided
		}
		assert.Greater(t, decided, seeds*steps/20, "with %d accounts", maxAccounts)
		assert.Less(t, decided, seeds*steps*19/20, "with %d accounts", maxAccounts)
	}
}
