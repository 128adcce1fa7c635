package limiter

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"
)

// closedRetry is the wait that a closed budget states: long enough to take the
// load off a store that fails, short enough to come back with it.
const closedRetry = time.Second

// fail answers for a store that could not decide, by the strictest policy.
func (q *request) fail(ctx context.Context, l *Limiter, err error) (Decision, error) {
	var cost *CostError
	var config *ConfigError
	var store *StoreError
	switch {
	case errors.As(err, &store):
	case errors.As(err, &cost), errors.As(err, &config), ctx.Err() != nil:
		return Decision{}, err
	default:
		store = &StoreError{"other", err}
	}
	l.failures.log(ctx, l, store)
	strictest := -1
	for i, b := range q.budgets {
		if b.Shadow || b.OnError == Open {
			continue
		}
		if strictest < 0 || b.stricter(q.budgets[strictest]) {
			strictest = i
		}
	}
	if strictest < 0 {
		return Decision{Outcome: Allow}, store
	}
	return Decision{
		Outcome: Deny, Budget: q.budgets[strictest].Name, Limit: q.charges[strictest].Limit,
		RetryAfter: closedRetry,
	}, store
}

// startTimer returns the time, if the observer wants to know how long the store takes.
func (l *Limiter) startTimer() (start time.Time) {
	if l.observer.StoreCalled != nil && !l.can.NeverFails {
		start = time.Now()
	}
	return start
}

// since returns the time since start, or -1 if nobody wants to know.
func since(start time.Time) time.Duration {
	if start.IsZero() {
		return -1
	}
	return time.Since(start)
}

// reportCall reports an answer of the store, with the error that [request.fail] has
// made of its own. An error because the caller has left is not the store's.
func (l *Limiter) reportCall(took time.Duration, err error) {
	if took < 0 {
		return
	}
	reason := ""
	if err != nil {
		var failure *StoreError
		if !errors.As(err, &failure) {
			return
		}
		reason = failure.Reason
	}
	l.observer.StoreCalled(l.name, l.can.Name, took, reason)
}

// failureLog logs that the store fails: at once, then at most once a minute.
type failureLog struct {
	start    time.Time
	failures atomic.Int64 // not logged yet
	last     atomic.Int64 // when it was logged, in nanoseconds since start; 0: never
}

func (f *failureLog) log(ctx context.Context, l *Limiter, err *StoreError) {
	f.failures.Add(1)
	last, now := f.last.Load(), int64(time.Since(f.start))+1
	if last != 0 && now-last < int64(time.Minute) || !f.last.CompareAndSwap(last, now) {
		return
	}
	l.warn(ctx, "store-failed", "store unavailable; applying each budget's OnError policy",
		slog.Any("error", err), slog.Int64("failures", f.failures.Swap(0)))
}
