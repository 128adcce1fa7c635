package storetest

import (
	"context"
	"errors"
	"fmt"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/storekit"
)

var failureRules = []Rule{
	{"R14", "a Take that fails", "A Take that fails before its commit is a *StoreError and " +
		"debits nothing; one that fails at its commit is Ambiguous, and has debited all its " +
		"accounts or none. The next call works.", failedTake},
	{"R9", "no receipt of a failed Take", "A Take that returns an error leaves no receipt, so " +
		"that nothing is credited that may not have been debited.", failedTakeReceipt},
	{"R9", "a Settle that fails", "A Settle that fails before its commit corrects nothing and " +
		"keeps the receipts, so that it can be tried again; one that fails at its commit " +
		"consumes them, so that nothing is corrected twice.", failedSettle},
}

var moments = []Moment{BeforeCommit, AtCommit}

// canFail reports whether the harness can make calls fail.
func (p *probe) canFail() bool { return p.h.Shared != nil && p.h.Shared.Fail != nil }

// failing makes the call fail at the moment, and stops the rule unless its error is
// a *StoreError, Ambiguous at the commit.
func (p *probe) failing(at Moment, verb string, call func() error) {
	p.h.Shared.Fail(p.store, at)
	err := call()
	var store *limiter.StoreError
	if !errors.As(err, &store) {
		violated("%s that fails %v: error %v, want a *limiter.StoreError", verb, at, err)
	}
	if at == AtCommit && store.Reason != storekit.Ambiguous {
		violated("%s that fails %v: reason %q, want %q", verb, at, store.Reason, storekit.Ambiguous)
	}
}

func failedTake(p *probe) {
	if !p.canFail() {
		return
	}
	for _, at := range moments {
		for _, l := range each {
			user := fmt.Sprint(at, " ", l)
			charges := []limiter.Charge{on(user, l, 2), in(user, l, 2)}
			p.failing(at, "Take", func() error {
				_, err := p.store.Take(context.Background(), charges)
				return err
			})
			left := p.remaining(charges[0])
			if left != 5 && (at == BeforeCommit || left != 3) {
				violated("%d of 5 tokens left after a Take of 2 that failed %v", left, at)
			}
			p.left(left, charges[1])
			p.allowed(on(user, l, left))
			p.denied(on(user, l, 1))
		}
	}
}

func failedTakeReceipt(p *probe) {
	if !p.canFail() {
		return
	}
	slow := limiter.PerHour(20)
	for _, at := range moments {
		user := at.String()
		charges := p.allowed(on(user, slow, 10)) // reused, with the receipt that it has
		p.failing(at, "Take", func() error {
			_, err := p.store.Take(context.Background(), charges)
			return err
		})
		left := p.remaining(charges[0])
		noReceipt("Settle of a Take that failed "+user, p.settle(&charges[0], -10))
		p.left(left, charges[0])
	}
}

func failedSettle(p *probe) {
	if !p.canFail() {
		return
	}
	slow := limiter.PerHour(20)
	for _, at := range moments {
		charge := p.allowed(on(at.String(), slow, 10))[0]
		p.failing(at, "Settle", func() error { return p.settle(&charge, -4) })
		if at == BeforeCommit {
			p.left(10, charge)
			p.correct(&charge, -4)
			p.left(14, charge)
			continue
		}
		left := p.remaining(charge)
		noReceipt("a second Settle after one that failed "+at.String(), p.settle(&charge, -4))
		p.left(left, charge)
		if left != 10 && left != 14 {
			violated("%d of 20 tokens left after 10 were taken and 4 given back, perhaps", left)
		}
	}
}
