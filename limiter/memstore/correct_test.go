package memstore

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
)

// An account that is full again may have lost its place when it is corrected.
func TestSettle_OfAnAccountThatLostItsPlace(t *testing.T) {
	for _, test := range []struct {
		name               string
		others, correction int64
		remaining          int64 // on the overflow account
	}{
		{"a credit changes nothing", 2, -1, 1},
		{"a debit is one of the overflow account", 2, 1, 0},
		{"which is made", 0, 2, 1},
		{"a credit makes none", 0, -1, 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCrowded(t, 1)
			_, charges := c.take(on("a", "x", "r1", 1))
			c.now = c.now.Add(2 * time.Hour)
			d, _ := c.take(on("a", "x", "r2", 3))
			require.True(t, d.Allowed())
			c.requireOverflowTakes(0)
			if test.others > 0 {
				c.take(on("a", "x", "r3", test.others))
			}
			charges[0].Cost = test.correction
			require.NoError(t, c.Settle(t.Context(), charges))
			audit(t, c.Store)
			d, _ = c.take(on("a", "x", "r4", 0))
			assert.Equal(t, test.remaining, d.Remaining)
		})
	}
}

func TestSettle_OfAnOverflowAccountThatIsFullAgain(t *testing.T) {
	c := newCrowded(t, 1)
	c.take(on("a", "x", "r1", 1))
	_, charges := c.take(on("a", "x", "r2", 1))
	c.requireOverflowTakes(1)
	c.now = c.now.Add(2 * time.Hour)
	require.Zero(t, c.Stats().Accounts)
	charges[0].Cost = 2
	require.NoError(t, c.Settle(t.Context(), charges))
	audit(t, c.Store)
	p := c.classes.pool(poolID{"a", false})
	assert.EqualValues(t, 1, p.spills.Load())
	assert.EqualValues(t, 1, p.live.Load())
}

func TestSettle_OfAWindowThatHasEndedMakesNoRecord(t *testing.T) {
	now := time.Unix(1000, 0)
	s, err := New(Config{Now: func() time.Time { return now }})
	require.NoError(t, err)
	c := []limiter.Charge{*charge("a", "user", limiter.Limit{
		Algorithm: limiter.FixedWindow, Tokens: 3, Per: time.Second})}
	c[0].Cost = 1
	_, err = s.Take(t.Context(), c)
	require.NoError(t, err)
	now = now.Add(time.Second)
	c[0].Cost = 1
	require.NoError(t, s.Settle(t.Context(), c))
	require.Zero(t, s.classes.regions[0].live.Load())
	audit(t, s)
}

func TestUnplan_TakesBackOnePlan(t *testing.T) {
	s, err := New(Config{})
	require.NoError(t, err)
	for _, budgets := range [][]string{{"a", "b"}, {"a"}} {
		s.Plan(budgets)
	}
	for i, want := range []int64{2, 1} {
		s.Unplan([]string{"a"})
		require.Equal(t, want, s.classes.regions[0].pools.Load(), strconv.Itoa(i))
	}
}
