package limiter_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
)

// line is a queue of waiters in a bubble, who come one after the other and write
// down when they were served. A bubble that ends with a goroutine left fails.
type line struct {
	t      *testing.T
	bucket *limiter.Bucket
	start  time.Time

	mu     sync.Mutex
	served []served
}

type served struct {
	who int
	at  time.Duration
	err error
}

// newLine has a bucket that is drained.
func newLine(t *testing.T, l limiter.Limit) *line {
	b := limiter.Must(limiter.NewBucket(l, nil))
	require.True(t, limiter.Must(b.Take(l.Capacity())).Allowed())
	return &line{t: t, bucket: b, start: time.Now()}
}

// join starts a waiter and returns when it stands in line or is served.
func (l *line) join(ctx context.Context, who int, cost int64) {
	go func() {
		err := l.bucket.Wait(ctx, cost)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.served = append(l.served, served{who, time.Since(l.start), err})
	}()
	synctest.Wait()
}

// until lets time pass and returns who was served by then.
func (l *line) until(at time.Duration) []served {
	time.Sleep(at - time.Since(l.start))
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.served)
}

func TestBucketWait_ServesFirstComeFirstServedAtTheExactInstants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, bucketOf(7, time.Second, 64))
		var want []served
		total := int64(0)
		for who := range 64 {
			cost := int64(1 + who*5%11)
			total += cost
			at := (time.Duration(total)*time.Second + 6) / 7 // rounded up to a nanosecond
			want = append(want, served{who, at, nil})
			l.join(t.Context(), who, cost)
		}
		assert.Equal(t, want, l.until(time.Minute))
		assert.Less(t, want[63].at, time.Minute)
	})
}

func TestBucketWait_SmallCostsDoNotOvertake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, bucketOf(1, time.Second, 10))
		l.join(t.Context(), 1, 10)
		time.Sleep(5 * time.Second)
		l.join(t.Context(), 2, 1)
		assert.Equal(t, []served{{1, 10 * time.Second, nil}, {2, 11 * time.Second, nil}},
			l.until(time.Minute))
	})
}

func TestBucketWait_WhoGivesUpFreesThePlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, bucketOf(10, time.Second, 20))
		ctx, cancel := context.WithCancel(t.Context())
		l.join(ctx, 1, 15)
		l.join(t.Context(), 2, 10)
		time.Sleep(10 * time.Millisecond)
		cancel()
		assert.Equal(t, []served{{1, 10 * time.Millisecond, context.Canceled},
			{2, time.Second, nil}}, l.until(time.Minute))
	})
}

func TestBucketWait_WhoGivesUpInTheMiddleIsSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, bucketOf(10, time.Second, 20))
		l.join(t.Context(), 1, 5)
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Hour, errors.New("unused"))
		l.join(ctx, 2, 20)
		l.join(t.Context(), 3, 5)
		time.Sleep(100 * time.Millisecond)
		cancel()
		assert.Equal(t, []served{{2, 100 * time.Millisecond, context.Canceled},
			{1, 500 * time.Millisecond, nil}, {3, time.Second, nil}}, l.until(time.Minute))
		assert.Equal(t, "20", l.bucket.Tokens().RatString(), "who gave up has taken nothing")
	})
}

func TestBucketWait_FailsAtOnceWhereTheTurnComesAfterTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, bucketOf(10, time.Second, 20))
		within := func(d time.Duration) context.Context {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			t.Cleanup(cancel)
			return ctx
		}
		err := l.bucket.Wait(within(time.Second), 15)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Zero(t, time.Since(l.start))

		l.join(within(time.Second), 1, 10) // just in time
		err = l.bucket.Wait(within(time.Second+499*time.Millisecond), 5)
		require.ErrorIs(t, err, context.DeadlineExceeded, "the first in line counts")
		assert.Zero(t, time.Since(l.start))
		l.join(within(time.Second+501*time.Millisecond), 2, 5)
		got := l.until(time.Minute)
		require.Len(t, got, 2)
		assert.Equal(t, served{2, 1500 * time.Millisecond, nil}, got[1])
	})
}

func TestBucketWait_NeverAndBadCostsFailAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, limiter.PerSecond(5))
		require.ErrorIs(t, l.bucket.Wait(t.Context(), 6), limiter.ErrNever)
		var bad *limiter.CostError
		require.ErrorAs(t, l.bucket.Wait(t.Context(), -1), &bad)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, l.bucket.Wait(ctx, 1), context.Canceled)
		assert.Zero(t, time.Since(l.start))
		assert.Equal(t, "0", l.bucket.Tokens().RatString())

		l.join(t.Context(), 1, 5)
		require.ErrorAs(t, l.bucket.Wait(t.Context(), -1), &bad, "behind others too")
		assert.Zero(t, time.Since(l.start))
		time.Sleep(2 * time.Second)
		require.ErrorIs(t, l.bucket.Wait(ctx, 1), context.Canceled, "where there are tokens too")
		assert.Equal(t, "5", l.bucket.Tokens().RatString())
	})
}

func TestBucketWait_AClockThatGoesBackOpensNoWindowAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Unix(10, 0)
		window := limiter.Limit{Algorithm: limiter.FixedWindow, Tokens: 1, Per: 10 * time.Second}
		b := limiter.Must(limiter.NewBucket(window, func() time.Time { return now }))
		require.True(t, limiter.Must(b.Take(1)).Allowed())
		now = time.Unix(9, 0)
		ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
		defer cancel()
		require.ErrorIs(t, b.Wait(ctx, 1), context.DeadlineExceeded)
		assert.NoError(t, ctx.Err(), "it fails at once")
	})
}

func TestBucketWait_ACostOf0WaitsForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, limiter.PerSecond(5))
		require.NoError(t, l.bucket.Wait(t.Context(), 0))
		l.join(t.Context(), 1, 5)
		require.NoError(t, l.bucket.Wait(t.Context(), 0), "nor for those in line")
		assert.Zero(t, time.Since(l.start))
		assert.Equal(t, []served{{1, time.Second, nil}}, l.until(time.Minute))
	})
}

func TestBucketWait_ReturnsAtOnceWhileThereAreTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := limiter.Must(limiter.NewBucket(limiter.PerHour(3), nil))
		start := time.Now()
		for range 3 {
			require.NoError(t, b.Wait(t.Context(), 1))
		}
		assert.Zero(t, time.Since(start))
		require.NoError(t, b.Wait(t.Context(), 1))
		assert.Equal(t, 20*time.Minute, time.Since(start))
	})
}

// A bubble begins at a whole second that is a multiple of ten.
func TestBucketWait_WaitsForWindowsAndLogs(t *testing.T) {
	for _, algorithm := range []limiter.Algorithm{limiter.FixedWindow, limiter.RollingLog} {
		t.Run(algorithmName(algorithm), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLine(t, limiter.Limit{Algorithm: algorithm, Tokens: 3, Per: 10 * time.Second})
				ctx, cancel := context.WithTimeout(t.Context(), 31*time.Second)
				defer cancel()
				for who := range 7 {
					l.join(ctx, who, 1)
				}
				require.ErrorIs(t, l.bucket.Wait(ctx, 3), context.DeadlineExceeded, "at once")
				assert.Zero(t, time.Since(l.start))
				const first, second, third = 10 * time.Second, 20 * time.Second, 30 * time.Second
				assert.Equal(t, []served{{0, first, nil}, {1, first, nil}, {2, first, nil},
					{3, second, nil}, {4, second, nil}, {5, second, nil}, {6, third, nil}},
					l.until(time.Minute))
			})
		})
	}
}

func TestBucketWait_ATakeBesideTheLineDelaysIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, bucketOf(1, time.Second, 5))
		l.join(t.Context(), 1, 4)
		time.Sleep(2 * time.Second)
		require.True(t, limiter.Must(l.bucket.Take(2)).Allowed())
		assert.Equal(t, []served{{1, 6 * time.Second, nil}}, l.until(time.Minute))
	})
}

func TestBucketWait_ACrowdThatLeavesAtOnceTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, bucketOf(1, time.Second, 5))
		ctx, cancel := context.WithCancel(t.Context())
		for who := range 64 {
			l.join(ctx, who, 1+int64(who)%5)
		}
		cancel()
		got := l.until(500 * time.Millisecond)
		require.Len(t, got, 64)
		for _, s := range got {
			assert.Equal(t, served{s.who, 0, context.Canceled}, s)
		}
		assert.Equal(t, "1/2", l.bucket.Tokens().RatString())
	})
}

// The line knows the sum of its costs and no more, so that joining it costs the
// same behind 8,000 as behind one; package account compares that sum with the
// line played through. Here all who join with a deadline are told exactly what a
// line played through would tell.
func TestBucketWait_EightThousandWithDeadlinesAreServedOrRefusedAtOnce(t *testing.T) {
	const waiters = 8_000
	for _, l := range []limiter.Limit{
		bucketOf(100, time.Second, 1000),
		{Algorithm: limiter.FixedWindow, Tokens: 100, Per: time.Second},
		{Algorithm: limiter.RollingLog, Tokens: 100, Per: time.Second},
	} {
		t.Run(algorithmName(l.Algorithm), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newLine(t, l)
				turn := func(place int) time.Duration { // counted from 0
					if l.Algorithm == limiter.TokenBucket {
						return time.Duration(place+1) * 10 * time.Millisecond
					}
					return time.Duration(1+place/100) * time.Second
				}
				last, cancel := context.WithTimeout(t.Context(), turn(waiters-1))
				defer cancel()
				ctx, cancel := context.WithTimeout(t.Context(), turn(waiters))
				defer cancel()
				for who := range waiters {
					q.join(ctx, who, 1)
				}
				refused := q.bucket.Wait(last, 1)
				require.ErrorIs(t, refused, context.DeadlineExceeded)
				require.NoError(t, last.Err(), "at once")
				var want []served
				for who := range waiters {
					want = append(want, served{who, turn(who), nil})
				}
				got := q.until(turn(waiters))
				slices.SortFunc(got, func(a, b served) int { return a.who - b.who })
				assert.True(t, slices.Equal(want, got))
			})
		})
	}
}

func TestBucketWait_WhoWasServedIsNotCountedAsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, bucketOf(1, time.Second, 5))
		l.join(t.Context(), 1, 5)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		require.NoError(t, l.bucket.Wait(ctx, 3))
		assert.Equal(t, 8*time.Second, time.Since(l.start))
	})
}

// A line of costs that leave parts of windows unused takes longer than its sum.
func TestBucketWait_ATurnThatComesLateEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, limiter.Limit{Algorithm: limiter.FixedWindow, Tokens: 3,
			Per: 10 * time.Second})
		l.join(t.Context(), 1, 2)
		l.join(t.Context(), 2, 2)
		ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
		defer cancel()
		l.join(ctx, 3, 2) // in the third window, though the sum fits into two
		assert.Equal(t, []served{{1, 10 * time.Second, nil}, {2, 20 * time.Second, nil},
			{3, 25 * time.Second, context.DeadlineExceeded}}, l.until(time.Minute))
	})
}

func TestBucketWait_AClockThatPanicsBlocksNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken atomic.Bool
		b := limiter.Must(limiter.NewBucket(limiter.PerSecond(1), func() time.Time {
			if broken.CompareAndSwap(true, false) {
				panic("clock")
			}
			return time.Now()
		}))
		require.True(t, limiter.Must(b.Take(1)).Allowed())
		go func() {
			time.Sleep(time.Second / 2)
			broken.Store(true)
		}()
		require.PanicsWithValue(t, "clock", func() { _ = b.Wait(t.Context(), 1) })
		require.NoError(t, b.Wait(t.Context(), 1))
	})
}
