package limiter_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
)

// said writes a decision as "allow 4" with what remains, "deny 1.5s" or "never".
func said(d limiter.Decision) string {
	switch d.Outcome {
	case limiter.Allow:
		return fmt.Sprint("allow ", d.Remaining)
	case limiter.Deny:
		return "deny " + d.RetryAfter.String()
	default:
		return d.Outcome.String()
	}
}

type asked struct {
	at   time.Duration
	cost int64
	want string
}

// bucketOf is a token bucket of n tokens per period that holds burst.
func bucketOf(n int64, per time.Duration, burst int64) limiter.Limit {
	return limiter.Limit{Tokens: n, Per: per, Burst: burst}
}

// Sequences at which real limiters went wrong.
func TestTokenBucket_Sequences(t *testing.T) {
	const s, ms, day = time.Second, time.Millisecond, 24 * time.Hour
	tests := []struct {
		name  string
		limit limiter.Limit
		asked []asked
	}{
		// Floats lose a token at the boundary.
		{"exactly-one-interval-of-625-an-hour", bucketOf(625, time.Hour, 1), []asked{
			{0, 1, "allow 0"}, {5759999999, 1, "deny 1ns"}, {5760 * ms, 1, "allow 0"}}},
		{"exactly-one-interval-of-1250-an-hour", bucketOf(1250, time.Hour, 1), []asked{
			{0, 1, "allow 0"}, {2879999999, 1, "deny 1ns"}, {2880 * ms, 1, "allow 0"}}},
		{"exactly-one-interval-of-1875-a-day", bucketOf(1875, day, 1), []asked{
			{0, 1, "allow 0"}, {46080*ms - 1, 1, "deny 1ns"}, {46080 * ms, 1, "allow 0"}}},
		{"denied-polls-lose-nothing", bucketOf(1, s, 1), []asked{{0, 1, "allow 0"},
			{100 * ms, 1, "deny 900ms"}, {200 * ms, 1, "deny 800ms"}, {300 * ms, 1, "deny 700ms"},
			{400 * ms, 1, "deny 600ms"}, {500 * ms, 1, "deny 500ms"}, {600 * ms, 1, "deny 400ms"},
			{700 * ms, 1, "deny 300ms"}, {800 * ms, 1, "deny 200ms"}, {900 * ms, 1, "deny 100ms"},
			{s, 1, "allow 0"}}},
		{"all-tokens-of-an-interval-come-back", bucketOf(5, s, 5), []asked{
			{0, 5, "allow 0"}, {s, 5, "allow 0"}, {s, 1, "deny 200ms"}}},
		{"ten-seconds-apart-at-3-a-minute", bucketOf(3, time.Minute, 3), []asked{
			{0, 1, "allow 2"}, {10 * s, 1, "allow 1"}, {20 * s, 1, "allow 1"},
			{30 * s, 1, "allow 0"}, {40 * s, 1, "allow 0"}, {50 * s, 1, "deny 10s"}}},

		// The wait is that of the cost, neither the window nor until full.
		{"wait-of-an-obedient-client", bucketOf(10, time.Minute, 1), []asked{
			{0, 1, "allow 0"}, {500 * ms, 1, "deny 5.5s"}, {6 * s, 1, "allow 0"}}},
		{"wait-is-not-the-window", bucketOf(10, time.Minute, 10), []asked{
			{0, 10, "allow 0"}, {2 * s, 1, "deny 4s"}}},
		{"wait-knows-the-burst", bucketOf(1, s, 5), []asked{{0, 5, "allow 0"}, {0, 1, "deny 1s"}}},

		// Costs around the capacity.
		{"above-capacity-is-never-and-changes-nothing", bucketOf(1, s, 5), []asked{
			{0, 6, "never"}, {0, 1, "allow 4"}}},
		{"the-capacity-itself-is-served", bucketOf(1, s, 5), []asked{
			{0, 5, "allow 0"}, {s, 5, "deny 4s"}, {5 * s, 5, "allow 0"}, {100 * s, 6, "never"}}},
		{"cost-0-spends-nothing-when-drained", bucketOf(1, s, 1), []asked{
			{0, 1, "allow 0"}, {0, 0, "allow 0"}, {s, 0, "allow 1"}, {s, 1, "allow 0"}}},

		// Clocks that go back.
		{"a-step-back-does-not-drain", bucketOf(1, s, 2), []asked{
			{0, 1, "allow 1"}, {-11 * s, 1, "allow 0"}, {-11 * s, 1, "deny 1s"},
			{-10 * s, 1, "deny 1s"}, {s, 1, "allow 0"}}},
		{"a-stale-reading-does-not-credit", bucketOf(1, s, 2), []asked{
			{10 * s, 2, "allow 0"}, {9 * s, 1, "deny 1s"}, {11 * s, 1, "allow 0"},
			{11 * s, 1, "deny 1s"}}},

		// Extremes.
		{"idle-for-292-years", bucketOf(1_000_000, time.Hour, 1_000_000), []asked{
			{0, 1, "allow 999999"}, {12 * time.Hour, 1, "allow 999999"},
			{year, 1, "allow 999999"}, {math.MaxInt64, 1, "allow 999999"}}},
		{"one-a-day", bucketOf(1, day, 1), []asked{{0, 1, "allow 0"}, {0, 1, "deny 24h0m0s"}}},
		{"one-a-year", bucketOf(1, 365*day, 1), []asked{
			{0, 1, "allow 0"}, {0, 1, "deny 8760h0m0s"}}},
		{"one-a-year-thousand-at-once", bucketOf(1, 365*day/10, 1000), []asked{
			{0, 1000, "allow 0"}, {0, 1, "deny 876h0m0s"}}},
		{"one-in-ten-seconds", bucketOf(1, 10*s, 1), []asked{
			{0, 1, "allow 0"}, {s, 1, "deny 9s"}, {9999 * ms, 1, "deny 1ms"}, {10 * s, 1, "allow 0"}}},
		{"one-an-hour", bucketOf(1, time.Hour, 1), []asked{
			{0, 1, "allow 0"}, {s, 1, "deny 59m59s"}, {6 * time.Minute, 1, "deny 54m0s"}}},

		// Burst.
		{"burst-unset-means-tokens", bucketOf(6, time.Minute, 0), []asked{
			{0, 6, "allow 0"}, {0, 1, "deny 10s"}}},
		{"one-with-burst-unset", bucketOf(1, s, 0), []asked{{0, 1, "allow 0"}, {0, 1, "deny 1s"}}},
		{"thirty-a-second-one-at-once", bucketOf(30, s, 1), []asked{
			{0, 1, "allow 0"}, {0, 1, "deny 33.333334ms"}}},
		{"thirty-a-second-thirty-at-once", bucketOf(30, s, 30), []asked{
			{0, 30, "allow 0"}, {0, 1, "deny 33.333334ms"}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			eachTaker(t, test.limit, func(t *testing.T, b taker, clock *manual) {
				for i, a := range test.asked {
					clock.set(a.at)
					peeked, err := b.Peek(a.cost)
					require.NoError(t, err)
					d, err := b.Take(a.cost)
					require.NoError(t, err)
					assert.Equal(t, a.want, said(d), "request %d", i)
					assert.Equal(t, d, peeked, "Peek before request %d", i)
				}
			})
		})
	}
}

// admitted takes n times cost 1 and counts.
func admitted(t *testing.T, b taker, n int) (allowed int) {
	t.Helper()
	for range n {
		d, err := b.Take(1)
		require.NoError(t, err)
		if d.Allowed() {
			allowed++
		}
	}
	return allowed
}

func TestTokenBucket_IdlingFillsToTheCapacityAndNotBeyond(t *testing.T) {
	eachTaker(t, bucketOf(1, time.Second, 2), func(t *testing.T, b taker, clock *manual) {
		require.Equal(t, 1, admitted(t, b, 1))
		clock.set(4 * time.Second)
		assert.Equal(t, 2, admitted(t, b, 100))
		clock.set(34 * time.Second)
		assert.Equal(t, 2, admitted(t, b, 25))
	})
}

func TestTokenBucket_MinuteBoundaryMeansNothing(t *testing.T) {
	for _, offset := range []time.Duration{0, 17*time.Second + 123} {
		eachTaker(t, bucketOf(60, time.Minute, 60), func(t *testing.T, b taker, clock *manual) {
			clock.set(offset + 59*time.Second)
			assert.Equal(t, 60, admitted(t, b, 60))
			clock.set(offset + 60*time.Second)
			assert.Equal(t, 1, admitted(t, b, 60))
		})
	}
}

func TestTokenBucket_HundredThousandObedientRequestsAreAllAllowed(t *testing.T) {
	eachTaker(t, bucketOf(1, 3*time.Second, 1), func(t *testing.T, b taker, clock *manual) {
		for range 100_100 {
			require.Equal(t, 1, admitted(t, b, 1))
			clock.add(3 * time.Second)
		}
	})
}

func TestTokenBucket_OnePeriodAdmitsBurstAndRefill(t *testing.T) {
	eachTaker(t, bucketOf(17, 30*time.Second, 17), func(t *testing.T, b taker, clock *manual) {
		allowed := 0
		for second := range 30 {
			clock.set(time.Duration(second) * time.Second)
			allowed += admitted(t, b, 1)
			clock.add(250 * time.Millisecond)
			allowed += admitted(t, b, 1)
		}
		assert.Equal(t, 33, allowed)
	})
}

func TestTokenBucket_PeekAndTakeAgreeOnTheLastToken(t *testing.T) {
	eachTaker(t, limiter.PerHour(1), func(t *testing.T, b taker, _ *manual) {
		for _, want := range []string{"allow 0", "deny 1h0m0s"} {
			for range 3 {
				assert.Equal(t, want, said(limiter.Must(b.Peek(1))))
			}
			assert.Equal(t, want, said(limiter.Must(b.Take(1))))
		}
	})
}

func TestTokenBucket_WaitAndResetAreKeptApart(t *testing.T) {
	eachTaker(t, bucketOf(1, time.Second, 6), func(t *testing.T, b taker, _ *manual) {
		d := limiter.Must(b.Take(6))
		assert.Zero(t, d.RetryAfter, "no wait beside an allow")
		d = limiter.Must(b.Take(1))
		assert.Equal(t, time.Second, d.RetryAfter)
		assert.Equal(t, 6*time.Second, d.ResetAfter)
	})
}

func TestTokenBucket_WhoWaitsWholeSecondsIsAllowed(t *testing.T) {
	r := rand.New(rand.NewPCG(14, 14))
	for range 10_000 {
		clock := new(manual)
		l := bucketOf(1+r.Int64N(1e6), time.Duration(1+r.Int64N(int64(48*time.Hour))), 1+r.Int64N(100))
		b, err := limiter.NewBucket(l, clock.now)
		require.NoError(t, err)
		limiter.Must(b.Take(l.Burst))
		clock.add(time.Duration(r.Int64N(int64(l.Per))))
		d := limiter.Must(b.Take(1 + r.Int64N(l.Burst)))
		if d.Allowed() {
			continue
		}
		d = limiter.Must(b.Take(l.Burst))
		seconds := (d.RetryAfter + time.Second - 1) / time.Second
		clock.add(seconds * time.Second)
		require.True(t, limiter.Must(b.Take(l.Burst)).Allowed(), "%v", l)
	}
}

func TestTokenBucket_TheZeroTimeIsAnInstantLikeAnother(t *testing.T) {
	now := time.Time{}
	b := limiter.Must(limiter.NewBucket(limiter.PerHour(1_000_000), func() time.Time { return now }))
	assert.Equal(t, "allow 999999", said(limiter.Must(b.Take(1))))
	now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	assert.Equal(t, "allow 999999", said(limiter.Must(b.Take(1))))
	now = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	assert.Equal(t, "allow 0", said(limiter.Must(b.Take(1_000_000))))
	assert.Equal(t, "deny 3.6ms", said(limiter.Must(b.Take(1))), "where instants end, waits do not")
}

func TestFixedWindow_Sequence(t *testing.T) {
	l := limiter.Limit{Algorithm: limiter.FixedWindow, Tokens: 3, Per: 10 * time.Second}
	eachTaker(t, l, func(t *testing.T, b taker, clock *manual) {
		clock.set(-3 * time.Second) // windows are aligned before the epoch, too
		d := limiter.Must(b.Take(1))
		assert.Equal(t, limiter.Decision{Outcome: limiter.Allow, Budget: d.Budget, Limit: l,
			Remaining: 2, ResetAfter: 3 * time.Second}, d)
		assert.Equal(t, "deny 3s", said(limiter.Must(b.Take(3))))
		clock.set(-1)
		assert.Equal(t, "deny 1ns", said(limiter.Must(b.Take(3))))
		clock.set(0)
		assert.Equal(t, "allow 0", said(limiter.Must(b.Take(3))))
		assert.Equal(t, "allow 0", said(limiter.Must(b.Take(0))))
		assert.Equal(t, "never", said(limiter.Must(b.Take(4))))
		clock.set(25 * time.Second)
		d = limiter.Must(b.Peek(0))
		assert.Equal(t, 5*time.Second, d.ResetAfter, "the rest of the window, used or not")
	})
}

func TestRollingLog_Sequence(t *testing.T) {
	l := limiter.Limit{Algorithm: limiter.RollingLog, Tokens: 3, Per: 10 * time.Second}
	eachTaker(t, l, func(t *testing.T, b taker, clock *manual) {
		assert.Equal(t, "allow 2", said(limiter.Must(b.Take(1))))
		clock.set(4 * time.Second)
		assert.Equal(t, "allow 1", said(limiter.Must(b.Take(1))))
		assert.Equal(t, "allow 0", said(limiter.Must(b.Take(1))))
		assert.Equal(t, "deny 6s", said(limiter.Must(b.Take(1))))
		d := limiter.Must(b.Take(2))
		assert.Equal(t, "deny 10s", said(d), "the two of 4 s leave together")
		assert.Equal(t, 10*time.Second, d.ResetAfter)
		clock.set(10*time.Second - 1)
		assert.Equal(t, "deny 1ns", said(limiter.Must(b.Take(1))))
		clock.set(10 * time.Second)
		assert.Equal(t, "allow 0", said(limiter.Must(b.Take(1))), "the left boundary is exclusive")
		clock.set(20*time.Second - 1)
		assert.Equal(t, "allow 0", said(limiter.Must(b.Take(2))))
	})
}

// Three at 0 s and three at 10 s, allowance three in ten seconds.
func TestWindows_AdmitThreeAndThree(t *testing.T) {
	for _, algorithm := range []limiter.Algorithm{limiter.FixedWindow, limiter.RollingLog} {
		l := limiter.Limit{Algorithm: algorithm, Tokens: 3, Per: 10 * time.Second}
		eachTaker(t, l, func(t *testing.T, b taker, clock *manual) {
			first := admitted(t, b, 3)
			clock.set(10 * time.Second)
			assert.Equal(t, 6, first+admitted(t, b, 3))
		})
	}
}

func TestMemstore_ConcurrentCallersOfTwoBudgetsGetTenInAll(t *testing.T) {
	for range 20 {
		s := limiter.Must(memstore.New(memstore.Config{Now: new(manual).now}))
		l := limiter.Must(limiter.New(s, []limiter.Budget{
			{Name: "each", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(10)},
			{Name: "all", Limit: limiter.PerHour(10)},
		}, limiter.Config{}))
		var allowed atomic.Int64
		var group sync.WaitGroup
		barrier := make(chan struct{})
		for range 200 {
			group.Go(func() {
				<-barrier
				if d, err := l.Take(context.Background(), alice, 1); err == nil && d.Allowed() {
					allowed.Add(1)
				}
			})
		}
		close(barrier)
		group.Wait()
		require.EqualValues(t, 10, allowed.Load())
	}
}
