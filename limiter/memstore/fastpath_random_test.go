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

// twins are two stores that name their accounts alike and have one clock. The
// quick one takes a short way where there is one, the plain one never does.
type twins struct {
	t            *testing.T
	random       *rand.Rand
	now          time.Time
	quick, plain *Store
	short        int              // requests that had a short way
	taken        []limiter.Charge // what the last request took
}

func newTwins(t *testing.T, seed uint64, maxAccounts int) *twins {
	w := &twins{t: t, random: rand.New(rand.NewPCG(seed, 0)), now: time.Unix(1000, 0)}
	open := func() *Store {
		s, err := New(Config{MaxAccounts: maxAccounts, Now: func() time.Time { return w.now }})
		require.NoError(t, err)
		return s
	}
	w.quick, w.plain = open(), open()
	w.plain.hash.a, w.plain.hash.b = w.quick.hash.a, w.quick.hash.b
	return w
}

// charges returns up to four charges on few accounts, whose limits mostly are what
// they were before.
func (w *twins) charges() []limiter.Charge {
	limits := []limiter.Limit{
		{Tokens: 3, Per: time.Second},
		{Tokens: 7, Per: 3 * time.Second, Burst: 5},
		{Tokens: 3, Per: 2 * time.Second, Algorithm: limiter.FixedWindow},
		{Tokens: 4, Per: time.Second, Algorithm: limiter.RollingLog},
	}
	one := func(of ...string) string { return of[w.random.IntN(len(of))] }
	charges := make([]limiter.Charge, 1+w.random.IntN(few))
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

// step makes one call to both, which have to answer alike.
func (w *twins) step() {
	w.now = w.now.Add(time.Duration(w.random.Int64N(150)-50) * time.Millisecond)
	ctx := w.t.Context()
	switch n := w.random.IntN(40); {
	case n == 0:
		charges := w.charges()
		require.NoError(w.t, w.quick.Reset(ctx, charges))
		require.NoError(w.t, w.plain.Reset(ctx, charges))
	case n < 10:
		charges := w.taken
		w.taken = nil
		for i := range charges {
			charges[i].Cost = w.random.Int64N(8) - charges[i].Cost
		}
		require.NoError(w.t, w.quick.Settle(ctx, slices.Clone(charges)))
		require.NoError(w.t, w.plain.Settle(ctx, charges))
	default:
		w.decide(w.charges(), n < 35)
	}
}

func (w *twins) decide(charges []limiter.Charge, take bool) {
	if _, decided := short(w.quick, slices.Clone(charges), false); decided {
		w.short++
	}
	var want, got limiter.Decision
	others := slices.Clone(charges)
	err := w.plain.run(make([]draw, len(charges)), charges, take, &want)
	require.Equal(w.t, err, w.quick.decide(w.t.Context(), others, take, &got))
	require.Equal(w.t, want, got)
	require.Equal(w.t, charges, others)
	if err == nil && take {
		w.taken = slices.DeleteFunc(charges, func(c limiter.Charge) bool {
			paid := c.Receipt.Valid
			return !paid
		})
	}
}

// Whatever came before, a request that takes a short way gets the answer, and
// leaves the accounts, of one that does not.
func TestStore_TheWayOfARequestIsNotSeen(t *testing.T) {
	const seeds, steps = 40, 300
	for _, maxAccounts := range []int{0, 60} {
		shortly := 0
		for seed := range uint64(seeds) {
			w := newTwins(t, seed, maxAccounts)
			for range steps {
				w.step()
			}
			audit(t, w.quick)
			require.Equal(t, w.plain.Stats(), w.quick.Stats())
			shortly += w.short
		}
		assert.Greater(t, shortly, seeds*steps/20, "with %d accounts", maxAccounts)
		assert.Less(t, shortly, seeds*steps*19/20, "with %d accounts", maxAccounts)
	}
}
