package storetest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ration-go/ration/limiter"
)

var settleRules = []Rule{
	{"R9", "settle corrects", "Settle credits or debits the account by the correction: after " +
		"any mix of requests and corrections the balance is exact.", settleCorrects},
	{"R9", "credit up to capacity", "A credit never lifts an account above its capacity.",
		creditUpToCapacity},
	{"R9", "debit down to debt", "A debit may go below zero, down to minus the capacity; later " +
		"requests wait for it. What cost 0 can be debited, too.", debitDownToDebt},
	{"R9", "settle once", "Settle consumes the receipt: without one, or a second time, it is " +
		"ErrReceipt and changes nothing.", settleOnce},
	{"R9", "no more than was taken", "A credit above what the charge took is a *CostError and " +
		"leaves the receipt as it is.", noMoreThanTaken},
	{"R9", "settle all or none", "The charges of one Settle are checked before the first is " +
		"corrected.", settleAllOrNone},
	{"R9", "settle every charge", "However many charges a request has, enforced or shadow, each is " +
		"debited, has its own receipt, and is corrected.", settleEveryCharge},
	{"R9", "a window that has ended", "What was taken in a window that has ended, or by log " +
		"entries that have left, is not credited to a later one.", endedWindow},
	{"R9", "a late debit", "A debit of what was taken in a window that has ended, or by log " +
		"entries that have left, counts as taken now.", lateDebit},
}

func settleCorrects(p *probe) {
	for i, l := range []limiter.Limit{
		{Tokens: 7, Per: 3 * time.Second, Burst: 90},
		{Tokens: 50, Per: 10 * time.Second, Algorithm: limiter.FixedWindow},
		{Tokens: 40, Per: 10 * time.Second, Algorithm: limiter.RollingLog},
	} {
		stream{limits: []limiter.Limit{l}, steps: 2000 + i, settles: true}.run(p.fresh())
	}
	several := []limiter.Limit{{Tokens: 3, Per: time.Second, Burst: 30}, limiter.PerMinute(60)}
	stream{limits: several, steps: 2000, settles: true, peeks: true}.run(p.fresh())
}

func creditUpToCapacity(p *probe) {
	for _, l := range each {
		q := p.fresh()
		charge := q.allowed(on("alice", l, 4))[0]
		if l.Algorithm == limiter.TokenBucket {
			q.after(6 * time.Second)
		}
		q.correct(&charge, -4)
		q.left(5, on("alice", l, 0))
		q.outcome(q.take(on("alice", l, 6)), limiter.Never, nil)
		q.allowed(on("alice", l, 5))
		q.denied(on("alice", l, 1))
	}
}

func debitDownToDebt(p *probe) {
	for _, l := range each {
		q := p.fresh()
		charge := q.allowed(on("alice", l, 2))[0]
		q.correct(&charge, 1000)
		d := q.take(on("alice", l, 1))
		q.outcome(d, limiter.Deny, nil)
		equal("Remaining in debt", d.Remaining, 0)
		if l.Algorithm == limiter.TokenBucket {
			equal("the wait for 1 token from -5 at 0.5 a second", d.RetryAfter, 12*time.Second)
			equal("ResetAfter from -5", d.ResetAfter, 20*time.Second)
		}
		boundary(q, on("alice", l, 1))

		nothing := q.allowed(on("carol", l, 0))[0]
		q.correct(&nothing, 3)
		q.left(2, on("carol", l, 0))
	}
	charge := p.allowed(on("bob", plain, 2))[0]
	p.correct(&charge, 4)
	equal("the wait for 1 token from -1 at 5 a second", p.denied(on("bob", plain, 1)),
		400*time.Millisecond)
}

func settleOnce(p *probe) {
	slow := limiter.PerHour(5)
	never := on("alice", slow, 1)
	noReceipt("Settle of a charge that was not taken", p.settle(&never, -1))
	charge := p.allowed(on("alice", slow, 4))[0]
	p.correct(&charge, -1)
	for range 3 {
		noReceipt("a second Settle", p.settle(&charge, -1))
		noReceipt("a second Settle", p.settle(&charge, 1))
	}
	p.left(2, charge)
	_, refused := p.taken(on("alice", slow, 3))
	noReceipt("Settle of a refused charge", p.settle(&refused[0], -1))
	charge = p.allowed(on("alice", slow, 1))[0]
	charge.Cost = 5
	_, refused = p.taken(charge)
	noReceipt("Settle of a charge taken, then refused", p.settle(&refused[0], -1))
	p.left(1, charge)
}

func noMoreThanTaken(p *probe) {
	slow := limiter.PerHour(5)
	p.allowed(on("alice", slow, 1))
	charge := p.allowed(on("alice", slow, 2))[0]
	for _, credit := range []int64{-3, -5, -1 << 63} {
		wrong[*limiter.CostError](fmt.Sprintf("a correction of %d", credit), p.settle(&charge, credit))
		p.left(2, charge)
	}
	p.correct(&charge, -2)
	p.left(4, charge)
}

func settleAllOrNone(p *probe) {
	slow := limiter.PerHour(5)
	charges := p.allowed(in("a", slow, 2), in("b", slow, 2))
	for _, spoil := range []struct {
		what    string
		receipt limiter.Receipt
		cost    int64
	}{
		{"no receipt", limiter.Receipt{}, -1},
		{"too large a credit", charges[1].Receipt, -3},
	} {
		both := []limiter.Charge{charges[0], charges[1]}
		both[0].Cost = -2
		both[1].Cost, both[1].Receipt = spoil.cost, spoil.receipt
		if err := p.store.Settle(context.Background(), both); err == nil {
			violated("Settle of a charge with %s: no error", spoil.what)
		}
		p.left(3, in("a", slow, 0))
		equal("a receipt beside a charge with "+spoil.what, both[0].Receipt, charges[0].Receipt)
	}
	charges[0].Cost, charges[1].Cost = -2, 1
	if err := p.store.Settle(context.Background(), charges); err != nil {
		violated("Settle of two charges: %v, want no error", err)
	}
	p.left(5, in("a", slow, 0))
	p.left(2, in("b", slow, 0))
}

func settleEveryCharge(p *probe) {
	slow := limiter.PerHour(9)
	request := make([]limiter.Charge, 12)
	for i := range request {
		request[i] = in(fmt.Sprintf("budget-%02d", i), slow, 4)
		request[i].Shadow = i%3 == 2
	}
	charges := p.allowed(slices.Clone(request)...)
	for i := range charges {
		p.left(5, request[i])
		if taken, ok := charges[i].Receipt.Taken, charges[i].Receipt.Valid; !ok || taken != 4 {
			violated("charge %d of 12 has a receipt for %d, want one for 4", i+1, taken)
		}
		charges[i].Cost = -int64(i % 4)
	}
	if err := p.store.Settle(context.Background(), charges); err != nil {
		violated("Settle of 12 charges: %v, want no error", err)
	}
	for i := range charges {
		p.left(5+int64(i%4), request[i])
	}
}

func endedWindow(p *probe) {
	for _, l := range each[1:] {
		q := p.fresh()
		q.after(time.Second)
		charge := q.allowed(on("alice", l, 3))[0]
		q.after(10 * time.Second)
		q.allowed(on("alice", l, 4))
		q.correct(&charge, -3)
		q.left(1, on("alice", l, 0))
	}
}

func lateDebit(p *probe) {
	for _, l := range each[1:] {
		q := p.fresh()
		q.after(time.Second)
		charge := q.allowed(on("alice", l, 3))[0]
		second := q.allowed(on("alice", l, 1))[0]
		third := q.allowed(on("bob", l, 1))[0]
		q.after(10 * time.Second)
		q.allowed(on("alice", l, 1))
		q.correct(&charge, 2)
		q.left(2, on("alice", l, 0))
		q.correct(&second, 1000)
		equal("the wait for what counts as taken now", q.denied(on("alice", l, 1)), q.rest(l))
		boundary(q, on("alice", l, 1))

		q.after(20 * time.Second)
		q.correct(&third, 4) // of an account that is full
		q.left(1, on("bob", l, 0))
		equal("the wait for what counts as taken now", q.denied(on("bob", l, 2)), q.rest(l))
	}
}

// rest returns how long what a window or a log takes now stays in it.
func (p *probe) rest(l limiter.Limit) time.Duration {
	if l.Algorithm == limiter.RollingLog {
		return l.Per
	}
	return l.Per - time.Duration(p.clock.ns.Load()%int64(l.Per))
}
