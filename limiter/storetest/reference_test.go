package storetest_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/ration-go/ration/internal/account"
	"github.com/ration-go/ration/internal/instant"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/storetest"
)

// fault is one thing that a reference store does wrong; see faults.
type fault string

// reference is a store as simple as can be, and right but for its fault.
type reference struct {
	fault fault
	step  int64 // all arithmetic is in steps of so many nanoseconds
	clock func() int64

	mu       sync.Mutex
	latest   int64
	earlier  int64 // latest before the last request
	apart    bool  // the latest instant is kept for each account
	accounts map[any]state
	rules    map[limiter.Limit]*account.Limit
	seen     []limiter.Charge // the charges of the last request
	locks    map[any]*sync.Mutex
}

// state is what is stored of one account.
type state struct {
	account.Account
	touched int64
	first   int64 // instant of the first request
	banked  uint64
}

func newReference(f fault, now func() time.Time) *reference {
	return newCoarse(f, now, 1)
}

// newCoarse returns a reference that tells time in steps.
func newCoarse(f fault, now func() time.Time, step int64) *reference {
	clock := instant.Clock(now)
	return &reference{
		fault: f, step: step, clock: func() int64 { return clock() / step }, latest: math.MinInt64,
		accounts: map[any]state{}, rules: map[limiter.Limit]*account.Limit{},
		locks: map[any]*sync.Mutex{},
	}
}

// harness returns the harness of a reference store with the fault.
func harness(f fault) storetest.Harness {
	return storetest.Harness{
		New: func(t testing.TB, now func() time.Time) limiter.Store {
			return newReference(f, now)
		},
		Accounts: func(s limiter.Store) int { return len(s.(*reference).accounts) },
	}
}

func (s *reference) is(f fault) bool { return s.fault == f }

func (s *reference) Check(l limiter.Limit) error {
	if s.is("checks nothing") {
		return nil
	}
	if int64(l.Per)%s.step != 0 {
		return &limiter.ConfigError{Field: "Limit.Per", Value: l.Per, Reason: "want whole steps"}
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

type draw struct {
	charge  *limiter.Charge
	now     int64 // the account's own instant
	id      any
	old     state
	account state
	used    account.Uint128
	cost    uint64
	outcome limiter.Outcome
	result  limiter.Result
}

func (s *reference) decide(
	ctx context.Context, charges []limiter.Charge, take bool,
) (limiter.Decision, error) {
	if err := s.validate(ctx, charges); err != nil {
		return limiter.Decision{}, err
	}
	if s.is("reads the clock under its lock") {
		s.mu.Lock()
		now := s.clock()
		defer s.mu.Unlock()
		return s.decideAt(s.advance(now), charges, take)
	}
	now := s.clock()
	defer s.lockEach(charges)()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range charges {
		if a, known := s.accounts[s.id(charges[i].Key)]; known && s.apart {
			now = max(now, a.touched)
		}
	}
	return s.decideAt(s.advance(now), charges, take)
}

func (s *reference) validate(ctx context.Context, charges []limiter.Charge) error {
	if err := ctx.Err(); err != nil && !s.is("serves callers that are gone") {
		if s.is("hides the context's error") {
			return errors.New("gone")
		}
		return err
	}
	if s.is("checks costs only where it must pay") {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(charges) > 0 && charges[0].Cost > charges[0].Limit.Capacity() {
			return nil
		}
	}
	if err := limiter.CheckTake(charges); err != nil && !s.is("a negative cost credits") &&
		!s.is("finds a negative cost late") {
		return err
	}
	return nil
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

// advance returns the instant of a request.
func (s *reference) advance(now int64) int64 {
	switch {
	case s.apart, s.is("a clock that goes back drains"):
		return now
	case s.is("a clock that goes back credits") && now < s.latest:
		return s.latest + (s.latest - now)
	}
	s.earlier = s.latest
	s.latest = max(s.latest, now)
	return s.latest
}

func (s *reference) decideAt(
	now int64, charges []limiter.Charge, take bool,
) (limiter.Decision, error) {
	draws, err := s.draws(now, charges)
	if err != nil {
		return limiter.Decision{}, err
	}
	allowed := true
	for i := range draws {
		d := &draws[i]
		d.outcome = s.judge(d)
		if d.outcome != limiter.Allow && (!d.charge.Shadow || s.is("shadow refuses")) {
			allowed = false
		}
		if allowed && take && s.is("debits one budget before it asks the next") {
			s.debit(d)
			s.accounts[d.id] = d.account
		}
	}
	if take && s.is("checks, then debits") {
		s.mu.Unlock()
		runtime.Gosched()
		s.mu.Lock()
	}
	for i := range draws {
		s.apply(&draws[i], allowed, take)
		if take && s.is("debits one by one") {
			s.mu.Unlock()
			runtime.Gosched()
			s.mu.Lock()
		}
	}
	if !allowed && s.is("refused requests leave no instant") {
		s.latest = s.earlier
	}
	return s.answer(draws, charges, now, take && allowed), nil
}

func (s *reference) draws(now int64, charges []limiter.Charge) ([]draw, error) {
	var draws []draw
next:
	for i := range charges {
		c := &charges[i]
		if err := s.prepare(c.Limit); err != nil {
			return nil, err
		}
		if c.Cost < 0 && s.is("finds a negative cost late") {
			for j := range draws {
				draws[j].outcome = limiter.Allow
				s.debit(&draws[j])
				s.accounts[draws[j].id] = draws[j].account
			}
			return nil, limiter.CheckTake(charges[i:])
		}
		for j := range draws {
			d := &draws[j]
			if d.charge.Key != c.Key || s.is("judges a key that appears twice twice") {
				continue
			}
			mixed := s.rules[d.charge.Limit] != s.rules[c.Limit] || d.charge.Shadow != c.Shadow
			if mixed && !s.is("one key may have two limits") {
				return nil, &limiter.ConfigError{Field: "Charges", Reason: "one key has two limits"}
			}
			d.cost = min(d.cost+uint64(c.Cost), math.MaxInt64+1)
			continue next
		}
		draws = append(draws, s.draw(now, c))
	}
	return draws, nil
}

func (s *reference) prepare(l limiter.Limit) error {
	given := l
	if err := l.Validate(); err != nil && !s.is("takes limits that are not valid") {
		return err
	} else if err != nil {
		l = limiter.PerSecond(5)
	}
	normal := l
	if !s.is("Burst spelled out is another limit") {
		normal.Burst = l.Capacity()
	}
	if s.rules[normal] == nil {
		per, capacity := int64(l.Per)/s.step, l.Capacity()
		if s.is("rounds the time of a token") && l.Algorithm == limiter.TokenBucket && per > l.Tokens {
			per = per / l.Tokens * l.Tokens
		}
		if s.is("a log keeps its boundary") && l.Algorithm == limiter.RollingLog {
			per++
		}
		if s.is("a log forgets early") && l.Algorithm == limiter.RollingLog {
			per--
		}
		rule := account.NewLimit(account.Algorithm(l.Algorithm), l.Tokens, per, capacity)
		s.rules[normal] = &rule
	}
	s.rules[given] = s.rules[normal]
	return nil
}

func (s *reference) judge(d *draw) limiter.Outcome {
	outcome := limiter.Outcome(d.account.Limit.Judge(d.used, d.cost))
	capacity, cost := d.account.Limit.Burst, d.cost
	left := uint64(d.account.Limit.Remaining(d.used))
	switch s.fault {
	case "never at the capacity":
		if cost == capacity {
			return limiter.Never
		}
	case "denies the last token":
		if cost > 0 && cost == left {
			return limiter.Deny
		}
	case "denies above the capacity":
		if outcome == limiter.Never {
			return limiter.Deny
		}
	case "allows above the capacity when full":
		if cost > capacity && left == capacity {
			d.cost = capacity
			return limiter.Allow
		}
	case "denies cost 0 of an empty account":
		if cost == 0 && left == 0 {
			return limiter.Deny
		}
	}
	if outcome != limiter.Allow && d.account.banked > 0 && cost <= left+d.account.banked {
		d.cost, d.account.banked = left, d.account.banked-(cost-left)
		return limiter.Allow
	}
	return outcome
}

func (s *reference) debit(d *draw) {
	if d.outcome == limiter.Allow && d.cost > 0 {
		d.used = d.account.Debit(d.used, d.now, d.cost)
	}
	if s.is("drops the remainder") && d.account.Limit.Algorithm == account.TokenBucket {
		d.account.State.Rest = 0
	}
}

func (s *reference) apply(d *draw, allowed, take bool) {
	switch {
	case allowed && !take:
		d.account.Account = d.account.Clone()
		s.debit(d)
		if s.is("peek carries over") && d.old.Limit != nil {
			s.accounts[d.id] = d.old
		}
	case allowed && d.charge.Shadow && s.is("shadow is not debited"):
	case allowed && s.is("debits one budget before it asks the next"):
	case allowed:
		if s.is("checks, then debits") || s.is("debits one by one") {
			d.account = s.accounts[d.id]
			d.account.Account, d.used = d.account.Under(s.rules[d.charge.Limit], d.now)
		}
		s.debit(d)
		s.accounts[d.id] = d.account
	default:
		s.refuse(d, take)
	}
}

// refuse leaves the account of a refused request as it is, but for its limit.
func (s *reference) refuse(d *draw, take bool) {
	changed := d.old.Limit != nil && d.old.Limit != d.account.Limit
	if take && changed && d.outcome == limiter.Deny && !s.is("a refusal keeps the old limit") ||
		!take && changed && s.is("peek carries over") || take && s.is("refusals create accounts") {
		s.accounts[d.id] = d.account
	}
	if !take {
		return
	}
	switch s.fault {
	case "refusals are charged":
		d.account.Account.Settle(d.now, d.now, 1)
		s.accounts[d.id] = d.account
	case "refusals give back":
		d.account.Account.Settle(d.now, d.now, -1)
		s.accounts[d.id] = d.account
	case "refusals charge the others":
		if d.outcome == limiter.Allow {
			s.debit(d)
			s.accounts[d.id] = d.account
		}
	}
}
