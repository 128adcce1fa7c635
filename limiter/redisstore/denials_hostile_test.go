package redisstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
)

// hand is a memory whose calls and replies the test makes.
type hand struct {
	*Store
	d     *denials
	now   int64
	clock int64
	ahead int64 // how far the accounts are ahead of the clock
}

func newHand() *hand {
	h := &hand{Store: &Store{keys: newKeys("p:", nil)}, d: newDenials(longestMemory, time.Second), now: 1, clock: 1e9}
	h.d.lead = 0
	h.combiner.denials = h.d
	return h
}

// start starts a call of one request.
func (h *hand) start(v verb, charges ...limiter.Charge) *call {
	l := limiter.Must(h.newLine(v, 0, charges))
	l.add(&waiter{}, charges)
	b := &call{lines: []*line{l}, written: h.now, ends: h.now + int64(50*time.Millisecond)}
	h.d.started(b.lines)
	return b
}

// reply ends a call, with what was used of each account before it, in tokens.
func (h *hand) reply(b *call, used ...int64) {
	h.clock++
	l, text := b.lines[0], []byte{0}
	for j := range l.draws {
		if l.verb > take {
			break
		}
		text = number(number(text, used[j]*l.draws[j].rule.p), h.clock+h.ahead)
		if l.draws[j].rule.kind == limiter.RollingLog {
			text = number(text, l.draws[j].rule.n*int64(bit(used[j] > 0)))
		}
	}
	for _, r := range l.runs {
		for j := range r.draws {
			if l.draws[j].rule.kind == limiter.RollingLog {
				text = number(text, l.draws[j].rule.n)
			}
		}
	}
	n := numbers{text: string(text)}
	err := l.read(&n, h.clock, h.ahead)
	h.d.ended(b, &outcome{clock: h.clock, took: 1}, []error{err})
}

func charge(name string, cost int64, l limiter.Limit) limiter.Charge {
	return limiter.Charge{Key: limiter.Key{Budget: name}, Cost: cost, Limit: l}
}

func TestDenials_AShadowLogRefusesForEverWhatIsAboveItsCapacity(t *testing.T) {
	h, l := newHand(), limiter.Limit{Tokens: 2, Per: time.Hour, Algorithm: limiter.RollingLog}
	enforced, shadow := charge("a", 3, limiter.PerHour(3)), charge("b", 3, l)
	shadow.Shadow = true
	h.reply(h.start(take, enforced, shadow), 3, 1)
	charges := []limiter.Charge{enforced, shadow}
	_, ok := h.d.deny(charges, h.now+10)
	require.False(t, ok, "one asks")
	d, ok := h.d.deny(charges, h.now+10)
	require.True(t, ok)
	assert.Equal(t, limiter.Deny, d.Outcome)
	assert.Equal(t, limiter.Never, charges[1].Result.Outcome)
}

// A request that has read the clock before a call was written, and then waited for the
// processor, sees an account that is as it was after the call.
func TestDenials_ARequestFromBeforeTheReplyIsNotDeniedMore(t *testing.T) {
	h, l := newHand(), limiter.Limit{Tokens: 2, Per: 2 * time.Millisecond}
	h.now = int64(time.Second)
	h.reply(h.start(take, charge("a", 2, l)), 1)
	for _, cost := range []int64{1, 2} {
		d, ok := h.d.deny([]limiter.Charge{charge("a", cost, l)}, h.now-int64(20*time.Millisecond))
		require.Equal(t, cost == 2, ok, "%+v", d)
		assert.LessOrEqual(t, d.RetryAfter, time.Millisecond)
	}
}

// What a reply has debited from which nothing is learnt counts all the same.
func TestDenials_NoWaitForgetsADebit(t *testing.T) {
	l := limiter.PerHour(2)
	one, two := charge("a", 1, l), charge("a", 2, l)
	settled := charge("a", 0, l)
	settled.Receipt.Valid = true
	t.Run("in-flight-with-a-settle", func(t *testing.T) {
		h := newHand()
		debit := h.start(take, one)
		h.reply(h.start(settle, settled), 0)
		h.reply(h.start(take, two), 1)
		h.reply(debit, 1)
		d, ok := h.d.deny([]limiter.Charge{two}, h.now+10)
		require.False(t, ok, "%+v", d)
	})
	t.Run("after-a-lost-call", func(t *testing.T) {
		h := newHand()
		h.reply(h.start(take, two), 1)
		h.d.ended(h.start(peek, one), &outcome{err: errLost}, []error{nil})
		h.reply(h.start(take, one), 1)
		d, ok := h.d.deny([]limiter.Charge{two}, h.now+10)
		require.False(t, ok, "%+v", d)
	})
}

// The account stands still, since the server's clock was set back.
func TestDenials_AnAccountThatIsAheadIsThatOfTheLatestReply(t *testing.T) {
	h, l := newHand(), limiter.PerHour(2)
	h.ahead = 30e6
	two := charge("a", 2, l)
	first, second := h.start(take, two), h.start(take, two)
	h.clock += 10
	h.reply(second, 2)
	h.clock -= 10
	h.reply(first, 1)
	d, ok := h.d.deny([]limiter.Charge{two}, h.now+10)
	require.True(t, ok)
	assert.Equal(t, time.Hour, d.RetryAfter)
}

// All lines of a server's whole traffic can be on one account.
func TestDenials_AnAccountOfEverybodyCostsNoMore(t *testing.T) {
	best := map[bool]time.Duration{}
	for range 5 {
		for _, shared := range []bool{false, true} {
			h := newHand()
			var calls []*call
			for i := range 8 {
				b := &call{}
				for j := range 128 {
					name := "all"
					if !shared {
						name = fmt.Sprint(i, "-", j)
					}
					b.lines = append(b.lines, limiter.Must(h.newLine(take, 0,
						[]limiter.Charge{charge(name, 1, limiter.PerHour(1))})))
				}
				calls = append(calls, b)
			}
			began := time.Now()
			for _, b := range calls {
				h.d.started(b.lines)
			}
			for _, b := range calls {
				h.d.ended(b, &outcome{err: errLost}, make([]error, len(b.lines)))
			}
			if took := time.Since(began); best[shared] == 0 || took < best[shared] {
				best[shared] = took
			}
		}
	}
	assert.Less(t, best[true], 5*best[false])
}
