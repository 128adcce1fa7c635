package limiter

import (
	"errors"
	"fmt"
	"time"
)

// Observer receives what a limiter decides; package metrics implements it for
// Prometheus. Its methods are called with no lock held, by many goroutines, and
// may call the limiter. A panic in one reaches the caller of the limiter, and
// what was taken stays taken.
type Observer interface {
	// Configured names the limiter and its budgets, from New and Reload.
	Configured(limiter string, budgets []string)
	// Decided is called for the budget that decided a Take, and for each shadow
	// budget that applied.
	Decided(e DecisionEvent)
	// Answered is called by an adapter once for each request that it has seen.
	Answered(e RequestEvent)
}

// StoreObserver is an Observer that is also told how stores answer that can fail.
type StoreObserver interface {
	Observer
	// ConfiguredStore names the store of a limiter, from New.
	ConfiguredStore(limiter, store string)
	// Asked is called after each Take and Peek of a store that is [Fallible].
	Asked(e StoreEvent)
}

// AccountCounter is a Store that can say what it holds.
type AccountCounter interface {
	// Accounts returns the number of accounts that are not full, and of charges that
	// were decided on accounts which several keys share for want of room. It may cost
	// a look at every account.
	Accounts() (live, overflowTakes int64)
}

// AccountObserver is an Observer that also shows what stores hold.
type AccountObserver interface {
	Observer
	// ConfiguredAccounts names the store of a limiter, from New. It may be asked at
	// any time.
	ConfiguredAccounts(limiter, store string, accounts AccountCounter)
}

// StoreEvent is one answer of a store.
type StoreEvent struct {
	Limiter string
	Store   string        // its String, such as "redis"; "store" where it has none
	Took    time.Duration // until the answer or the error
	Reason  StoreReason   // why it could not decide; empty where it could
}

// StoreReasons returns all reasons.
func StoreReasons() []StoreReason { return []StoreReason{Timeout, Unavailable, Ambiguous, Other} }

// introduce tells the observer of the store, as far as it wants to know, and
// watches the answers of one that can fail.
func (l *Limiter) introduce() {
	l.storeName = "store"
	if named, ok := l.store.(fmt.Stringer); ok {
		l.storeName = named.String()
	}
	if watcher, ok := l.observer.(StoreObserver); ok && canFail(l.store) {
		l.watcher = watcher
		watcher.ConfiguredStore(l.name, l.storeName)
	}
	if counter, ok := l.store.(AccountCounter); ok {
		if observer, ok := l.observer.(AccountObserver); ok {
			observer.ConfiguredAccounts(l.name, l.storeName, counter)
		}
	}
}

// asking returns the time where the watcher wants to know how long the store
// takes.
func (l *Limiter) asking() (start time.Time) {
	if l.watcher != nil {
		start = time.Now()
	}
	return start
}

// asked tells the watcher how the store answered. A caller that has gone away is
// no answer of the store.
func (l *Limiter) asked(start time.Time, err error) {
	if l.watcher == nil {
		return
	}
	e := StoreEvent{Limiter: l.name, Store: l.storeName, Took: time.Since(start)}
	if err != nil {
		var failure *StoreError
		if !errors.As(err, &failure) {
			return
		}
		e.Reason = failure.Reason
	}
	l.watcher.Asked(e)
}

// DecisionEvent is one budget's part in a decision.
type DecisionEvent struct {
	Limiter string
	Budget  string
	Verdict Verdict
}

// Verdict is the outcome label of a budget's decision.
type Verdict uint8

// The verdicts. NearLimit stands in for an allow that leaves under 20 % of the
// capacity, so the verdicts of the enforced budgets add up to the decisions.
const (
	VerdictAllow Verdict = iota
	VerdictDeny
	VerdictNever
	VerdictShadowDeny
	VerdictNearLimit
	VerdictShadowAllow
	verdicts
)

var verdictNames = [...]string{
	"allow", "deny", "never", "shadow_deny", "near_limit", "shadow_allow",
}

// String returns the label, such as "near_limit".
func (v Verdict) String() string { return label(verdictNames[:], uint8(v)) }

// Verdicts returns all verdicts.
func Verdicts() []Verdict { return all(verdicts) }

// all returns the labels below end.
func all[T ~uint8](end T) []T {
	labels := make([]T, end)
	for i := range labels {
		labels[i] = T(i)
	}
	return labels
}

// label returns the name of i, or "unknown".
func label(names []string, i uint8) string {
	if int(i) < len(names) {
		return names[i]
	}
	return "unknown"
}

// RequestEvent is one request that an adapter answered or let pass.
type RequestEvent struct {
	Limiter   string
	Transport string // "http" or "grpc"
	Route     string // the registered pattern, or "unmatched"
	Answer    Answer
}

// Answer is the outcome label of a request.
type Answer uint8

// The answers.
const (
	AnswerAllow Answer = iota
	AnswerDeny
	AnswerNever
	AnswerUnauthenticated
	AnswerCanceled
	AnswerErrorOpen
	AnswerErrorClosed
	AnswerSkipped
	answers
)

var answerNames = [...]string{"allow", "deny", "never", "unauthenticated", "canceled",
	"error_open", "error_closed", "skipped"}

// String returns the label, such as "unauthenticated".
func (a Answer) String() string { return label(answerNames[:], uint8(a)) }

// Answers returns all answers.
func Answers() []Answer { return all(answers) }

// verdict returns the label of an enforced budget's decision.
func verdict(d *Decision) Verdict {
	switch {
	case d.Outcome == Deny:
		return VerdictDeny
	case d.Outcome == Never:
		return VerdictNever
	case d.Remaining < nearLimit(d.Limit.Capacity()):
		return VerdictNearLimit
	default:
		return VerdictAllow
	}
}

// shadowVerdict returns the label of what a shadow budget said.
func shadowVerdict(o Outcome) Verdict {
	if o == Allow {
		return VerdictShadowAllow
	}
	return VerdictShadowDeny
}

// nearLimit returns 20 % of the capacity, rounded up.
func nearLimit(capacity int64) int64 { return capacity/5 + min(capacity%5, 1) }
