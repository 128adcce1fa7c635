package storetest

import (
	"fmt"
	"time"

	"github.com/ration-go/ration/limiter"
)

var outcomeRules = []Rule{
	{"R4", "outcomes", "A cost above the capacity is Never, without a wait; a cost that the " +
		"balance covers, up to all of it, is Allow; else it is Deny.", outcomes},
	{"R4", "boundary pairs", "A denied request states the least wait W: W later it is " +
		"allowed, one step of time before that it is denied.", boundaryPairs},
}

func outcomes(p *probe) {
	for _, l := range each {
		q := p.fresh()
		never := q.take(on("alice", l, 6))
		equal("the outcome of 6 of 5 tokens", never.Outcome, limiter.Never)
		equal("RetryAfter of a Never", never.RetryAfter, 0)
		d := q.take(on("alice", l, 3))
		want := limiter.Decision{Outcome: limiter.Allow, Budget: "requests", Limit: l, Remaining: 2}
		want.ResetAfter = d.ResetAfter
		equal("the decision on 3 of 5 tokens", d, want)
		q.allowed(on("alice", l, 2))
		q.denied(on("alice", l, 1))
		q.denied(on("alice", l, 5))
		equal("6 of an empty account", q.take(on("alice", l, 6)).Outcome, limiter.Never)
	}
}

func boundaryPairs(p *probe) {
	for _, l := range append(each, awkward...) {
		if !p.holds(l) {
			continue
		}
		for _, cost := range []int64{1, 2, l.Capacity()/2 + 1, l.Capacity()} {
			if cost > l.Capacity() {
				continue
			}
			q := p.fresh()
			q.after(3 * q.step) // off the edge of a window
			q.allowed(on("alice", l, 1))
			q.after(q.step)
			q.allowed(on("alice", l, q.peek(on("alice", l, 0)).Remaining))
			boundary(q, on("alice", l, cost))
		}
	}
}

// boundary takes c, which is denied, just before and at the end of its wait.
func boundary(p *probe, c limiter.Charge) {
	wait := p.denied(c)
	if wait < p.step {
		violated("%v: RetryAfter %v, want at least %v", describe([]limiter.Charge{c}), wait, p.step)
	}
	p.after(wait - p.step)
	equal("the wait one step before its end", p.denied(c), p.step)
	p.after(p.step)
	p.allowed(c)
}

var clockRules = []Rule{
	{"R2", "a clock that goes back", "The instant of a request is the latest that the store " +
		"has seen for the account: a clock that goes back neither drains nor credits, by " +
		"however little or much.", clockGoesBack},
	{"R2", "the latest of all requests", "The latest instant is that of all requests to the " +
		"store, refused ones and those of other accounts included.", latestOfAll},
}

func clockGoesBack(p *probe) {
	for _, l := range each {
		for _, back := range []time.Duration{p.step, time.Second, 45 * time.Second} {
			stepBack(p.fresh(), l, back)
		}
	}
}

// stepBack steps back from 100 s after the start: the beginning of a window.
func stepBack(p *probe, l limiter.Limit, back time.Duration) {
	p.clock.at(100 * time.Second)
	p.allowed(on("alice", l, 4))
	p.clock.at(100*time.Second - back)
	p.left(1, on("alice", l, 0))
	p.allowed(on("alice", l, 1))
	wait := p.denied(on("alice", l, 1))
	p.clock.at(100 * time.Second)
	equal("the wait after the clock came back", p.denied(on("alice", l, 1)), wait)
	p.clock.at(100*time.Second + wait - p.step)
	p.denied(on("alice", l, 1))
	p.clock.at(100*time.Second + wait)
	p.allowed(on("alice", l, 1))
}

func latestOfAll(p *probe) {
	if p.h.AccountClock {
		return
	}
	slow := limiter.Limit{Tokens: 1, Per: 10 * time.Second}
	p.allowed(on("bob", slow, 1))
	for i, seen := range []limiter.Charge{
		on("bob", slow, 1), on("carol", plain, 1), on("carol", plain, 6),
	} {
		p.after(5 * time.Second)
		p.take(seen)
		p.after(-4 * time.Second)
		user := on(fmt.Sprint("user ", i), slow, 1)
		p.allowed(user)
		p.after(4 * time.Second)
		equal("the wait 10 s after a stale reading", p.denied(user), 10*time.Second)
		p.after(20 * time.Second)
		p.allowed(on("bob", slow, 1))
	}
}
