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

func TestBreaker_ProbesOneAfterTheOtherIfTheyFail(t *testing.T) {
	b := breaker.New(timeout)
	assert.Equal(t, breaker.None, b.Probe(0), "it is closed")
	b = opened()
	var pauses []int64
	last := int64(50)
	assert.Equal(t, breaker.Held, b.Probe(ms(last)), "at once")
	b.Probed(breaker.Held, breaker.Failed, ms(last))
	for now := last; len(pauses) < 20; now++ {
		if p := b.Probe(ms(now)); p != breaker.None {
			assert.Equal(t, breaker.Held, p)
			assert.Equal(t, breaker.None, b.Probe(ms(now)), "it is outstanding")
			pauses = append(pauses, now-last)
			last = now
			b.Probed(p, breaker.Failed, ms(now))
		}
	}
	for i, pause := range pauses {
		assert.LessOrEqual(t, pause, int64(151), "%v", pauses)
		if i > 5 {
			assert.GreaterOrEqual(t, pause, int64(75), "%v", pauses)
		}
	}
	assert.True(t, b.Open())
	b.Probed(b.Probe(ms(last+1000)), breaker.Answered, ms(last+1000))
	assert.False(t, b.Open())
}

// probes lets probes begin and end for some seconds; a short one lasts a second.
func probes(b *breaker.Breaker, seconds int64, short breaker.Result) (held int, shorts []int64) {
	ends := int64(-1)
	for now := int64(50); now < 1000*seconds; now++ {
		if now == ends {
			b.Probed(breaker.Short, short, ms(now))
		}
		switch b.Probe(ms(now)) {
		case breaker.Held:
			held++
		case breaker.Short:
			shorts = append(shorts, now)
			ends = now + 1000
		}
	}
	return held, shorts
}

// The kernel of a hung server keeps the connections of probes that were abandoned.
func TestBreaker_LeavesFewConnectionsAtAHungServer(t *testing.T) {
	held, shorts := probes(opened(), 60, breaker.Abandoned)
	assert.Equal(t, 1, held)
	assert.Len(t, shorts, 4, "%v", shorts)
	assert.Less(t, shorts[0], int64(1000))
	_, shorts = probes(opened(), 3600, breaker.Abandoned)
	assert.Greater(t, len(shorts), 110, "one in 31 s")
}

func TestBreaker_ProbesOftenBesideAHeldConnectionIfThatLeavesNothing(t *testing.T) {
	held, shorts := probes(opened(), 60, breaker.Failed)
	assert.Equal(t, 1, held)
	assert.Greater(t, len(shorts), 50)
}

func TestBreaker_AConnectionThatIsMadeIsTheHeldProbe(t *testing.T) {
	b := breaker.New(timeout)
	assert.Equal(t, breaker.Held, b.Connect(0), "though it is closed")
	assert.Equal(t, breaker.None, b.Connect(ms(1000)), "one at once")
	for range breaker.Least {
		b.Missed(ms(1000), ms(1050))
	}
	assert.Equal(t, breaker.Short, b.Probe(ms(1550)), "the other has had time")
	assert.Equal(t, breaker.None, b.Connect(ms(1550)))
	b.Probed(breaker.Held, breaker.Failed, ms(1551))
	assert.Equal(t, breaker.Held, b.Connect(ms(1552)))
	b.Probed(breaker.Short, breaker.Answered, ms(1553))
	b.Probed(breaker.Held, breaker.Failed, ms(1554))
	assert.False(t, b.Open())
	assert.Equal(t, breaker.Held, b.Connect(ms(2000)))
	b.Probed(breaker.Held, breaker.Failed, ms(2001))
	assert.Equal(t, breaker.None, b.Connect(ms(2049)))
	assert.Equal(t, breaker.Held, b.Connect(ms(2050)))
}

func TestBreaker_ManyAtOnce(t *testing.T) {
	b := breaker.New(timeout)
	var group sync.WaitGroup
	for g := range int64(8) {
		group.Go(func() {
			for i := range int64(2000) {
				b.Missed(ms(i), ms(i+50))
				if p := b.Probe(ms(i + g)); p != breaker.None {
					b.Probed(p, breaker.Result(i%3), ms(i+g))
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
