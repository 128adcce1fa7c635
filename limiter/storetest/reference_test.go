package storetest_test

import (
	"context"
	"errors"
	"math/big"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/ration-go/ration/internal/instant"
	"github.com/ration-go/ration/internal/lab/oracle"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/storekit"
	"github.com/ration-go/ration/limiter/storetest"
)

// fault is one thing that a reference store does wrong; see faults.
type fault string

// reference is the oracle behind a mutex, and right but for its fault. A fault
// changes what the oracle is shown, what it has stored, or what it has answered.
type reference struct {
	fault fault
	clock func() int64

	mu      sync.Mutex
	oracle  *oracle.Store
	before  map[limiter.Key]*oracle.Account // before the request; nil if there was none
	seen    []limiter.Charge                // the charges of the last request
	locks   map[limiter.Key]*sync.Mutex
	first   map[limiter.Key]int64         // instant of the first request
	touched map[limiter.Key]int64         // instant of the last request that was allowed
	given   map[limiter.Key]limiter.Limit // limit of that request, as it was written
	banked  map[limiter.Key]int64         // tokens above the capacity
	serial  int
}

func newReference(f fault, now func() time.Time) *reference {
	return &reference{
		fault: f, clock: instant.Clock(now), oracle: oracle.New(),
		locks: map[limiter.Key]*sync.Mutex{}, first: map[limiter.Key]int64{},
		touched: map[limiter.Key]int64{}, given: map[limiter.Key]limiter.Limit{},
		banked: map[limiter.Key]int64{}, before: map[limiter.Key]*oracle.Account{},
	}
}

// harness returns the harness of a reference store with the fault.
func harness(f fault) storetest.Harness {
	return storetest.Harness{
		New: func(t testing.TB, now func() time.Time) limiter.Store {
			return newReference(f, now)
		},
		Accounts: func(s limiter.Store) int { return len(s.(*reference).oracle.Accounts) },
	}
}

func (s *reference) is(f fault) bool { return s.fault == f }

func (s *reference) Check(l limiter.Limit) error {
	if s.is("checks nothing") {
		return nil
	}
	if l.Burst > 0 && s.is("refuses limits without a typed error") && l.Validate() != nil {
		return errors.New("bad limit")
	}
	return l.Validate()
}

func (s *reference) Take(
	ctx context.Context, charges []limiter.Charge,
) (limiter.Decision, error) {
	return s.decide(ctx, charges, true)
}

func (s *reference) Peek(
	ctx context.Context, charges []limiter.Charge,
) (limiter.Decision, error) {
	return s.decide(ctx, charges, s.is("peek debits"))
}

func (s *reference) decide(
	ctx context.Context, charges []limiter.Charge, take bool,
) (limiter.Decision, error) {
	if err := s.validate(ctx, charges); err != nil {
		return limiter.Decision{}, err
	}
	if s.is("reads the clock under its lock") {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.decideAt(s.clock(), charges, take)
	}
	now := s.clock()
	defer s.lockEach(charges)()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.decideAt(now, charges, take)
}

func (s *reference) validate(ctx context.Context, charges []limiter.Charge) error {
	if err := ctx.Err(); err != nil && !s.is("serves callers that are gone") {
		if s.is("hides the context's error") {
			return errors.New("gone")
		}
		return err
	}
	if s.is("checks costs only where it must pay") && len(charges) > 0 &&
		charges[0].Cost > charges[0].Limit.Capacity() {
		return nil
	}
	if s.is("a negative cost credits") || s.is("finds a negative cost late") {
		return nil
	}
	return storekit.CheckTake(charges)
}

// lockEach takes a lock for each key, in the order of the charges.
func (s *reference) lockEach(charges []limiter.Charge) (unlock func()) {
	var held []*sync.Mutex
	if s.is("locks in the order of the charges") {
		for i := range charges {
			s.mu.Lock()
			lock := s.locks[charges[i].Key]
			if lock == nil {
				lock = &sync.Mutex{}
				s.locks[charges[i].Key] = lock
			}
			s.mu.Unlock()
			lock.Lock()
			held = append(held, lock)
			runtime.Gosched()
		}
	}
	return func() {
		for _, lock := range held {
			lock.Unlock()
		}
	}
}

// yield lets another request in between.
func (s *reference) yield() {
	s.mu.Unlock()
	runtime.Gosched()
	s.mu.Lock()
}

// decideAt asks the oracle. A Peek leaves the accounts as they are.
func (s *reference) decideAt(
	now int64, charges []limiter.Charge, take bool,
) (limiter.Decision, error) {
	earlier := s.oracle.Latest
	now = s.instant(now, charges)
	clear(s.before)
	shown := s.show(now, charges, take)
	if !take {
		defer func() {
			s.restore(shown)
			if s.is("peek carries over") {
				s.change(now, shown)
			}
		}()
	}
	d, err := s.ask(now, shown, take)
	if err != nil {
		return limiter.Decision{}, err
	}
	switch {
	case take && d.Allowed():
		s.afterAllowed(now, shown)
	case take:
		s.afterRefused(now, shown, earlier)
	}
	s.copyBack(charges, shown, &d, take)
	return s.answer(charges, d), nil
}

// ask returns the decision on the charges as they are shown to the oracle.
func (s *reference) ask(
	now int64, shown []limiter.Charge, take bool,
) (limiter.Decision, error) {
	if err := storekit.CheckTake(shown); err != nil { // by a fault, not checked before
		for i := 0; shown[i].Cost >= 0; i++ {
			s.debit(now, &shown[i])
		}
		return limiter.Decision{}, err
	}
	if outcome, wrong := s.misjudges(now, shown); wrong {
		d, err := s.oracle.Peek(now, shown)
		d.Outcome, shown[0].Result.Outcome = outcome, outcome
		return d, err
	}
	late := s.is("checks, then debits") || s.is("debits one by one")
	if !take || !late {
		call := s.oracle.Peek
		if take {
			call = s.oracle.Take
		}
		return call(now, shown)
	}
	d, err := s.oracle.Peek(now, shown)
	if s.is("checks, then debits") {
		s.yield()
	}
	for i := range shown {
		if err != nil || !d.Allowed() {
			break
		}
		s.debit(now, &shown[i])
		shown[i].Receipt = limiter.Receipt{At: now, Taken: shown[i].Cost, Valid: true}
		if s.is("debits one by one") {
			s.yield()
		}
	}
	return d, err
}

// account returns the account that a charge draws on, under its limit.
func (s *reference) account(now int64, c *limiter.Charge) (oracle.Account, *big.Int) {
	a, at := s.oracle.At(c.Key, c.Limit, s.oracle.Now(now))
	return a.Under(oracle.Normal(c.Limit), at), at
}

// debit takes the cost of a charge, whatever is left.
func (s *reference) debit(now int64, c *limiter.Charge) {
	a, at := s.account(now, c)
	s.oracle.Accounts[c.Key] = a.Debited(big.NewInt(c.Cost), at)
}

// left returns the whole tokens that are left, at least 0.
func (s *reference) left(now int64, c *limiter.Charge) int64 {
	a, _ := s.account(now, c)
	return a.Remaining()
}

func (s *reference) Settle(_ context.Context, charges []limiter.Charge) error {
	if !s.is("settles one by one") {
		if err := s.checkSettle(charges); err != nil {
			return err
		}
	}
	now := s.clock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range charges {
		if s.is("settles one by one") {
			if err := s.checkSettle(charges[i : i+1]); err != nil {
				return err
			}
		}
		if i > 1 && s.is("settles two charges only") {
			break
		}
		s.correct(now, &charges[i])
	}
	return nil
}

func (s *reference) checkSettle(charges []limiter.Charge) error {
	err := storekit.CheckSettle(charges)
	var cost *limiter.CostError
	switch {
	case errors.As(err, &cost) && s.is("credits more than was taken"):
		return nil
	case errors.As(err, &cost) && s.is("a credit that is too large consumes the receipt"):
		charges[0].Receipt = limiter.Receipt{}
	case errors.Is(err, limiter.ErrReceipt) && s.is("settles without a receipt"):
		return nil
	case errors.Is(err, limiter.ErrReceipt) && s.is("a missing receipt has another error"):
		return errors.New("nothing to settle")
	}
	return err
}
