// Package instant turns times into nanoseconds since the Unix epoch.
package instant

import (
	"math"
	"time"
)

// Of returns t in nanoseconds since the Unix epoch, saturating at the range of
// int64 (the years 1677 to 2262).
func Of(t time.Time) int64 {
	const second = int64(time.Second)
	s, ns := t.Unix(), int64(t.Nanosecond())
	if s < 0 {
		s, ns = s+1, ns-second // both towards zero, so that their sum fits
	}
	switch highest, lowest := math.MaxInt64/second, math.MinInt64/second; {
	case s > highest || s == highest && ns > math.MaxInt64%second:
		return math.MaxInt64
	case s < lowest || s == lowest && ns < math.MinInt64%second:
		return math.MinInt64
	default:
		return s*second + ns
	}
}

// Clock returns a clock that reads now. For nil it reads the real one: the wall
// time at this call plus the monotonic time since then, so that a step of the
// wall clock has no effect.
func Clock(now func() time.Time) func() int64 {
	if now != nil {
		return func() int64 { return Of(now()) }
	}
	start := time.Now()
	base := Of(start)
	return func() int64 { return base + int64(time.Since(start)) }
}

// Add returns at+ns, saturating; ns is not negative.
func Add(at, ns int64) int64 {
	if at > math.MaxInt64-ns {
		return math.MaxInt64
	}
	return at + ns
}
