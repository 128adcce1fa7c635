package storetest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ration-go/ration/limiter"
)

// Shared is the part of a [Harness] for stores whose accounts other processes
// share, such as those in a database. A nil function means that the harness cannot
// do it; the rules that need it are passed over.
type Shared struct {
	// Another returns one more store on the accounts of s, which New or Another
	// returned, as another process would make it: the two have no memory in common.
	// now is as for New.
	Another func(t testing.TB, s limiter.Store, now func() time.Time) limiter.Store

	// Hold locks the accounts of the charges, as a slow transaction of another
	// process does, and changes nothing. It returns once they are locked; release
	// ends the transaction. For a Backend of package storekit it calls Update with a
	// decide that waits.
	Hold func(t testing.TB, s limiter.Store, charges []limiter.Charge) (release func())

	// Fail makes the next Take or Settle of s fail at the moment, after all else of
	// it has been done.
	Fail func(s limiter.Store, at Moment)
}

// Moment says when a call fails.
type Moment uint8

const (
	// BeforeCommit: the accounts are locked and loaded, the request is decided, and
	// then the transaction fails. Nothing of it is kept.
	BeforeCommit Moment = iota + 1
	// AtCommit: the transaction is committed, but the reply is lost.
	AtCommit
)

// String returns "before the commit" or "at the commit".
func (m Moment) String() string {
	if m == BeforeCommit {
		return "before the commit"
	}
	return "at the commit"
}

var sharedRules = []Rule{
	{"R12", "several stores, no lost debit", "Requests that several stores decide at once on " +
		"one account are allowed exactly as often as its balance covers, also if the account " +
		"is new.", sharedNoLostDebit},
	{"R12", "several stores, several budgets", "Requests that several stores decide at once on " +
		"the same budgets, in any order, do not block each other for ever, and none is seen " +
		"half done.", sharedSeveralBudgets},
	{"R9", "several stores, corrections", "Corrections that several stores make at once on one " +
		"account all count.", sharedCorrections},
}

// stores is how many stores share the accounts.
const stores = 4

// family returns the store of the probe and others on its accounts, or nil if the
// harness has no others.
func (p *probe) family() []limiter.Store {
	if p.h.Shared == nil || p.h.Shared.Another == nil {
		return nil
	}
	family := []limiter.Store{p.store}
	for len(family) < stores {
		family = append(family, p.h.Shared.Another(p.t, p.store, p.clock.now))
	}
	return family
}

func sharedNoLostDebit(p *probe) {
	family := p.family()
	if family == nil {
		return
	}
	for round := range 5 {
		user, l := fmt.Sprint("user ", round), limiter.PerHour(100)
		var allowed atomic.Int64
		p.together(func(worker int) error {
			for range 4 {
				store := family[worker%len(family)]
				d, err := store.Take(context.Background(), []limiter.Charge{on(user, l, 1)})
				if err != nil {
					return err
				}
				if d.Allowed() {
					allowed.Add(1)
				}
			}
			return nil
		})
		equal("requests allowed of 256 on 100 tokens", allowed.Load(), 100)
		p.left(0, on(user, l, 0))
	}
	// A burst on an account that nobody has drawn on yet.
	for round := range 50 {
		user, l := fmt.Sprint("newcomer ", round), limiter.PerHour(1)
		var allowed atomic.Int64
		p.together(func(worker int) error {
			if worker >= 2*len(family) {
				return nil
			}
			store := family[worker%len(family)]
			d, err := store.Take(context.Background(), []limiter.Charge{on(user, l, 1)})
			if d.Allowed() {
				allowed.Add(1)
			}
			return err
		})
		equal("first requests allowed on 1 token", allowed.Load(), 1)
	}
}

// sharedSeveralBudgets takes the same from three accounts: whoever looks sees them
// equal.
func sharedSeveralBudgets(p *probe) {
	family := p.family()
	if family == nil {
		return
	}
	l := limiter.PerHour(1000)
	request := []limiter.Charge{in("a", l, 1), in("b", l, 1), in("c", l, 1)}
	orders := permutations(request)
	p.together(func(worker int) error {
		store := family[worker%len(family)]
		for i := range 10 {
			charges := append([]limiter.Charge(nil), orders[(worker+i)%len(orders)]...)
			call := store.Take
			if worker%8 > 5 {
				call = store.Peek
			}
			if _, err := call(context.Background(), charges); err != nil {
				return err
			}
			for _, c := range charges[1:] {
				if c.Result != charges[0].Result {
					return fmt.Errorf("accounts of one request, always debited alike: %+v, %+v",
						charges[0].Result, c.Result)
				}
			}
		}
		return nil
	})
	for _, c := range request {
		p.left(1000-workers*6/8*10, c)
	}
}

func sharedCorrections(p *probe) {
	family := p.family()
	if family == nil {
		return
	}
	l := limiter.PerHour(1000)
	p.together(func(worker int) error {
		store := family[worker%len(family)]
		for range 5 {
			charges := []limiter.Charge{in("a", l, 3)}
			if _, err := store.Take(context.Background(), charges); err != nil {
				return err
			}
			charges[0].Cost = int64(worker%2) - 2
			if err := store.Settle(context.Background(), charges); err != nil {
				return err
			}
		}
		return nil
	})
	p.left(1000-workers/2*5*(1+2), in("a", l, 0))
}
