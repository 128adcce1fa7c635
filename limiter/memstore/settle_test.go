package memstore

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
)

// The full account that a settle corrects may have been dropped, and its room used.
func TestSettle_OfAnAccountThatWasDropped(t *testing.T) {
	for _, test := range []struct {
		name               string
		others, correction int64
		remaining          int64 // on the overflow account
	}{
		{"a credit changes nothing", 2, -1, 1},
		{"a debit goes to the overflow account", 2, 1, 0},
		{"a debit makes an overflow account", 0, 2, 1},
		{"a credit makes none", 0, -1, 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newSmallStore(t, 1)
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
	c := newSmallStore(t, 1)
	c.take(on("a", "x", "r1", 1))
	_, charges := c.take(on("a", "x", "r2", 1))
	c.requireOverflowTakes(1)
	c.now = c.now.Add(2 * time.Hour)
	require.Zero(t, c.Stats().Accounts)
	charges[0].Cost = 2
	require.NoError(t, c.Settle(t.Context(), charges))
	audit(t, c.Store)
	p := c.classes.pool(poolID{"a", false})
	assert.Zero(t, p.overflowLive.Load(), "there is a place for the caller's own account")
	assert.EqualValues(t, 1, p.live.Load())
	d, _ := c.take(on("a", "x", "r2", 0))
	assert.EqualValues(t, 1, d.Remaining)
}

// If the caller has no account of its own, a debit takes at most what is left of the
// overflow account, so that the others who share it have no debt.
func TestSettle_LeavesNoDebtOnAnOverflowAccount(t *testing.T) {
	for _, algorithm := range []limiter.Algorithm{
		limiter.TokenBucket, limiter.FixedWindow, limiter.RollingLog,
	} {
		for _, test := range []struct {
			name          string
			kept          bool  // the receipt is of an account of the caller's own
			used          int64 // of the overflow account before
			debit, remain int64
		}{
			{"of an overflow account, within what is left", false, 1, 1, 1},
			{"of an overflow account, more than is left", false, 1, 61, 0},
			{"of an overflow account, none is left", false, 3, 61, 0},
			{"of an account that was dropped", true, 1, 61, 0},
			{"while the overflow account is full", true, 0, 61, 0},
		} {
			limit := three
			limit.Algorithm = algorithm
			t.Run(limit.String()+", "+test.name, func(t *testing.T) {
				c := newSmallStore(t, 2)
				charge := func(route string, cost int64) limiter.Charge {
					one := on("a", "x", route, cost)
					one.Limit = limit
					return one
				}
				fill := func() { // the two places
					c.take(charge("filler", 3))
					if algorithm != limiter.RollingLog { // which one log takes
						c.take(charge("filler too", 3))
					}
				}
				if algorithm == limiter.RollingLog {
					c.reserveForLogs()
				}
				var receipts []limiter.Charge
				if test.kept {
					_, receipts = c.take(charge("receipt", 1))
					c.now = c.now.Add(20 * time.Minute) // full again, within a window
					if algorithm != limiter.TokenBucket {
						require.NoError(t, c.Reset(t.Context(), receipts))
					}
					fill()
					if test.used > 0 {
						c.take(charge("stranger", test.used))
					}
				} else {
					fill()
					_, receipts = c.take(charge("receipt", test.used))
				}
				before, err := c.Peek(t.Context(), []limiter.Charge{charge("stranger", 1)})
				require.NoError(t, err)
				receipts[0].Cost = test.debit
				require.NoError(t, c.Settle(t.Context(), receipts))
				audit(t, c.Store)
				d, _ := c.take(charge("stranger", 0))
				assert.Equal(t, test.remain, d.Remaining)
				after, err := c.Peek(t.Context(), []limiter.Charge{charge("stranger", 1)})
				require.NoError(t, err)
				if before.Outcome == limiter.Deny {
					assert.Equal(t, before.RetryAfter, after.RetryAfter)
				}
				assert.LessOrEqual(t, after.RetryAfter, time.Hour)
				if algorithm == limiter.TokenBucket {
					assert.LessOrEqual(t, after.RetryAfter, time.Hour/3, "the wait for one token")
				}
			})
		}
	}
}

// A debit goes to the caller's own account if there is one by now.
func TestSettle_ADebitGoesToTheCallersOwnAccountIfThereIsOne(t *testing.T) {
	c := newSmallStore(t, 1)
	c.take(on("a", "x", "filler", 1))
	_, charges := c.take(on("a", "x", "late", 1))
	c.take(on("a", "x", "stranger", 1))
	c.requireOverflowTakes(2)
	c.now = c.now.Add(21 * time.Minute) // the filler is full again
	charges[0].Cost = 5
	require.NoError(t, c.Settle(t.Context(), charges))
	audit(t, c.Store)
	d, _ := c.take(on("a", "x", "stranger", 0))
	assert.EqualValues(t, 2, d.Remaining, "of the overflow account")
	d, _ = c.take(on("a", "x", "late", 1))
	assert.Equal(t, limiter.Deny, d.Outcome)
	assert.Equal(t, time.Hour, d.RetryAfter, "its debt is 2")
}

func TestSettle_ALateDebitMakesARecordAndALateCreditNone(t *testing.T) {
	now := time.Unix(1000, 0)
	s, err := New(Config{Now: func() time.Time { return now }})
	require.NoError(t, err)
	c := []limiter.Charge{*charge("a", "user", limiter.Limit{
		Algorithm: limiter.FixedWindow, Tokens: 3, Per: time.Second})}
	for records, correction := range []int64{-1, 1} {
		c[0].Cost = 1
		_, err = s.Take(t.Context(), c)
		require.NoError(t, err)
		now = now.Add(time.Second)
		c[0].Cost = correction
		require.NoError(t, s.Settle(t.Context(), c))
		require.EqualValues(t, records, s.classes.regions[0].live.Load())
		audit(t, s)
		now = now.Add(time.Second)
	}
}

func TestUnplan_TakesBackOnePlan(t *testing.T) {
	s, err := New(Config{})
	require.NoError(t, err)
	for _, budgets := range [][]string{{"a", "b"}, {"a"}} {
		s.Capabilities().Plan(budgets, nil)
	}
	for i, want := range []int64{2, 1} {
		s.Capabilities().Plan(nil, []string{"a"})
		require.Equal(t, want, s.classes.regions[0].pools.Load(), strconv.Itoa(i))
	}
}
