package storekit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/storekit"
)

// changing is one account whose limit tests change: the row that a database keeps.
type changing struct {
	t   *testing.T
	row []byte
	now time.Time
}

func (c *changing) do(v storekit.Verb, charges []limiter.Charge) limiter.Decision {
	c.t.Helper()
	r, err := storekit.Prepare(v, charges, nil)
	require.NoError(c.t, err)
	records, err := r.Decide(c.now, [][]byte{c.row})
	require.NoError(c.t, err)
	for _, record := range records {
		c.row = record.State
	}
	return r.Finish(charges)
}

func (c *changing) take(l limiter.Limit, cost int64, want limiter.Outcome) []limiter.Charge {
	c.t.Helper()
	principal := limiter.Principal{Kind: "user", ID: "alice"}
	charges := []limiter.Charge{{
		Key: limiter.Key{Budget: "b", Principal: principal}, Limit: l, Cost: cost}}
	d := c.do(storekit.Take, charges)
	require.Equal(c.t, want, d.Outcome, "%+v", d)
	return charges
}

func (c *changing) settle(charges []limiter.Charge, delta int64) {
	c.t.Helper()
	charges[0].Cost = delta
	c.do(storekit.Settle, charges)
}

func (c *changing) left(l limiter.Limit) int64 {
	c.t.Helper()
	return c.take(l, 0, limiter.Allow)[0].Result.Remaining
}

// algorithms are the numbers of all three.
var algorithms = []limiter.Algorithm{
	limiter.TokenBucket, limiter.FixedWindow, limiter.RollingLog,
}

func limitOf(a limiter.Algorithm, n int64, per time.Duration) limiter.Limit {
	return limiter.Limit{Tokens: n, Per: per, Algorithm: a}
}

// A credit whose window or entry has gone is nothing, even if the limit has a longer
// period by then. A debit counts now.
func TestSettle_ACreditForWhatHasGoneIsNothing(t *testing.T) {
	for _, from := range algorithms {
		for _, to := range algorithms {
			t.Run(fmt.Sprintf("%d to %d", from, to), func(t *testing.T) {
				c := &changing{t: t, now: time.Unix(1_800_000_000, 0)}
				short, long := limitOf(from, 10, 10*time.Second), limitOf(to, 10, time.Hour)
				reserved, other := c.take(short, 8, limiter.Allow), c.take(short, 2, limiter.Allow)
				c.now = c.now.Add(12 * time.Second)
				c.take(short, 10, limiter.Allow)
				c.take(long, 1, limiter.Deny)
				c.settle(reserved, -8)
				if from == limiter.TokenBucket {
					assert.EqualValues(t, 8, c.left(long), "a bucket's receipt never goes")
					return
				}
				c.take(long, 1, limiter.Deny)
				c.settle(other, 3)
				late := c.take(long, 10, limiter.Deny)
				if to == limiter.RollingLog {
					assert.Equal(t, time.Hour, late[0].Result.RetryAfter, "the debit is as old as the request")
				}
				late[0].Receipt = limiter.Receipt{At: c.now.UnixNano(), Taken: 4, Valid: true}
				c.settle(late, -4)
				assert.EqualValues(t, 1, c.left(long), "ten and three, less four")
			})
		}
	}
}

// Two charges of one call can have different limits. Each is checked under its own.
func TestSettle_ChecksEachChargeUnderItsOwnLimit(t *testing.T) {
	short := limitOf(limiter.RollingLog, 10, 10*time.Second)
	long := limitOf(limiter.RollingLog, 10, time.Hour)
	for _, reversed := range []bool{false, true} {
		c := &changing{t: t, now: time.Unix(1_800_000_000, 0)}
		charges := c.take(short, 4, limiter.Allow)
		c.now = c.now.Add(12 * time.Second)
		charges = append(charges, c.take(long, 5, limiter.Allow)...)
		charges[0].Cost, charges[1].Cost = -4, -1
		if reversed {
			charges[0], charges[1] = charges[1], charges[0]
		}
		c.do(storekit.Settle, charges)
		assert.EqualValues(t, 6, c.left(long))
	}
}

// An account that a credit has filled is the same as none (R3).
func TestSettle_AnAccountThatIsFullAgainCarriesUsed(t *testing.T) {
	for _, algorithm := range algorithms[1:] {
		c := &changing{t: t, now: time.Unix(1_800_000_000, 0)}
		six, seven := limitOf(algorithm, 6, time.Hour), limitOf(algorithm, 7, time.Hour)
		reserved := c.take(limiter.PerHour(8), 6, limiter.Allow)
		c.take(six, 4, limiter.Deny)
		c.settle(reserved, -6)
		c.take(six, 5, limiter.Allow)
		assert.EqualValues(t, 2, c.left(seven), "%v", algorithm)
	}
}
