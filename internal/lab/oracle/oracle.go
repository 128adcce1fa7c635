// Package oracle is the contract of [limiter.Store] in the slow, obvious way: exact
// fractions, one function for each sentence of the rules, and no code shared with
// the stores. Tests compare stores with it. Package storetest does so for any store,
// package model with random streams, and the broken stores in the tests of storetest
// are the oracle with one fault each.
package oracle

import (
	"maps"
	"math"
	"math/big"
	"slices"

	"github.com/ration-go/ration/limiter"
)

// Store is what a limiter.Store should be, called with the instant and without a
// context. The zero Store is not usable; see [New]. It is not safe for concurrent
// use.
type Store struct {
	rules Rules
	// Latest is the latest instant seen, nil before the first.
	Latest *big.Int
	// Accounts has those that were ever debited; tests may change them.
	Accounts map[limiter.Key]Account
}

// New returns a store without accounts.
func New() *Store { return NewAs(Rules{}) }

// NewAs returns a store without accounts that follows the rules.
func NewAs(r Rules) *Store { return &Store{rules: r, Accounts: map[limiter.Key]Account{}} }

// Clone returns a copy that shares nothing that changes.
func (s *Store) Clone() *Store {
	return &Store{s.rules, s.Latest, maps.Clone(s.Accounts)}
}

// draw is all that one request draws on one account.
type draw struct {
	key     limiter.Key
	given   limiter.Limit // as the first charge has it
	shadow  bool
	cost    *big.Int
	now     *big.Int
	changed bool    // the limit of the charges is new to the account
	account Account // refilled, under the limit of the charges
	outcome limiter.Outcome
	result  limiter.Result
}

// Take decides the charges at an instant, in nanoseconds since the Unix epoch,
// and writes their results and receipts.
func (s *Store) Take(at int64, charges []limiter.Charge) (limiter.Decision, error) {
	return s.decide(at, charges, true)
}

// Peek says what Take would say.
func (s *Store) Peek(at int64, charges []limiter.Charge) (limiter.Decision, error) {
	return s.decide(at, charges, false)
}

func (s *Store) decide(at int64, charges []limiter.Charge, take bool) (limiter.Decision, error) {
	for i := range charges {
		if cost := charges[i].Cost; cost < 0 {
			return limiter.Decision{}, &limiter.CostError{Cost: cost, Max: math.MaxInt64}
		}
	}
	draws, err := sumByKey(charges)
	if err != nil {
		return limiter.Decision{}, err
	}
	at = s.Now(at)
	allowed := true
	for _, d := range draws {
		var a Account
		a, d.now = s.At(d.key, d.given, at)
		d.changed = a.Limit != Normal(d.given)
		d.account = a.Under(Normal(d.given), d.now)
		d.outcome = d.account.judge(d.cost)
		allowed = allowed && (d.shadow || d.outcome == limiter.Allow)
	}
	for _, d := range draws {
		pays := allowed && d.outcome == limiter.Allow && d.cost.Sign() > 0
		if pays {
			d.account = d.account.Debited(d.cost, d.now)
		}
		if take && (pays || d.changed && d.outcome == limiter.Deny) {
			d.account.latest = d.now
			s.Accounts[d.key] = d.account
		}
		d.report()
	}
	for i := range charges {
		c := &charges[i]
		d := find(draws, c.Key)
		c.Result, c.Receipt = d.result, limiter.Receipt{}
		if take && allowed && d.outcome == limiter.Allow {
			c.Receipt = limiter.Receipt{At: d.now.Int64(), Taken: c.Cost, Valid: true}
		}
	}
	return decision(draws), nil
}

// Now is the instant of a request: time never runs backwards (R2).
func (s *Store) Now(at int64) int64 {
	if s.rules.AccountClock {
		return at
	}
	if s.Latest == nil || s.Latest.Cmp(integer(at)) < 0 {
		s.Latest = integer(at)
	}
	return s.Latest.Int64()
}

// At returns the account of a key, refilled, and the instant for it: one that is
// full again is the same as none, and none is full under the limit that the
// request shows.
func (s *Store) At(k limiter.Key, l limiter.Limit, at int64) (Account, *big.Int) {
	now := integer(at)
	if a, ok := s.Accounts[k]; ok {
		if s.rules.AccountClock {
			now = maxInt(now, a.latest)
		}
		if a = a.Refilled(now); !a.Full() {
			return a, now
		}
	}
	return NewAccount(&s.rules, Normal(l), integer(at)), integer(at)
}

// sumByKey adds up the charges of one key.
func sumByKey(charges []limiter.Charge) ([]*draw, error) {
	var draws []*draw
	for i := range charges {
		c := &charges[i]
		if err := c.Limit.Validate(); err != nil {
			return nil, err
		}
		d := find(draws, c.Key)
		if d == nil {
			d = &draw{key: c.Key, given: c.Limit, shadow: c.Shadow, cost: integer(0)}
			draws = append(draws, d)
		}
		if Normal(d.given) != Normal(c.Limit) || d.shadow != c.Shadow {
			return nil, &limiter.ConfigError{Field: "Charges", Reason: "one key, two limits"}
		}
		d.cost = add(d.cost, integer(c.Cost))
	}
	return draws, nil
}

func find(draws []*draw, k limiter.Key) *draw {
	for _, d := range draws {
		if d.key == k {
			return d
		}
	}
	return nil
}

func (d *draw) report() {
	d.result = limiter.Result{
		Outcome:    d.outcome,
		Remaining:  d.account.Remaining(),
		ResetAfter: duration(d.account.reset(d.now)),
	}
	if d.outcome == limiter.Deny {
		d.result.RetryAfter = duration(d.account.wait(d.cost, d.now))
	}
}

// decision is R6.
func decision(draws []*draw) limiter.Decision {
	var first *draw
	for _, d := range draws {
		if !d.shadow && (first == nil || d.before(first)) {
			first = d
		}
	}
	if first == nil {
		return limiter.Decision{Outcome: limiter.Allow}
	}
	return limiter.Decision{
		Outcome: first.outcome, Budget: first.key.Budget, Limit: first.given,
		Remaining: first.result.Remaining, RetryAfter: first.result.RetryAfter,
		ResetAfter: first.result.ResetAfter,
	}
}

// before reports whether d decides rather than other: any never, else the deny
// with the longest wait, else the allow with the least left relative to its
// capacity; ties go by budget name, then key.
func (d *draw) before(other *draw) bool {
	if d.outcome != other.outcome {
		return d.outcome > other.outcome
	}
	if wait, theirs := d.result.RetryAfter, other.result.RetryAfter; wait != theirs {
		return wait > theirs
	}
	if d.outcome == limiter.Allow {
		if c := d.share().Cmp(other.share()); c != 0 {
			return c < 0
		}
	}
	return compareKeys(d.key, other.key) < 0
}

func (d *draw) share() *big.Rat {
	left := d.account.Left()
	return left.Quo(left, rat(integer(d.account.Limit.Burst)))
}

// Settle corrects what the receipts say was taken, and consumes them.
func (s *Store) Settle(at int64, charges []limiter.Charge) error {
	for i := range charges {
		taken, ok := charges[i].Receipt.Taken, charges[i].Receipt.Valid
		if !ok {
			return limiter.ErrReceipt
		}
		if charges[i].Cost < -taken {
			return &limiter.CostError{Cost: charges[i].Cost, Min: -taken, Max: math.MaxInt64}
		}
	}
	at = s.Now(at)
	for i := range charges {
		c := &charges[i]
		instant := c.Receipt.At
		a, now := s.At(c.Key, c.Limit, at)
		taken := minInt(integer(instant), now) // if a receipt is all that is left of a later now
		charged := c.Limit
		charged.Burst = charged.Capacity()
		if own := (Account{Limit: charged, window: windowAt(charged, now)}); !own.Kept(taken, now) {
			// What was taken has gone under the limit it was taken under.
			if c.Cost <= 0 {
				c.Receipt = limiter.Receipt{}
				continue
			}
			taken = now
		}
		if c.Cost > 0 || a.Kept(taken, now) {
			a = a.Settled(integer(c.Cost), taken, now)
			a.latest = now
			s.Accounts[c.Key] = a
		}
		c.Receipt = limiter.Receipt{}
	}
	return nil
}

// Reset makes the accounts of the charges full.
func (s *Store) Reset(charges []limiter.Charge) {
	for i := range charges {
		delete(s.Accounts, charges[i].Key)
	}
}

// Tokens returns the balance of a key at an instant.
func (s *Store) Tokens(at int64, k limiter.Key, l limiter.Limit) *big.Rat {
	a, now := s.At(k, l, s.Now(at))
	return a.Under(Normal(l), now).Left()
}

// Normal spells the default capacity out.
func Normal(l limiter.Limit) limiter.Limit {
	l.Burst = l.Capacity()
	return l
}

// compareKeys orders keys by budget, principal, route and workload.
func compareKeys(a, b limiter.Key) int {
	return slices.Compare(parts(a), parts(b))
}

func parts(k limiter.Key) []string {
	return []string{k.Budget, k.Principal.Kind, k.Principal.Tenant, k.Principal.ID, k.Route, k.Workload}
}
