package redisstore

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/breaker"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/storekit"
)

func newTestWaiter(ends, leaves int64) *waiter {
	return &waiter{done: make(chan struct{}, 1), ends: ends, leaves: leaves}
}

// lineOf returns a line of an owner with requests that wait.
func lineOf(id string, number int, waiters ...*waiter) *line {
	charges := []limiter.Charge{{Key: limiter.Key{Budget: "a", Route: fmt.Sprint(number),
		Principal: limiter.Principal{Kind: "user", ID: id}}, Limit: limiter.PerHour(5), Cost: 1}}
	s := newWorld(nil, 5, 1, false)
	l, err := s.newLine(take, 0, charges)
	if err != nil {
		panic(err)
	}
	l.hash = hashOf(take, 0, charges)
	for _, w := range waiters {
		l.add(w, charges)
	}
	return l
}

// What cannot be answered in time is told so before it is sent: by whichever deadline
// comes first.
func TestQueue_DropsWhatCannotBeAnsweredInTime(t *testing.T) {
	const now, margin = 1000, 100
	for name, test := range map[string]struct {
		ends, leaves int64
		want         error
	}{
		"in time":                    {now + margin + 1, math.MaxInt64, nil},
		"the store's timeout":        {now + margin, math.MaxInt64, errOverload},
		"the caller's deadline":      {now + 5*margin, now + margin, storekit.ErrDeadline},
		"both, the caller's first":   {now + 20, now + 10, storekit.ErrDeadline},
		"both, the store's first":    {now + 10, now + 20, errOverload},
		"passed":                     {now - 1, math.MaxInt64, errOverload},
		"the caller's has passed":    {now + 5*margin, now - 1, storekit.ErrDeadline},
		"the caller's is in time":    {now + 5*margin, now + margin + 1, nil},
		"both at once, in time":      {now + margin + 1, now + margin + 1, nil},
		"both at once, and too late": {now + 1, now + 1, errOverload},
	} {
		w := newTestWaiter(test.ends, test.leaves)
		q := newQueue()
		require.True(t, q.add(lineOf("alice", 0, w)))
		lines := q.batch(now, margin)
		if test.want == nil {
			require.Len(t, lines, 1, name)
			assert.Equal(t, waiting, w.state.Load(), name)
			continue
		}
		assert.Empty(t, lines, name)
		require.Equal(t, answered, w.state.Load(), name)
		<-w.done
		assert.Equal(t, test.want, w.err, name)
		assert.True(t, q.empty(), name)
	}
}

func TestQueue_ServesOwnersInTurn(t *testing.T) {
	q := newQueue()
	q.work = 4
	add := func(id string, number int) {
		require.True(t, q.add(lineOf(id, number, newTestWaiter(math.MaxInt64, math.MaxInt64))))
	}
	for i := range 5 {
		add("greedy", i)
	}
	add("bob", 0)
	add("carol", 0)
	add("bob", 1)
	next := func() (ids []string) {
		for _, l := range q.batch(0, 0) {
			ids = append(ids, l.owner.id+l.charges[0].Key.Route)
		}
		return ids
	}
	assert.Equal(t, []string{"greedy0", "bob0", "carol0", "greedy1"}, next())
	assert.Equal(t, []string{"bob1", "greedy2", "greedy3", "greedy4"}, next())
	assert.True(t, q.empty())
	assert.Empty(t, q.requests.owners)
	assert.Empty(t, q.joinable)
}

// The margin is what a call takes, but at most so much that something is still sent.
func TestCombiner_Margin(t *testing.T) {
	ms := int64(time.Millisecond)
	for _, test := range []struct {
		rtt, slots int64
		failed     bool
		want       int64
	}{
		{20 * ms, 0, false, 0},
		{0, 1, false, 5 * ms},
		{20 * ms, 1, false, 35 * ms},
		{20 * ms, 1, true, 5*ms + 12*ms + ms/2 + 6*ms + ms/4}, // at most a quarter of the timeout
		{49 * ms, 1, false, 37*ms + ms/2},
	} {
		c := combiner{timeout: 50 * ms, rtt: test.rtt, slots: int(test.slots), doubted: test.failed}
		assert.Equal(t, test.want, c.margin(), "%+v", test)
	}
}

// Tenants of which no user is named have hashes of their own.
func TestHashOf_TellsTenantsApart(t *testing.T) {
	seen := map[uint64]bool{}
	for i := range 1000 {
		p := limiter.Principal{Tenant: fmt.Sprint(i)}
		seen[hashOf(take, 0, []limiter.Charge{{Key: limiter.Key{Budget: "api", Principal: p}}})] = true
	}
	assert.Len(t, seen, 1000)
}

// longLine returns a line of one request for each of so many costs, on so many accounts.
func longLine(v verb, a limiter.Algorithm, id string, costs, accounts int) *line {
	charges := make([]limiter.Charge, accounts)
	for i := range charges {
		charges[i] = limiter.Charge{Key: limiter.Key{Budget: fmt.Sprint("a", i),
			Principal: limiter.Principal{Kind: "user", ID: id}},
			Limit: limiter.Limit{Algorithm: a, Tokens: 1000, Per: time.Hour}, Cost: 1}
	}
	l, err := newWorld(nil, 5, 1, false).newLine(v, 0, charges)
	if err != nil {
		panic(err)
	}
	l.hash = hashOf(v, 0, charges)
	for i := range costs {
		charges[0].Cost = int64(i + 1)
		l.add(newTestWaiter(math.MaxInt64, math.MaxInt64), charges)
	}
	return l
}

// Whatever a line weighs, it is in the next batch when it is its owner's turn, though
// there are settles in each.
func TestQueue_SettlesStarveNobody(t *testing.T) {
	for name, test := range map[string]struct {
		request *line
		settle  func() *line
		count   int // of settles for each batch
	}{
		"one log, 17 costs": {longLine(take, limiter.RollingLog, "eve", 17, 1),
			func() *line { return longLine(settle, limiter.TokenBucket, "sue", 1, 1) }, 1},
		"16 logs, 2 costs": {longLine(take, limiter.RollingLog, "eve", 2, 16),
			func() *line { return longLine(settle, limiter.RollingLog, "sue", 1, 1) }, 1},
		"long keys": {longLine(take, limiter.TokenBucket, "eve", 1, 10),
			func() *line { return longLine(settle, limiter.TokenBucket, "sue", 1, 10) }, 70},
	} {
		q := newQueue()
		require.True(t, q.add(test.request))
		require.True(t, q.add(lineOf("bob", 0, newTestWaiter(math.MaxInt64, math.MaxInt64))))
		requests := 0
		for range 2 {
			for range test.count {
				require.True(t, q.add(test.settle()))
			}
			for _, l := range q.batch(0, 0) {
				if l.verb != settle {
					requests++
				}
			}
		}
		assert.Equal(t, 2, requests, name)
	}
}

// A process that is late itself, such as one without processor time, does not blame the
// server for it.
func TestCombiner_ALateProcessDoesNotOpenTheBreaker(t *testing.T) {
	const ms = int64(time.Millisecond)
	for late, opens := range map[int64]bool{0: true, 12: true, 13: false, 1000: false} {
		c := combiner{timeout: 50 * ms, breaker: breaker.New(50 * time.Millisecond),
			crowded: func() bool { return false }, queue: newQueue(), timer: time.NewTimer(time.Hour)}
		ask := func(now int64) {
			for range breaker.Least {
				c.calls = append(c.calls, &call{began: now, written: now, sent: true, ends: now + 50*ms})
			}
			c.slots += breaker.Least
			c.wakesAt = now + 50*ms
		}
		ask(0)
		c.passed((50 + late) * ms)
		assert.Equal(t, opens, c.breaker.Open(), "%d ms late", late)
		ask((50 + late) * ms)
		c.passed((100 + late) * ms)
		assert.True(t, c.breaker.Open(), "it is on time again")
		c.timer.Stop()
	}
}

// Requests that have waited leave a call less time than the server has for its reply.
func TestCombiner_ACallHasAWholeTimeoutForItsReply(t *testing.T) {
	const ms = int64(time.Millisecond)
	c := combiner{timeout: 50 * ms, breaker: breaker.New(50 * time.Millisecond),
		crowded: func() bool { return false }, queue: newQueue(), timer: time.NewTimer(time.Hour)}
	defer c.timer.Stop()
	for range breaker.Least {
		c.calls = append(c.calls, &call{began: 40 * ms, written: 41 * ms, sent: true, ends: 50 * ms})
	}
	for _, now := range []int64{50, 90} {
		c.passed(now * ms)
		assert.False(t, c.breaker.Open(), now)
		assert.Equal(t, 91*ms, c.wakesAt)
	}
	c.passed(91 * ms)
	assert.True(t, c.breaker.Open())
}
