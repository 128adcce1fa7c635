package model_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/lab/model"
	"github.com/ration-go/ration/limiter"
)

// service reserves, works and settles on one account of a memory store.
type service struct {
	*testing.T
	limiter.Store
	limit limiter.Limit
	now   time.Duration
}

func newService(t *testing.T, l limiter.Limit) *service {
	s := &service{T: t, limit: l}
	s.Store = inMemory(func() time.Time { return time.Unix(0, int64(s.now)) })
	return s
}

// reserve returns the charge, or none if it is refused.
func (s *service) reserve(cost int64) []limiter.Charge {
	c := []limiter.Charge{{Key: model.NewKey("a", ""), Limit: s.limit, Cost: cost}}
	d, err := s.Take(s.Context(), c)
	require.NoError(s, err)
	if !d.Allowed() {
		return nil
	}
	return c
}

func (s *service) settle(c limiter.Charge, correction int64) {
	c.Cost = correction
	require.NoError(s, s.Settle(s.Context(), []limiter.Charge{c}))
}

func (s *service) left() int64 {
	c := []limiter.Charge{{Key: model.NewKey("a", ""), Limit: s.limit}}
	d, err := s.Peek(s.Context(), c)
	require.NoError(s, err)
	return d.Remaining
}

// Requests that reserve 1 and cost 10, each settled when its window has ended.
// What the debits count is all that the debt of one capacity can hold.
func TestSettle_WorkThatCostsMoreThanWasReservedIsHeldBackThoughItEndsLate(t *testing.T) {
	for algorithm, want := range map[limiter.Algorithm]int64{
		limiter.TokenBucket: 360, limiter.FixedWindow: 1000, limiter.RollingLog: 1000,
	} {
		s := newService(t, limiter.Limit{Algorithm: algorithm, Tokens: 10, Per: 10 * time.Second})
		used, counted := int64(0), int64(0)
		for range 20 {
			var open []limiter.Charge
			for range 10 {
				open = append(open, s.reserve(1)...)
			}
			counted += int64(len(open))
			s.now += 12 * time.Second
			for _, c := range open {
				s.settle(c, 9)
				used += 10
			}
			if len(open) > 0 {
				assert.Zero(t, s.left(), "%v", algorithm)
				assert.Empty(t, s.reserve(1), "%v", algorithm)
			}
		}
		assert.Equal(t, want, used, "%v", algorithm)
		assert.LessOrEqual(t, counted, int64(100), "%v", algorithm)
	}
}

// In a span T a bucket gives at most Burst + T*Tokens/Per, and what reservations
// that were open before hold.
func TestSettle_OpenReservationsHoldWhatTheyReserved(t *testing.T) {
	s := newService(t, limiter.PerHour(1000))
	open := s.reserve(1000)
	s.now += time.Hour
	require.NotEmpty(t, s.reserve(1000))
	s.settle(open[0], -1000)
	require.NotEmpty(t, s.reserve(1000), "2,000 at one instant: 1,000 were held")
	require.Empty(t, s.reserve(1))

	s = newService(t, limiter.Limit{Tokens: 7, Per: 10 * time.Second, Burst: 20})
	r := rand.New(rand.NewPCG(3, 3))
	var before, within []limiter.Charge // open reservations, of before the span and within it
	for range 2000 {
		before, within = append(before, within...), nil
		start, held, given := s.now, int64(0), int64(0)
		for _, c := range before {
			held += c.Cost
		}
		for range r.IntN(20) {
			s.now += time.Duration(r.Int64N(int64(2 * time.Second)))
			if c := s.reserve(1 + r.Int64N(9)); c != nil {
				given += c[0].Cost
				within = append(within, c[0])
			}
			if len(before) > 0 && r.IntN(2) == 0 {
				s.settle(before[0], -r.Int64N(before[0].Cost+1))
				before = before[1:]
			}
			if len(within) > 0 && r.IntN(3) == 0 {
				credit := r.Int64N(within[0].Cost + 1)
				s.settle(within[0], -credit)
				given -= credit
				within = within[1:]
			}
			require.LessOrEqual(t, given, 20+int64(s.now-start)*7/int64(10*time.Second)+held)
		}
	}
}
