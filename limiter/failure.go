package limiter

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// closedRetry is the wait that a closed budget states: long enough to take the
// load off a store that fails, short enough to come back with it.
const closedRetry = time.Second

// failure returns the error of a store that could not decide. It returns nil if err is
// the caller's: a mistake, a caller that has left, or its own deadline, even one that
// has not passed yet but that the store could not meet.
func (l *Limiter) failure(ctx context.Context, err error) *StoreError {
	if err == nil {
		return nil
	}
	if store, ok := errors.AsType[*StoreError](err); ok {
		if store.Reason == "" { // it would count as an answer
			return &StoreError{Reason: "other", Err: store.Err, store: store}
		}
		return store
	}
	_, wrongCost := errors.AsType[*CostError](err)
	_, wrongConfig := errors.AsType[*ConfigError](err)
	_, foreseen := errors.AsType[interface {
		error
		CallerDeadline()
	}](err) // storekit.ErrDeadline
	switch {
	case wrongCost, wrongConfig:
		return nil
	case foreseen, ctx.Err() != nil && errors.Is(err, context.DeadlineExceeded):
		l.warnDeadline(ctx)
		return nil
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return nil
	default:
		return &StoreError{Reason: "other", Err: err}
	}
}

// warnDeadline logs, once, that a caller's deadline has ended before the store's.
func (l *Limiter) warnDeadline(ctx context.Context) {
	if l.deadlines.CompareAndSwap(false, true) {
		l.warn(ctx, "deadline-first", "the deadline of a caller ended before the store answered; such "+
			"requests are refused as cancelled, and OnError never answers for them: give callers "+
			"more time than the store's timeout, or the store a shorter timeout")
	}
}

// errUndecided is the error of a store that returned neither a decision nor an error.
var errUndecided = &StoreError{Reason: "other",
	Err: errors.New("it returned neither a decision nor an error")}

// answered reports what the store has returned, and lets the failure policy answer if
// that is a failure. local asks the local side of the store what the store was asked.
func (q *request) answered(
	ctx context.Context, l *Limiter, start time.Time, err error, local storeCall,
) error {
	if err == nil && !q.event.Decision.valid() {
		err = errUndecided
	}
	failed := l.failure(ctx, err)
	l.reportCall(start, err, failed)
	if err == nil {
		l.incident.answered(ctx, l)
		return nil
	}
	q.event.Decision, err = q.fail(ctx, l, err, failed, local)
	return err
}

// storeCall is the method Take or Peek of a store.
type storeCall = func(Store, context.Context, []Charge) (Decision, error)

// fail answers for a store that has returned err and could not decide, by the
// strictest policy. If the caller is gone, there is nobody to answer.
func (q *request) fail(
	ctx context.Context, l *Limiter, err error, store *StoreError, local storeCall,
) (Decision, error) {
	if store == nil {
		return Decision{}, err
	}
	// A copy, because a store may return one error to many callers.
	answer := &StoreError{Reason: store.Reason, Err: store.Err, store: store}
	if err := ctx.Err(); err != nil {
		l.incident.failed(ctx, l, answer)
		return Decision{}, err
	}
	answer.Policy = Open
	for _, b := range q.budgets {
		if !b.Shadow {
			answer.Policy = stricter(answer.Policy, l.policy(b))
		}
	}
	d := Decision{Outcome: Allow}
	if answer.Policy == Local {
		d, answer.Policy = q.local(ctx, l, local)
	} else if answer.Policy == Closed {
		d = q.closed(l)
	}
	l.incident.failed(ctx, l, answer)
	if answer.Policy == 0 {
		return d, ctx.Err()
	}
	return d, answer
}

// closed returns the refusal of a store that failed, by the first budget by name that
// is Closed.
func (q *request) closed(l *Limiter) Decision {
	var d Decision
	for i, b := range q.budgets {
		if !b.Shadow && l.policy(b) == Closed {
			d = firstByName(d, closedBy(b.Name, q.charges[i].Limit))
		}
	}
	return d
}

// closedBy returns the refusal of a store that failed, by one budget.
func closedBy(budget string, l Limit) Decision {
	return Decision{Outcome: Deny, Budget: budget, Limit: l, RetryAfter: closedRetry}
}

// firstByName returns the decision whose budget has the first name; the zero Decision is
// none.
func firstByName(a, b Decision) Decision {
	if a.Outcome == 0 || b.Budget < a.Budget {
		return b
	}
	return a
}

// startTimer returns the time, if the observer wants to know how long the store takes.
func (l *Limiter) startTimer() (start time.Time) {
	if l.observer.StoreCalled != nil && !l.can.NeverFails {
		start = time.Now()
	}
	return start
}

// reportCall reports an answer of the store, or its failure. An error of the caller is
// neither.
func (l *Limiter) reportCall(start time.Time, err error, failed *StoreError) {
	if start.IsZero() || err != nil && failed == nil {
		return
	}
	reason := ""
	if failed != nil {
		reason = failed.Reason
	}
	l.observer.StoreCalled(l.name, l.can.Name, time.Since(start), reason)
}

// incident logs that the store fails: a line when that begins, one a minute while it
// lasts, and one when it has ended, which an answer of the store shows that comes when
// there has been no failure for the time calm.
type incident struct {
	lasts    atomic.Bool
	mu       sync.Mutex // guards what follows
	began    time.Time
	latest   time.Time // failure
	logged   time.Time
	failures int64
	answers  [Closed + 1]int64 // by policy; 0: the caller was gone
}

const calm = time.Second

func (i *incident) failed(ctx context.Context, l *Limiter, err *StoreError) {
	i.mu.Lock()
	now := time.Now()
	begins := !i.lasts.Load()
	if begins {
		i.began, i.failures, i.answers = now, 0, [Closed + 1]int64{}
		i.lasts.Store(true)
	}
	i.failures++
	i.answers[err.Policy]++
	i.latest = now
	due := begins || now.Sub(i.logged) >= time.Minute
	if due {
		i.logged = now
	}
	failures := i.failures
	i.mu.Unlock()
	if due {
		l.logCode(ctx, slog.LevelWarn, "store-failed", "store unavailable; applying each budget's OnError policy",
			slog.Any("error", err), slog.Int64("failures", failures))
	}
}

// answered is called for each answer of the store.
func (i *incident) answered(ctx context.Context, l *Limiter) {
	if !i.lasts.Load() {
		return
	}
	i.mu.Lock()
	ends := i.lasts.Load() && time.Since(i.latest) >= calm
	failures, lasted, answers := i.failures, i.latest.Sub(i.began), i.answers
	if ends {
		i.lasts.Store(false)
	}
	i.mu.Unlock()
	if ends {
		l.logCode(ctx, slog.LevelInfo, "store-recovered", "store available again; it decides",
			slog.Int64("failures", failures), slog.Duration("lasted", lasted),
			slog.Int64("local", answers[Local]), slog.Int64("open", answers[Open]),
			slog.Int64("closed", answers[Closed]))
	}
}
