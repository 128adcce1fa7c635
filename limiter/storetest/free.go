package storetest

import (
	"context"
	"time"

	"github.com/ration-go/ration/limiter"
)

var freeRules = []Rule{
	{"R7", "cost 0", "A cost of 0 is allowed, of an empty account and in debt, too, and debits " +
		"nothing.", costZero},
	{"R7", "negative costs", "A negative cost is a *CostError: it credits nothing, and nothing " +
		"of the request is debited, wherever the charge stands.", negativeCosts},
	{"R8", "peek foretells", "Peek answers what Take would answer at the same instant, results " +
		"included, and any number of Peeks changes nothing.", peekForetells},
	{"R8", "peek writes no receipt", "Peek takes nothing, so nothing of it can be settled.",
		peekWritesNoReceipt},
	{"R8", "peek keeps the limit", "A Peek with another limit does not carry the account over " +
		"to it.", peekKeepsTheLimit},
}

func costZero(p *probe) {
	for _, l := range each {
		q := p.fresh()
		q.allowed(on("alice", l, 0))
		q.left(5, on("alice", l, 0))
		charge := q.allowed(on("alice", l, 5))[0]
		q.allowed(on("alice", l, 0))
		q.denied(on("alice", l, 1))
		q.correct(&charge, 3)
		q.allowed(on("alice", l, 0))
	}
}

func negativeCosts(p *probe) {
	p.allowed(in("a", plain, 3))
	for _, cost := range []int64{-1, -1 << 63} {
		for _, charges := range [][]limiter.Charge{
			{in("a", plain, cost)},
			{in("b", plain, 1), in("a", plain, cost)},
			{in("a", plain, cost), in("b", plain, 1)},
			{shadow(in("a", plain, cost)), in("b", plain, 1)},
			{in("a", plain, 2), in("a", plain, cost)},
		} {
			_, err := p.store.Take(context.Background(), charges)
			wrong[*limiter.CostError]("Take of "+describe(charges), err)
			_, err = p.store.Peek(context.Background(), charges)
			wrong[*limiter.CostError]("Peek of "+describe(charges), err)
			p.left(2, in("a", plain, 0))
			p.left(5, in("b", plain, 0))
		}
	}
}

func peekForetells(p *probe) {
	for _, l := range each {
		q := p.fresh()
		for step := range 40 {
			q.after(time.Duration(step%7) * 700 * time.Millisecond)
			cost := int64(step % 6)
			peeked := []limiter.Charge{in("a", l, cost), in("b", plain, 1)}
			for range 3 {
				q.peek(peeked...)
			}
			foretold := q.peek(peeked...)
			d, taken := q.taken(in("a", l, cost), in("b", plain, 1))
			equal("Take after Peek", d, foretold)
			for i := range taken {
				equal("a result of Take after Peek", taken[i].Result, peeked[i].Result)
			}
		}
	}
}

func peekWritesNoReceipt(p *probe) {
	charges := p.allowed(in("a", plain, 3))
	p.peek(charges...)
	fresh := []limiter.Charge{in("a", plain, 1)}
	p.peek(fresh...)
	noReceipt("Settle after Peek", p.settle(&fresh[0], -1))
}

func peekKeepsTheLimit(p *probe) {
	slow, fast := limiter.PerHour(1), limiter.PerSecond(1)
	p.allowed(in("a", slow, 1))
	p.outcome(p.peek(in("a", fast, 1)), limiter.Deny, nil)
	p.after(time.Minute)
	equal("the wait under the old limit", p.denied(in("a", slow, 1)), 59*time.Minute)
}
