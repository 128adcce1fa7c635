package instant_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ration-go/ration/internal/instant"
)

func TestOf_SaturatesAtTheRangeOfInt64(t *testing.T) {
	for _, at := range []int64{0, 1, -1, -1e9, 1e9 - 1, -1e9 - 1, math.MaxInt64 - 1,
		math.MaxInt64, math.MinInt64 + 1, math.MinInt64, math.MinInt64 + 854_775_808} {
		assert.Equal(t, at, instant.Of(time.Unix(0, at)), "%d", at)
	}
	first, last := time.Unix(0, math.MinInt64), time.Unix(0, math.MaxInt64)
	for _, late := range []time.Duration{1, time.Second, 1e6 * time.Hour} {
		assert.EqualValues(t, int64(math.MinInt64), instant.Of(first.Add(-late)), "%v", late)
		assert.EqualValues(t, int64(math.MaxInt64), instant.Of(last.Add(late)), "%v", late)
	}
	assert.EqualValues(t, int64(math.MinInt64), instant.Of(time.Time{}))
	assert.EqualValues(t, int64(math.MaxInt64), instant.Of(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)))
}

func TestAdd_Saturates(t *testing.T) {
	assert.EqualValues(t, 7, instant.Add(3, 4))
	assert.EqualValues(t, -1, instant.Add(math.MinInt64, math.MaxInt64))
	assert.EqualValues(t, int64(math.MaxInt64), instant.Add(math.MaxInt64-4, 4))
	assert.EqualValues(t, int64(math.MaxInt64), instant.Add(math.MaxInt64-4, 5))
}

func TestClock_RealTimeFollowsTheWallFromItsStart(t *testing.T) {
	before := time.Now().UnixNano()
	clock := instant.Clock(nil)
	first, second := clock(), clock()
	after := time.Now().UnixNano()
	assert.LessOrEqual(t, before, first)
	assert.LessOrEqual(t, first, second)
	assert.LessOrEqual(t, second, after)
}

func TestClock_ReadsTheClockGiven(t *testing.T) {
	at := time.Unix(5, 6)
	clock := instant.Clock(func() time.Time { return at })
	assert.EqualValues(t, int64(5_000_000_006), clock())
	at = time.Unix(4, 0)
	assert.EqualValues(t, int64(4_000_000_000), clock(), "a clock may go back; its readers see to that")
}
