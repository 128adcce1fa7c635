package memstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
)

// changing is a limiter of one budget whose limit tests change, and its clock.
type changing struct {
	t       *testing.T
	store   *memstore.Store
	limiter *limiter.Limiter
	now     time.Time
	limit   limiter.Limit
	reloads bool // the budget's Limit changes, by Reload; else LimitFor returns another
}

func newChanging(t *testing.T, l limiter.Limit, reloads bool) *changing {
	t.Helper()
	c := &changing{t: t, now: time.Unix(1_800_000_000, 0), limit: l, reloads: reloads}
	c.store = limiter.Must(memstore.New(memstore.Config{Now: func() time.Time { return c.now }}))
	c.limiter = limiter.Must(limiter.New(c.store, c.budgets(), limiter.Config{}))
	return c
}

func (c *changing) budgets() []limiter.Budget {
	b := limiter.Budget{Name: "b", Scope: limiter.ByPrincipal, Limit: c.limit}
	if !c.reloads {
		b.LimitFor = func(context.Context, limiter.Caller) limiter.Limit { return c.limit }
	}
	return []limiter.Budget{b}
}

// change makes l the limit from now on.
func (c *changing) change(l limiter.Limit) {
	c.t.Helper()
	if c.limit = l; c.reloads {
		require.NoError(c.t, c.limiter.Reload(c.budgets()))
	}
}

var changingCaller = limiter.Caller{Principal: limiter.Principal{Kind: "user", ID: "alice"}}

func (c *changing) take(cost int64, want limiter.Outcome) limiter.Decision {
	c.t.Helper()
	d, err := c.limiter.Take(c.t.Context(), changingCaller, cost)
	require.NoError(c.t, err)
	require.Equal(c.t, want, d.Outcome, "%+v", d)
	return d
}

func (c *changing) reserve(cost int64) *limiter.Reservation {
	c.t.Helper()
	r, err := c.limiter.Reserve(c.t.Context(), changingCaller, cost)
	require.NoError(c.t, err)
	require.True(c.t, r.Decision.Allowed())
	return r
}

func (c *changing) left() int64 {
	c.t.Helper()
	d, err := c.limiter.Peek(c.t.Context(), changingCaller, 0)
	require.NoError(c.t, err)
	return d.Remaining
}

// algorithms are the numbers of all three.
var algorithms = []limiter.Algorithm{
	limiter.TokenBucket, limiter.FixedWindow, limiter.RollingLog,
}

// A credit whose window or entry has gone is nothing, even if the limit has a longer
// period by then. Otherwise limits of ten would allow twenty at one instant.
func TestSettle_ACreditForWhatHasGoneIsNothing(t *testing.T) {
	for _, from := range algorithms {
		for _, to := range algorithms {
			for _, reloads := range []bool{true, false} {
				t.Run(fmt.Sprintf("%d to %d, %v", from, to, reloads), func(t *testing.T) {
					short := limiter.Limit{Tokens: 10, Per: 10 * time.Second, Algorithm: from}
					c := newChanging(t, short, reloads)
					reservation := c.reserve(10)
					c.now = c.now.Add(12 * time.Second)
					c.take(10, limiter.Allow)
					c.change(limiter.Limit{Tokens: 10, Per: time.Hour, Algorithm: to})
					c.take(1, limiter.Deny)
					require.NoError(t, reservation.Settle(t.Context(), 0))
					if from == limiter.TokenBucket {
						assert.EqualValues(t, 10, c.left(), "a bucket's receipt never goes")
						return
					}
					assert.EqualValues(t, 0, c.left())
					c.take(1, limiter.Deny)
				})
			}
		}
	}
}

// A debit for what has gone counts now.
func TestSettle_ADebitForWhatHasGoneCountsNowUnderALongerPeriod(t *testing.T) {
	for _, from := range algorithms[1:] {
		for _, to := range algorithms {
			c := newChanging(t, limiter.Limit{Tokens: 10, Per: 10 * time.Second, Algorithm: from}, true)
			reservation := c.reserve(1)
			c.now = c.now.Add(12 * time.Second)
			c.take(4, limiter.Allow)
			c.change(limiter.Limit{Tokens: 10, Per: time.Hour, Algorithm: to})
			c.take(7, limiter.Deny)
			require.NoError(t, reservation.Settle(t.Context(), 3))
			assert.EqualValues(t, 4, c.left(), "%v to %v", from, to)
			d := c.take(10, limiter.Deny)
			if to == limiter.RollingLog {
				assert.Equal(t, time.Hour, d.RetryAfter, "the debit is as old as the request")
			}
		}
	}
}

// An account that a credit has filled is the same as none (R3).
func TestSettle_AnAccountThatIsFullAgainCarriesUsed(t *testing.T) {
	for _, algorithm := range algorithms[1:] {
		limit := func(n int64) limiter.Limit {
			return limiter.Limit{Tokens: n, Per: time.Hour, Algorithm: algorithm}
		}
		c := newChanging(t, limiter.PerHour(8), true)
		reservation := c.reserve(6)
		c.change(limit(6))
		c.take(4, limiter.Deny)
		require.NoError(t, reservation.Cancel(t.Context()))
		require.EqualValues(t, 6, c.left())
		c.take(5, limiter.Allow)
		c.change(limit(7))
		assert.EqualValues(t, 2, c.left(), "%v", algorithm)
	}
}
