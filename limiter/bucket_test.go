package limiter_test

import (
	"context"
	"encoding/json"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/lab/model"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
)

// manual is a clock that the test moves. Its zero value reads the epoch.
type manual struct{ ns atomic.Int64 }

func (m *manual) now() time.Time      { return time.Unix(0, m.ns.Load()) }
func (m *manual) set(d time.Duration) { m.ns.Store(int64(d)) }
func (m *manual) add(d time.Duration) { m.ns.Add(int64(d)) }

// taker is what the tests below need of a Bucket and of one key of a store.
type taker interface {
	Take(cost int64) (limiter.Decision, error)
	Peek(cost int64) (limiter.Decision, error)
}

// oneKey is a store seen through one key.
type oneKey struct {
	store limiter.Store
	limit limiter.Limit
}

func (k oneKey) charge(cost int64) []limiter.Charge {
	return []limiter.Charge{{Key: limiter.Key{Budget: "b"}, Limit: k.limit, Cost: cost}}
}

func (k oneKey) Take(cost int64) (limiter.Decision, error) {
	return k.store.Take(context.Background(), k.charge(cost))
}

func (k oneKey) Peek(cost int64) (limiter.Decision, error) {
	return k.store.Peek(context.Background(), k.charge(cost))
}

// eachTaker runs a test with a Bucket and with a store in memory.
func eachTaker(t *testing.T, l limiter.Limit, run func(*testing.T, taker, *manual)) {
	t.Run("bucket", func(t *testing.T) {
		clock := new(manual)
		b, err := limiter.NewBucket(l, clock.now)
		require.NoError(t, err)
		run(t, b, clock)
	})
	t.Run("memstore", func(t *testing.T) {
		clock := new(manual)
		s, err := memstore.New(memstore.Config{Now: clock.now})
		require.NoError(t, err)
		run(t, oneKey{s, l}, clock)
	})
}

// bucketStore drives a Bucket as a store of one key and one limit.
type bucketStore struct {
	now    func() time.Time
	bucket *limiter.Bucket
}

func (s *bucketStore) of(l limiter.Limit) *limiter.Bucket {
	if s.bucket == nil {
		s.bucket = limiter.Must(limiter.NewBucket(l, s.now))
	}
	return s.bucket
}

func (s *bucketStore) Check(l limiter.Limit) error { return l.Validate() }

func (s *bucketStore) Take(
	_ context.Context, charges []limiter.Charge,
) (limiter.Decision, error) {
	c := &charges[0]
	d, err := s.of(c.Limit).Take(c.Cost)
	if d.Allowed() {
		c.Receipt = limiter.Receipt{Taken: c.Cost, Valid: true}
	}
	return s.answer(c, d), err
}

func (s *bucketStore) Peek(
	_ context.Context, charges []limiter.Charge,
) (limiter.Decision, error) {
	d, err := s.of(charges[0].Limit).Peek(charges[0].Cost)
	return s.answer(&charges[0], d), err
}

func (s *bucketStore) answer(c *limiter.Charge, d limiter.Decision) limiter.Decision {
	d.Budget = c.Key.Budget
	c.Result = limiter.Result{Outcome: d.Outcome, Remaining: d.Remaining,
		RetryAfter: d.RetryAfter, ResetAfter: d.ResetAfter}
	return d
}

func (s *bucketStore) Settle(context.Context, []limiter.Charge) error { return nil }
func (s *bucketStore) Tokens(limiter.Key) *big.Rat                    { return s.bucket.Tokens() }

func (s *bucketStore) PeekAt(at time.Time, charges []limiter.Charge) limiter.Outcome {
	return s.bucket.PeekAt(at, charges[0].Cost).Outcome
}

// Also each denial is asked again, on a copy, a nanosecond before its wait is
// over and when it is.
func TestBucket_AgreesWithTheModel(t *testing.T) {
	const stream = 400
	steps := 200_000
	if testing.Short() {
		steps /= 20
	}
	shape := model.Shape{OneKey: true, OneLimit: true, Decisions: true}
	f := func(now func() time.Time) limiter.Store { return &bucketStore{now: now} }
	for seed := range uint64(steps / stream) {
		g := model.NewGenerator(rand.NewPCG(seed, 7), shape)
		require.NoError(t, model.Check(f, g, stream), "seed %d", seed)
	}
}

type vector struct {
	Name     string     `json:"name"`
	Capacity int64      `json:"capacity"`
	Rate     int64      `json:"rate_per_second"`
	Requests [][2]int64 `json:"requests_ms_cost"`
	Want     [][2]any   `json:"want_decision_wait_ms"`
	Tokens   string     `json:"want_tokens"`
}

func TestTokenBucket_Vectors(t *testing.T) {
	text, err := os.ReadFile("testdata/token_bucket.json")
	require.NoError(t, err)
	var vectors []vector
	require.NoError(t, json.Unmarshal(text, &vectors))
	require.Len(t, vectors, 40)
	for _, v := range vectors {
		t.Run(v.Name, func(t *testing.T) {
			l := limiter.Limit{Tokens: v.Rate, Per: time.Second, Burst: v.Capacity}
			eachTaker(t, l, func(t *testing.T, b taker, clock *manual) {
				for i, request := range v.Requests {
					clock.set(time.Duration(request[0]) * time.Millisecond)
					d, err := b.Take(request[1])
					require.NoError(t, err)
					wait := (d.RetryAfter + time.Millisecond - 1) / time.Millisecond
					assert.Equal(t, v.Want[i], [2]any{d.Outcome.String(), float64(wait)}, "request %d", i)
				}
				if bucket, ok := b.(*limiter.Bucket); ok {
					assert.Equal(t, v.Tokens, bucket.Tokens().RatString())
				}
			})
		})
	}
}

func TestBucket_NegativeCostIsAnErrorAndChangesNothing(t *testing.T) {
	eachTaker(t, limiter.PerSecond(5), func(t *testing.T, b taker, clock *manual) {
		_, err := b.Take(5)
		require.NoError(t, err)
		for _, ask := range []func(int64) (limiter.Decision, error){b.Take, b.Peek} {
			for _, cost := range []int64{-1, -3, math.MinInt64} {
				d, err := ask(cost)
				var bad *limiter.CostError
				require.ErrorAs(t, err, &bad)
				assert.Equal(t, cost, bad.Cost)
				assert.Zero(t, d)
			}
		}
		d, err := b.Take(1)
		require.NoError(t, err)
		assert.Equal(t, limiter.Deny, d.Outcome)
	})
}

func TestBucket_TokensIsTheExactBalance(t *testing.T) {
	clock := new(manual)
	b := limiter.Must(limiter.NewBucket(limiter.Limit{Tokens: 1, Per: 3, Burst: 2}, clock.now))
	assert.Equal(t, "2", b.Tokens().RatString())
	limiter.Must(b.Take(2))
	assert.Equal(t, "0", b.Tokens().RatString())
	clock.set(4)
	assert.Equal(t, "4/3", b.Tokens().RatString())
	clock.set(1)
	assert.Equal(t, "4/3", b.Tokens().RatString(), "the clock went back")
	clock.set(time.Hour)
	assert.Equal(t, "2", b.Tokens().RatString())
}

func TestBucket_ManyGoroutinesAtOneInstantGetTheCapacity(t *testing.T) {
	const runs, goroutines, each, capacity = 1000, 64, 3, 100
	eachTaker(t, limiter.PerHour(capacity), func(t *testing.T, b taker, clock *manual) {
		for run := range runs {
			clock.add(time.Hour)
			var allowed atomic.Int64
			var group sync.WaitGroup
			for range goroutines {
				group.Go(func() {
					for range each {
						if d, err := b.Take(1); err == nil && d.Allowed() {
							allowed.Add(1)
						}
					}
				})
			}
			group.Wait()
			require.EqualValues(t, capacity, allowed.Load(), "run %d", run)
		}
	})
}

// Every goroutine reads the clock before it has the lock, so that many readings
// are stale when they count.
func TestBucket_RealClockNeverAdmitsMoreThanTheRate(t *testing.T) {
	l := limiter.Limit{Tokens: 1000, Per: time.Second, Burst: 1}
	for name, b := range map[string]taker{
		"bucket":   limiter.Must(limiter.NewBucket(l, nil)),
		"memstore": oneKey{limiter.Must(memstore.New(memstore.Config{})), l},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var allowed atomic.Int64
			var group sync.WaitGroup
			start := time.Now()
			for range 64 {
				group.Go(func() {
					for time.Since(start) < 2*time.Second {
						if d, err := b.Take(1); err == nil && d.Allowed() {
							allowed.Add(1)
						}
					}
				})
			}
			group.Wait()
			most := 1 + int64(1000*time.Since(start).Seconds()) + 1
			assert.LessOrEqual(t, allowed.Load(), most)
			assert.Greater(t, allowed.Load(), int64(2), "and it does admit")
		})
	}
}

func TestBucket_ClockMayCallTheBucket(t *testing.T) {
	var b *limiter.Bucket
	asking := false
	now := func() time.Time {
		if b != nil && !asking {
			asking = true
			defer func() { asking = false }()
			_, _ = b.Peek(1)
			_ = b.Tokens()
		}
		return time.Unix(0, 0)
	}
	b = limiter.Must(limiter.NewBucket(limiter.PerSecond(1), now))
	d, err := b.Take(1)
	require.NoError(t, err)
	assert.True(t, d.Allowed())
}

func TestBucket_DoesNotAllocate(t *testing.T) {
	for _, algorithm := range []limiter.Algorithm{limiter.TokenBucket, limiter.RollingLog} {
		b := limiter.Must(limiter.NewBucket(limiter.Limit{Algorithm: algorithm,
			Tokens: 10_000, Per: time.Hour}, nil))
		for name, call := range map[string]func(){
			"Take": func() { _, _ = b.Take(1) },
			"Wait": func() { _ = b.Wait(background, 1) }, // there are tokens
		} {
			for range 1000 { // a log grows
				call()
			}
			assert.Zero(t, testing.AllocsPerRun(1000, call), name)
		}
	}
}
