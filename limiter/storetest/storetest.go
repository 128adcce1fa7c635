// Package storetest is the promise of [limiter.Store] as a test suite. Every
// store of this module passes it whole; a store of your own should, too:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, storetest.Harness{
//			New: func(t testing.TB, now func() time.Time) limiter.Store {
//				return mystore.New(mystore.Config{Now: now})
//			},
//		})
//	}
//
// Each rule runs against a fresh store, on a virtual clock that moves only when
// the rule says so: nothing sleeps. A failure prints the number of the rule, as
// the comment of limiter.Store has it, its text, what was seen and the line that
// saw it.
//
// A store whose accounts other processes share sets Harness.Shared as well: only with
// a second store, accounts that are locked by others, and commits that fail can the
// suite see what is wrong between processes.
//
// Nothing bounds the time of a rule but the test's own: only calls that are made
// concurrently are given up on where they hang.
//
// The expected answers come from an oracle in rational numbers, not from another
// store. Limits that a store refuses by Check are passed over where a rule tries
// awkward ones; plain limits, such as 5 a second, it must hold.
package storetest

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ration-go/ration/limiter"
)

// Harness says how to make the store under test, and what it legitimately does
// differently. With New alone a store is held to everything.
type Harness struct {
	// New returns a store without accounts that reads now as its clock; in
	// benchmarks now is nil: the store's own clock. What the store needs to
	// release goes to t.Cleanup. State that outlives the store, such as that of a
	// server, needs a name of its own for each call. Required.
	New func(t testing.TB, now func() time.Time) limiter.Store

	// Resolution is the smallest step of time of the store: instants are given, and
	// waits expected, in multiples of it. 0 means 1 ns.
	Resolution time.Duration

	// AccountClock says that the latest instant (R2) is kept for each account,
	// not for the whole store, and that only allowed requests write it.
	AccountClock bool

	// Earliest is the first instant that the store can hold; rules before it are
	// passed over. The zero value means any.
	Earliest time.Time

	// Accounts returns the number of accounts in a store that New returned. Nil
	// means that the store does not count them, and no rule checks it.
	Accounts func(s limiter.Store) int

	// Shared says how to test a store whose accounts other processes share. With
	// nil the rules that need it are passed over.
	Shared *Shared

	// patience is how long concurrent calls may take before they count as hung.
	patience time.Duration
}

// Rule is one rule of the promise and the check that holds a store to it. The
// zero Rule is not usable, see [Rules]; rules may run at the same time.
type Rule struct {
	Number string // such as "R5": the number in the comment of limiter.Store
	Name   string // what is checked, unique in Rules
	Text   string // the rule in words, printed where it is broken

	check func(p *probe)
}

// Rules returns the rules, by subject.
func Rules() []Rule {
	return slices.Concat(arithmeticRules, clockRules, outcomeRules, requestRules, freeRules,
		settleRules, changeRules, windowRules, concurrencyRules, errorRules, keyRules,
		sharedRules, ownClockRules, leavingRules, failureRules)
}

// Run checks the store of h by every rule, each in a subtest of its own.
func Run(t *testing.T, h Harness) {
	t.Helper()
	for _, r := range Rules() {
		t.Run(r.Number+"/"+strings.ReplaceAll(r.Name, " ", "-"), func(t *testing.T) {
			if err := r.Run(t, h); err != nil {
				t.Error(err)
			}
		})
	}
}

// Run checks a fresh store of h by this rule alone. The error is nil, or says how
// the store breaks the rule; t itself is only passed to h.New.
func (r Rule) Run(t testing.TB, h Harness) (err error) {
	t.Helper()
	if h.New == nil {
		return errors.New("storetest: Harness.New = nil: want a function that makes a store")
	}
	h.Resolution = max(h.Resolution, 1)
	if h.patience == 0 {
		h.patience = 30 * time.Second
	}
	defer func() {
		switch seen := recover().(type) {
		case nil:
		case violation:
			err = r.broken(seen)
		default:
			stack := fmt.Sprintf("panic: %v\n%s", seen, debug.Stack())
			err = r.broken(violation{stack, "the store"})
		}
	}()
	r.check(newProbe(t, h))
	return nil
}

func (r Rule) broken(v violation) error {
	return fmt.Errorf("%s (%s) is broken: %s\n\tseen: %s\n\tby:   %s",
		r.Number, r.Name, r.Text, v.seen, v.where)
}

// violation stops a rule: it is the value of a panic that Rule.Run recovers.
type violation struct{ seen, where string }

// violated stops the rule that runs. It is called on the rule's own goroutine.
func violated(format string, args ...any) {
	panic(violation{fmt.Sprintf(format, args...), ruleLine()})
}

// ruleLine returns the line of the rule: the last frame before Rule.Run.
func ruleLine() string {
	callers := make([]uintptr, 64)
	frames := runtime.CallersFrames(callers[:runtime.Callers(1, callers)])
	line := "unknown"
	for {
		frame, more := frames.Next()
		if !more || strings.HasSuffix(frame.Function, "storetest.Rule.Run") {
			return line
		}
		file := frame.File[strings.LastIndexByte(frame.File, '/')+1:]
		line = fmt.Sprintf("%s:%d", file, frame.Line)
	}
}
