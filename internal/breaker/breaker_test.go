package breaker_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ration-go/ration/internal/breaker"
)

const timeout = 50 * time.Millisecond

// ms returns an instant.
func ms(n int64) int64 { return n * int64(time.Millisecond) }

func TestBreaker_OpensAfterAWholeTimeoutOfSilence(t *testing.T) {
	type miss struct{ began, now int64 }
	for name, test := range map[string]struct {
		misses []miss
		opens  int // at which miss; -1: never
	}{
		"three calls that time out":   {[]miss{{0, 50}, {0, 50}, {1, 51}}, 2},
		"two calls are too few":       {[]miss{{0, 50}, {0, 5000}}, -1},
		"refused at once":             {[]miss{{0, 0}, {1, 1}, {2, 2}, {30, 30}, {49, 49}, {50, 50}}, 5},
		"from the first call's start": {[]miss{{10, 12}, {0, 49}, {20, 50}}, 2},
		"after a long time of rest":   {[]miss{{0, 50}, {100_000, 100_001}, {100_002, 100_003}}, 2},
	} {
		b := breaker.New(timeout)
		for i, m := range test.misses {
			assert.Equal(t, i == test.opens, b.Missed(ms(m.began), ms(m.now)), "%s, %d", name, i)
			assert.Equal(t, test.opens >= 0 && i >= test.opens, b.Open(), "%s, %d", name, i)
		}
	}
}

func TestBreaker_AnAnswerStartsTheCountAgain(t *testing.T) {
	b := breaker.New(timeout)
	for i := range int64(100) {
		assert.False(t, b.Missed(ms(20*i), ms(20*i+10)))
		if i%2 == 1 {
			b.Answered()
		}
	}
	b.Missed(ms(5000), ms(5050))
	b.Missed(ms(5000), ms(5050))
	assert.False(t, b.Open())
	assert.True(t, b.Missed(ms(5000), ms(5050)))
	assert.False(t, b.Missed(ms(5000), ms(5050)), "it is open already")
	b.Answered()
	assert.False(t, b.Open())
	assert.False(t, b.Missed(ms(5060), ms(5120)))
}

func opened() *breaker.Breaker {
	b := breaker.New(timeout)
	for range breaker.Least {
		b.Missed(0, ms(50))
	}
	return b
}

func TestBreaker_ProbesAtMostTwoAtOnceAndBacksOff(t *testing.T) {
	b := breaker.New(timeout)
	assert.False(t, b.Probe(0), "it is closed")
	b = opened()
	assert.True(t, b.Probe(ms(50)), "at once")
	assert.False(t, b.Probe(ms(50)))
	assert.True(t, b.Probe(ms(60)))
	assert.False(t, b.Probe(ms(50_000)), "two are outstanding")
	b.Probed(false)
	b.Probed(false)
	assert.True(t, b.Open())

	var pauses []int64
	last := int64(50_000)
	assert.True(t, b.Probe(ms(last)))
	b.Probed(false)
	for now := last; len(pauses) < 20; now++ {
		if b.Probe(ms(now)) {
			pauses = append(pauses, now-last)
			last = now
			b.Probed(false)
		}
	}
	for i, pause := range pauses {
		assert.LessOrEqual(t, pause, int64(151), "%v", pauses)
		if i > 5 {
			assert.GreaterOrEqual(t, pause, int64(75), "%v", pauses)
		}
	}
	b.Probed(true)
	assert.False(t, b.Open())
}

func TestBreaker_ManyAtOnce(t *testing.T) {
	b := breaker.New(timeout)
	var group sync.WaitGroup
	for g := range int64(8) {
		group.Go(func() {
			for i := range int64(2000) {
				b.Missed(ms(i), ms(i+50))
				if b.Probe(ms(i + g)) {
					b.Probed(i%3 == 0)
				}
				if i%7 == g {
					b.Answered()
				}
				b.Open()
			}
		})
	}
	group.Wait()
	b.Answered()
	assert.False(t, b.Open())
	assert.False(t, b.Missed(0, ms(50)))
}
