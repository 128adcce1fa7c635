package storetest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ration-go/ration/limiter"
)

var changeRules = []Rule{
	{"R10", "a change mints nothing", "With another limit of a token bucket the balance is " +
		"refilled to now by the old one, rounded down to the new one's unit, and clamped at " +
		"its capacity: changes to and fro give nothing.", changeMintsNothing},
	{"R10", "full stays full", "An account that is full is full under every other limit.",
		fullStaysFull},
	{"R10", "equal limits", "Limits that are equal once Burst 0 is spelled out are no change.",
		equalLimits},
	{"R10", "a refused request carries over", "A request that is refused under a new limit " +
		"carries the balance over to it, so that it is allowed after the stated wait.",
		refusedCarriesOver},
	{"R10", "windows and logs carry", "A window or a log whose length stays keeps what was " +
		"used of it, whatever its new capacity.", windowsCarry},
	{"R10", "another length", "Under another length, and between windows and logs, what was " +
		"used counts as used now.", anotherLength},
	{"R10", "what is left", "Between a token bucket and a window or a log, what is left is " +
		"carried, rounded down, at most the new capacity.", whatIsLeft},
	{"R10", "one capacity at one instant", "Whatever the sequence of limits, what is allowed at " +
		"one instant is at most the largest capacity shown.", oneCapacity},
}

func changeMintsNothing(p *probe) {
	stream{
		limits: []limiter.Limit{{Tokens: 3, Per: time.Second, Burst: 8}},
		changes: []limiter.Limit{
			{Tokens: 3, Per: time.Second, Burst: 8}, {Tokens: 7, Per: 11 * time.Millisecond, Burst: 13},
			{Tokens: 1, Per: 3 * time.Second, Burst: 4}, {Tokens: 999_983, Per: day, Burst: 6},
		},
		steps: 3000,
	}.run(p.fresh())

	one, two := limiter.PerHour(10), limiter.PerHour(20)
	p.allowed(on("alice", one, 9))
	p.left(1, on("alice", two, 0))
	for range 10 {
		p.denied(on("alice", two, 2))
		p.denied(on("alice", one, 2))
	}
	p.allowed(on("alice", two, 1))
	p.denied(on("alice", one, 1))
	p.allowed(on("bob", two, 2))
	p.allowed(on("bob", one, 1))
	p.left(9, on("bob", two, 0))
}

func fullStaysFull(p *probe) {
	for i, from := range each {
		for j, to := range each {
			user := fmt.Sprintf("user %d to %d", i, j)
			to.Tokens = 100
			p.allowed(on(user, from, 0))
			p.left(100, on(user, to, 0))
			p.allowed(on(user, to, 100))

			user += " once full again"
			p.allowed(on(user, from, 5))
			p.after(10 * time.Second)
			p.allowed(on(user, to, 100))
			p.denied(on(user, to, 1))
		}
	}
}

func equalLimits(p *probe) {
	for _, l := range each {
		spelled := l
		spelled.Burst = l.Capacity()
		q := p.fresh()
		q.allowed(on("alice", l, 2))
		q.after(time.Second + q.step)
		want := q.peek(on("alice", l, 4))
		for range 3 {
			got := q.take(on("alice", spelled, 4))
			got.Limit = l
			equal("the answer under the limit with Burst spelled out", got, want)
			q.denied(on("alice", l, 4))
		}
		q.allowed(on("alice", spelled, 3))
		q.denied(on("alice", l, 1))
	}
}

func refusedCarriesOver(p *probe) {
	slow, fast := limiter.PerHour(1), limiter.PerSecond(1)
	p.allowed(on("alice", slow, 1))
	p.after(time.Second)
	boundary(p, on("alice", fast, 1))

	window := limiter.Limit{Tokens: 1, Per: time.Hour, Algorithm: limiter.FixedWindow}
	p.allowed(on("bob", window, 1))
	boundary(p, on("bob", fast, 1))

	several := []limiter.Charge{in("a", slow, 1), in("b", slow, 1)}
	p.allowed(several...)
	several[0].Limit, several[1].Limit = fast, limiter.PerSecond(2)
	wait := p.denied(several...)
	p.after(wait)
	p.allowed(several...)
}

func windowsCarry(p *probe) {
	for _, l := range each[1:] {
		q := p.fresh()
		q.after(time.Second)
		q.allowed(on("alice", l, 4))
		more, less := l, l
		more.Tokens, less.Tokens = 7, 2
		q.left(3, on("alice", more, 0))
		q.allowed(on("alice", more, 2))
		q.left(1, on("alice", more, 0))
		q.left(0, on("alice", less, 0))
		q.denied(on("alice", less, 1))
		boundary(q, on("alice", less, 2))
	}
}

func anotherLength(p *probe) {
	for i, from := range each[1:] {
		for j, to := range each[1:] {
			if i == j {
				to.Per = 20 * time.Second
			}
			to.Tokens = 6
			q := p.fresh()
			q.after(3 * time.Second)
			q.allowed(on("alice", from, 3))
			q.after(2*time.Second + q.step)
			q.left(3, on("alice", to, 0))
			equal("the wait for what counts as used now", q.denied(on("alice", to, 6)), q.rest(to))
			boundary(q, on("alice", to, 6))
		}
	}
}

func whatIsLeft(p *probe) {
	bucket := each[0]
	for _, l := range each[1:] {
		for _, change := range []struct {
			from, to limiter.Limit
			capacity int64
			left     int64
		}{
			{bucket, l, 9, 3}, // 2, and what 2 s gave back, rounded down
			{bucket, l, 5, 3},
			{bucket, l, 2, 2},
			{l, bucket, 9, 2},
			{l, bucket, 5, 2},
			{l, bucket, 1, 1},
		} {
			q := p.fresh()
			q.after(3 * time.Second)
			q.allowed(on("alice", change.from, 3))
			q.after(2*time.Second + q.step)
			change.to.Tokens = change.capacity
			q.left(change.left, on("alice", change.to, 0))
			q.allowed(on("alice", change.to, change.left))
			boundary(q, on("alice", change.to, 1))
		}
	}
}

func oneCapacity(p *probe) {
	random := rand.New(rand.NewPCG(10, 10))
	for n := range 300 {
		user := fmt.Sprintf("user %d", n)
		var sum, largest int64
		var seen []limiter.Charge
		for range 12 {
			l := each[random.IntN(len(each))]
			l.Tokens = 1 + random.Int64N(12)
			l.Per = []time.Duration{10 * time.Second, time.Hour}[random.IntN(2)]
			c := on(user, l, 1+random.Int64N(l.Tokens))
			seen, largest = append(seen, c), max(largest, l.Tokens)
			if p.take(c).Allowed() {
				sum += c.Cost
			}
			if sum > largest {
				violated("%d tokens were allowed at one instant by %s; the largest capacity is %d",
					sum, describe(seen), largest)
			}
		}
	}
}
