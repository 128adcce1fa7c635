package storetest_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/storekit"
	"github.com/ration-go/ration/limiter/storetest"
)

// process is a store on a database that others share, written by hand on the pure
// layer of storekit. It is right but for its fault.
type process struct {
	fault fault
	db    *database
	clock func() time.Time // nil: that of the database
	skew  time.Duration    // of this process's own clock
	mu    sync.Mutex
	fail  atomic.Uint32 // a storetest.Moment, for the next Take or Settle
}

func sharedHarness(f fault) storetest.Harness {
	var count atomic.Int64
	return storetest.Harness{
		New: func(_ testing.TB, now func() time.Time) limiter.Store {
			return &process{fault: f, db: newDatabase(), clock: now}
		},
		AccountClock: true,
		Shared: &storetest.Shared{
			Another: func(_ testing.TB, s limiter.Store, now func() time.Time) limiter.Store {
				skew := time.Duration(-count.Add(1)) * time.Second
				return &process{fault: f, db: s.(*process).db, clock: now, skew: skew}
			},
			Hold: func(t testing.TB, s limiter.Store, charges []limiter.Charge) func() {
				r := limiter.Must(storekit.Prepare(storekit.Peek, charges, nil))
				t2 := s.(*process).db.begin()
				for _, key := range r.Keys() {
					if err := t2.lock(t.Context(), key); err != nil {
						t.Error(err)
					}
				}
				return t2.end
			},
			Fail: func(s limiter.Store, at storetest.Moment) {
				s.(*process).fail.Store(uint32(at))
			},
		},
	}
}

func (s *process) is(f fault) bool { return s.fault == f }

func (s *process) Check(l limiter.Limit) error { return l.Validate() }

func (s *process) Take(
	ctx context.Context, charges []limiter.Charge,
) (limiter.Decision, error) {
	if !s.is("keeps the receipt of the last Take") {
		dropReceipts(charges)
	}
	return s.do(ctx, storekit.Take, charges)
}

func dropReceipts(charges []limiter.Charge) {
	for i := range charges {
		charges[i].Receipt = limiter.Receipt{}
	}
}

func (s *process) Peek(
	ctx context.Context, charges []limiter.Charge,
) (limiter.Decision, error) {
	return s.do(ctx, storekit.Peek, charges)
}

func (s *process) Settle(ctx context.Context, charges []limiter.Charge) error {
	if !s.is("settles with the caller's context") {
		ctx = context.WithoutCancel(ctx)
	}
	_, err := s.do(ctx, storekit.Settle, charges)
	var store *limiter.StoreError
	ambiguous := errors.As(err, &store) && store.Reason == storekit.Ambiguous
	if ambiguous && !s.is("settles again after a lost reply") ||
		err != nil && s.is("consumes receipts before the commit") {
		dropReceipts(charges)
	}
	return err
}

func (s *process) do(
	ctx context.Context, v storekit.Verb, charges []limiter.Charge,
) (limiter.Decision, error) {
	r, err := storekit.Prepare(v, charges, nil)
	if err != nil {
		return limiter.Decision{}, err
	}
	if err := ctx.Err(); err != nil {
		return limiter.Decision{}, err
	}
	if !s.is("uses the caller's context up to the commit") &&
		!s.is("settles with the caller's context") {
		ctx = context.WithoutCancel(ctx)
	}
	var read time.Time // a clock of the test's, before the locks
	if s.clock != nil {
		read = s.clock()
	}
	if s.is("a mutex in the process") {
		s.mu.Lock()
		defer s.mu.Unlock()
	}
	t := s.db.begin()
	defer t.end()
	keys := r.Keys()
	if s.is("locks in the order of the request") {
		keys = keysInOrder(charges)
	}
	for _, key := range keys {
		if s.is("a mutex in the process") {
			break
		}
		if err := t.lock(ctx, key); err != nil {
			return limiter.Decision{}, s.failed(err)
		}
		runtime.Gosched() // a round trip
	}
	now := s.now(t, read)
	if t.writes, err = r.Decide(now, t.load(r.Keys())); err != nil {
		return limiter.Decision{}, s.failed(err)
	}
	if s.is("writes receipts before the commit") {
		r.Finish(charges)
	}
	if err := s.commit(ctx, t, v); err != nil {
		return limiter.Decision{}, err
	}
	return r.Finish(charges), nil
}

// keysInOrder returns the keys in the order of the charges.
func keysInOrder(charges []limiter.Charge) []storekit.Key {
	var keys []storekit.Key
	for _, c := range charges {
		if key := storekit.KeyOf(c.Key, nil); !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

func (s *process) now(t *tx, read time.Time) time.Time {
	switch {
	case s.clock != nil:
		return read
	case s.is("the start of the transaction is now"):
		return t.start
	case s.is("each process has its own clock"):
		return s.db.now().Add(s.skew)
	default:
		return s.db.now()
	}
}

func (s *process) commit(ctx context.Context, t *tx, v storekit.Verb) error {
	moment := storetest.Moment(0)
	if v == storekit.Take || v == storekit.Settle {
		moment = storetest.Moment(s.fail.Swap(0))
	}
	if moment == storetest.BeforeCommit {
		if s.is("a failed transaction stays") {
			_ = t.commit(ctx)
		}
		return s.failed(errors.New("the server has gone away"))
	}
	if err := t.commit(ctx); err != nil {
		return &limiter.StoreError{Reason: storekit.Ambiguous, Err: err}
	}
	if moment == storetest.AtCommit && !s.is("takes a lost reply for a success") {
		return &limiter.StoreError{Reason: storekit.Ambiguous, Err: errors.New("no reply")}
	}
	return nil
}

func (s *process) failed(err error) error {
	return &limiter.StoreError{Reason: storekit.Unavailable, Err: err}
}
