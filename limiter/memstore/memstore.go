// Package memstore keeps accounts in this process.
package memstore

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/ration-go/ration/internal/account"
	"github.com/ration-go/ration/internal/instant"
	"github.com/ration-go/ration/limiter"
)

// Config is the shape of a [Store]; the zero Config is usable.
type Config struct {
	// MaxAccounts bounds the memory; 0 means 1,000,000.
	MaxAccounts int
	// Now is the clock, for tests and replay; nil is the real one: the wall time
	// at New plus monotonic time. It is called with no lock held.
	Now func() time.Time
}

// Store is a [limiter.Store] in memory. It is safe for concurrent use, never
// fails and has no goroutine; the zero Store is not usable, see [New].
type Store struct {
	clock func() int64

	// mu guards what follows.
	mu       sync.Mutex
	latest   int64
	accounts map[limiter.Key]account.Account
	rules    map[limiter.Limit]*account.Limit
}

// New returns an empty store. A negative MaxAccounts is a *[limiter.ConfigError].
func New(cfg Config) (*Store, error) {
	if cfg.MaxAccounts < 0 {
		return nil, &limiter.ConfigError{Field: "Config.MaxAccounts", Value: cfg.MaxAccounts,
			Reason: "want at least 1, or 0 for 1,000,000"}
	}
	return &Store{
		clock:    instant.Clock(cfg.Now),
		latest:   math.MinInt64,
		accounts: map[limiter.Key]account.Account{},
		rules:    map[limiter.Limit]*account.Limit{},
	}, nil
}

// Check returns l.Validate(): memory holds every valid limit exactly.
func (s *Store) Check(l limiter.Limit) error { return l.Validate() }

// Take decides the charges together and debits all or none.
func (s *Store) Take(ctx context.Context, charges []limiter.Charge) (limiter.Decision, error) {
	return s.decide(ctx, charges, true)
}

// Peek says what Take would say.
func (s *Store) Peek(ctx context.Context, charges []limiter.Charge) (limiter.Decision, error) {
	return s.decide(ctx, charges, false)
}

// draw is what one request draws on one account.
type draw struct {
	charge  *limiter.Charge // the first of its key
	account account.Account
	used    account.Uint128
	cost    uint64
	outcome account.Outcome
}

func (s *Store) decide(
	ctx context.Context, charges []limiter.Charge, take bool,
) (limiter.Decision, error) {
	if err := limiter.CheckTake(charges); err != nil {
		return limiter.Decision{}, err
	}
	if err := ctx.Err(); err != nil {
		return limiter.Decision{}, err
	}
	now := s.clock()
	s.mu.Lock()
	defer s.mu.Unlock()
	draws, err := s.draws(charges)
	if err != nil {
		return limiter.Decision{}, err
	}
	now = s.advance(now)
	allowed := true
	for i := range draws {
		d := &draws[i]
		d.account, d.used = d.account.Under(s.rules[d.charge.Limit], now)
		d.outcome = d.account.Limit.Judge(d.used, d.cost)
		allowed = allowed && (d.outcome == account.Allow || d.charge.Shadow)
	}
	for i := range draws {
		s.apply(&draws[i], now, allowed, take)
	}
	return pick(draws, charges, now, take && allowed), nil
}

func (s *Store) advance(now int64) int64 {
	s.latest = max(s.latest, now)
	return s.latest
}

// draws adds up the charges by key.
func (s *Store) draws(charges []limiter.Charge) ([]draw, error) {
	draws := make([]draw, 0, len(charges))
next:
	for i := range charges {
		c := &charges[i]
		if err := s.prepare(c.Limit); err != nil {
			return nil, err
		}
		for j := range draws {
			d := &draws[j]
			if d.charge.Key != c.Key {
				continue
			}
			if s.rules[d.charge.Limit] != s.rules[c.Limit] || d.charge.Shadow != c.Shadow {
				return nil, &limiter.ConfigError{Field: "Charges", Value: c.Key.Budget,
					Reason: "one key has two limits, or is both enforced and shadow"}
			}
			d.cost = min(d.cost+uint64(c.Cost), math.MaxInt64)
			continue next
		}
		draws = append(draws, draw{charge: c, account: s.accounts[c.Key], cost: uint64(c.Cost)})
	}
	return draws, nil
}

func (s *Store) prepare(l limiter.Limit) error {
	if s.rules[l] != nil {
		return nil
	}
	if err := l.Validate(); err != nil {
		return err
	}
	normal := l
	normal.Burst = l.Capacity()
	if s.rules[normal] == nil {
		rule := account.NewLimit(account.Algorithm(l.Algorithm), l.Tokens, int64(l.Per), l.Capacity())
		s.rules[normal] = &rule
	}
	s.rules[l] = s.rules[normal]
	return nil
}

// apply debits the account of an allowed request. A refused one changes no
// balance; where it shows a new limit, the balance is carried over to it.
func (s *Store) apply(d *draw, now int64, allowed, take bool) {
	debit := allowed && d.outcome == account.Allow && d.cost > 0
	if debit {
		if !take {
			d.account = d.account.Clone()
		}
		d.used = d.account.Debit(d.used, now, d.cost)
	}
	old, known := s.accounts[d.charge.Key]
	rebased := d.outcome == account.Deny && known && old.Limit != d.account.Limit
	if take && (debit || rebased) {
		s.accounts[d.charge.Key] = d.account
	}
}

// pick writes the results and returns the decision of R6.
func pick(draws []draw, charges []limiter.Charge, now int64, taken bool) limiter.Decision {
	var best *draw
	var result limiter.Result
	for i := range draws {
		d := &draws[i]
		r := d.result(now)
		for j := range charges {
			if c := &charges[j]; c.Key == d.charge.Key {
				c.Result, c.Receipt = r, limiter.Receipt{}
				if taken && d.outcome == account.Allow {
					c.Receipt = limiter.NewReceipt(now, c.Cost, 0)
				}
			}
		}
		if !d.charge.Shadow && (best == nil || d.decidesBefore(best, r, result)) {
			best, result = d, r
		}
	}
	if best == nil {
		return limiter.Decision{Outcome: limiter.Allow}
	}
	return limiter.Decision{
		Outcome: result.Outcome, Budget: best.charge.Key.Budget, Limit: best.charge.Limit,
		Remaining: result.Remaining, RetryAfter: result.RetryAfter, ResetAfter: result.ResetAfter,
	}
}

func (d *draw) result(now int64) limiter.Result {
	r := limiter.Result{
		Outcome:    limiter.Outcome(d.outcome),
		Remaining:  d.account.Limit.Remaining(d.used),
		ResetAfter: time.Duration(d.account.Reset(d.used, now)),
	}
	if d.outcome == account.Deny {
		r.RetryAfter = time.Duration(d.account.Wait(d.used, now, d.cost))
	}
	return r
}

// decidesBefore reports whether d decides rather than other (R6).
func (d *draw) decidesBefore(other *draw, r, o limiter.Result) bool {
	switch {
	case r.Outcome != o.Outcome:
		return r.Outcome > o.Outcome
	case r.RetryAfter != o.RetryAfter:
		return r.RetryAfter > o.RetryAfter
	case r.Outcome == limiter.Allow:
		a, b := d.account.Limit, other.account.Limit
		if account.LessRatio(other.used, b.Capacity(), d.used, a.Capacity()) {
			return true
		}
		if account.LessRatio(d.used, a.Capacity(), other.used, b.Capacity()) {
			return false
		}
	}
	return d.charge.Key.Compare(other.charge.Key) < 0
}

// Settle corrects what was taken; see [limiter.Store].
func (s *Store) Settle(ctx context.Context, charges []limiter.Charge) error {
	if err := limiter.CheckSettle(charges); err != nil {
		return err
	}
	now := s.clock()
	s.mu.Lock()
	defer s.mu.Unlock()
	now = s.advance(now)
	for i := range charges {
		c := &charges[i]
		if err := s.prepare(c.Limit); err != nil {
			return err
		}
		a := s.accounts[c.Key]
		if a.Limit == nil {
			a, _ = a.Under(s.rules[c.Limit], now)
		}
		at, _, _, _ := c.Receipt.Taken()
		a.Settle(now, at, c.Cost)
		s.accounts[c.Key] = a
		c.Receipt = limiter.Receipt{}
	}
	return nil
}

// Reset makes the accounts of the charges full.
func (s *Store) Reset(ctx context.Context, charges []limiter.Charge) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range charges {
		delete(s.accounts, charges[i].Key)
	}
	return nil
}
