package storekit_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
	"github.com/ration-go/ration/limiter/storekit"
)

// While the clock does not go back, a store of bytes and a store in memory give the
// same answers, whatever the limits change into.
func TestStore_AnswersAsTheStoreInMemory(t *testing.T) {
	limits := []limiter.Limit{
		{Tokens: 7, Per: 11 * time.Second, Burst: 30}, {Tokens: 3, Per: time.Second, Burst: 9},
		{Tokens: 999_983, Per: 24 * time.Hour, Burst: 40}, {Tokens: 20, Per: time.Minute},
		{Tokens: 25, Per: 10 * time.Second, Algorithm: limiter.FixedWindow},
		{Tokens: 12, Per: 10 * time.Second, Algorithm: limiter.FixedWindow},
		{Tokens: 20, Per: 15 * time.Second, Algorithm: limiter.RollingLog},
		{Tokens: 8, Per: 15 * time.Second, Algorithm: limiter.RollingLog},
	}
	for seed := range uint64(8) {
		d := newDifferential(t, seed, limits)
		for range 3000 {
			d.step()
		}
	}
}

// differential makes the same calls of two stores.
type differential struct {
	t      *testing.T
	random *rand.Rand
	limits []limiter.Limit
	now    time.Time
	kit    *storekit.Store
	memory *memstore.Store
	open   [][2][]limiter.Charge // taken by both and not settled
}

func newDifferential(t *testing.T, seed uint64, limits []limiter.Limit) *differential {
	d := &differential{t: t, random: rand.New(rand.NewPCG(seed, 1)), limits: limits, now: start}
	clock := func() time.Time { return d.now }
	d.kit = newStore(t, newTable(), clock)
	d.memory = limiter.Must(memstore.New(memstore.Config{Now: clock}))
	return d
}

func (d *differential) step() {
	if d.random.IntN(3) > 0 {
		d.now = d.now.Add(time.Duration(d.random.Int64N(int64(2 * time.Second))))
	}
	switch {
	case d.random.IntN(100) == 0:
		c := d.charges()
		require.NoError(d.t, d.kit.Reset(d.t.Context(), c))
		require.NoError(d.t, d.memory.Reset(d.t.Context(), c))
	case len(d.open) > 0 && d.random.IntN(3) == 0:
		d.settle()
	default:
		d.take()
	}
}

// charges returns charges on some of four accounts, under limits that change.
func (d *differential) charges() []limiter.Charge {
	var charges []limiter.Charge
	for _, user := range d.random.Perm(4)[:1+d.random.IntN(3)] {
		l := d.limits[user]
		if d.random.IntN(4) == 0 {
			l = d.limits[d.random.IntN(len(d.limits))]
		}
		c := on(string(rune('a'+user)), l, d.random.Int64N(10))
		c.Shadow = d.random.IntN(8) == 0
		charges = append(charges, c)
	}
	return charges
}

func (d *differential) take() {
	kit := d.charges()
	memory := slices.Clone(kit)
	kitCall, memoryCall := d.kit.Take, d.memory.Take
	peek := d.random.IntN(4) == 0
	if peek {
		kitCall, memoryCall = d.kit.Peek, d.memory.Peek
	}
	got, err := kitCall(d.t.Context(), kit)
	require.NoError(d.t, err)
	want, err := memoryCall(d.t.Context(), memory)
	require.NoError(d.t, err)
	require.Equal(d.t, want, got)
	require.Equal(d.t, memory, kit)
	if got.Allowed() && !peek {
		d.open = append(d.open, [2][]limiter.Charge{kit, memory})
	}
}

func (d *differential) settle() {
	i := d.random.IntN(len(d.open))
	both := d.open[i]
	d.open = slices.Delete(d.open, i, i+1)
	for j := range both[0] {
		delta := d.random.Int64N(20) - both[0][j].Cost
		both[0][j].Cost, both[1][j].Cost = delta, delta
	}
	got := d.kit.Settle(d.t.Context(), both[0])
	want := d.memory.Settle(d.t.Context(), both[1])
	require.Equal(d.t, want, got)
	require.Equal(d.t, both[1], both[0])
}
