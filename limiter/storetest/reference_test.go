package storetest_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
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
	clock func() int64

	mu       sync.Mutex
	latest   int64
	earlier  int64 // latest before the last request
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
	return &reference{
		fault: f, clock: instant.Clock(now), latest: math.MinInt64,
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
	case s.is("a clock that goes back drains"):
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
		per, capacity := int64(l.Per), l.Capacity()
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

// id returns what an account is filed under.
func (s *reference) id(k limiter.Key) any {
	p := k.Principal
	switch s.fault {
	case "joins keys with a colon":
		return strings.Join([]string{k.Budget, p.Kind, p.Tenant, p.ID, k.Route, k.Workload}, ":")
	case "ignores the case of keys":
		k.Principal.ID = strings.ToLower(p.ID)
	case "cuts long keys":
		k.Principal.ID = p.ID[:min(len(p.ID), 256)]
	case "makes keys valid UTF-8":
		k.Principal.ID = strings.ToValidUTF8(p.ID, "\ufffd")
	case "ignores the kind":
		k.Principal.Kind = ""
	case "keys are pointers":
		return &k
	}
	return k
}

func (s *reference) draw(now int64, c *limiter.Charge) draw {
	d := draw{charge: c, id: s.id(c.Key), cost: uint64(c.Cost)}
	if s.is("costs are 32 bits") {
		d.cost &= math.MaxUint32
	}
	if s.is("a negative cost credits") && c.Cost < 0 {
		d.cost = 0
		delete(s.accounts, d.id)
	}
	s.forget(now)
	d.old = s.accounts[d.id]
	d.account = d.old
	if d.account.first == 0 {
		d.account.first = now
	}
	d.account.touched = now
	rule := s.rules[c.Limit]
	now = s.shift(now, d.account.first, c.Limit)
	d.now = now
	if s.changed(&d, rule) {
		d.account.Account = account.Account{}
	}
	d.account.Account, d.used = s.under(d.account.Account, rule, now)
	if s.is("starts empty") && d.old.Limit == nil {
		d.used = d.account.Debit(d.used, now, uint64(c.Limit.Capacity()))
	}
	if s.is("hoards while idle") && d.old.Limit != nil && d.used == (account.Uint128{}) {
		d.account.banked = 1
	}
	return d
}

// shift returns the instant that a fault counts windows by.
func (s *reference) shift(now, first int64, l limiter.Limit) int64 {
	switch {
	case l.Algorithm != limiter.FixedWindow:
	case s.is("windows begin with the first request"):
		return now - first
	case s.is("windows are rounded towards zero") && now < 0:
		return now + int64(l.Per) - 1
	}
	return now
}

// changed reports whether a fault makes the account full for a new limit.
func (s *reference) changed(d *draw, rule *account.Limit) bool {
	old := d.old.Limit
	if old == nil || old == rule {
		return false
	}
	switch s.fault {
	case "a new limit refills":
		return true
	case "another algorithm refills":
		return old.Algorithm != rule.Algorithm
	case "a new capacity refills a window":
		return old.Algorithm == rule.Algorithm && rule.Algorithm != account.TokenBucket
	case "Burst spelled out is another limit":
		return *old == *rule
	}
	return false
}

func (s *reference) under(
	a account.Account, rule *account.Limit, now int64,
) (account.Account, account.Uint128) {
	if s.is("a full account keeps its old tokens") && a.Limit != nil && a.Limit != rule &&
		a.Limit.Burst < rule.Burst && a.Used(now) == (account.Uint128{}) {
		missing := rule.Burst - a.Limit.Burst
		a = account.Account{Limit: rule}
		return a, a.Debit(account.Uint128{}, now, missing)
	}
	if a.Limit != nil && a.Limit != rule && s.is("a change keeps what was used") &&
		a.Limit.Algorithm == rule.Algorithm && rule.Algorithm == account.TokenBucket {
		tokens := a.Limit.TokensUsed(a.Used(now))
		a = account.Account{Limit: rule}
		return a, a.Debit(account.Uint128{}, now, min(tokens, rule.Burst))
	}
	return a.Under(rule, now)
}

// forget drops accounts that are not full.
func (s *reference) forget(now int64) {
	switch {
	case s.is("forgets after a minute"):
		for id, a := range s.accounts {
			if now-a.touched > int64(time.Minute) {
				delete(s.accounts, id)
			}
		}
	case s.is("forgets in a crowd") && len(s.accounts) > 1000:
		clear(s.accounts)
	}
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

// answer writes the results and the receipts, and returns the decision.
func (s *reference) answer(
	draws []draw, charges []limiter.Charge, now int64, taken bool,
) limiter.Decision {
	if s.is("writes to charges of the past") {
		for i := range s.seen {
			s.seen[i].Result = limiter.Result{}
		}
	}
	if s.is("writes to charges of the past") {
		s.seen = charges
	}
	var best *draw
	for i := range draws {
		d := &draws[i]
		d.result = s.result(d)
		for j := range charges {
			if c := &charges[j]; c.Key == d.charge.Key {
				c.Result = d.result
				s.receipt(c, d, now, taken)
			}
		}
		if (!d.charge.Shadow || s.is("shadow decides")) && (best == nil || s.before(d, best)) {
			best = d
		}
	}
	if best == nil && len(charges) == 0 && s.is("refuses a request without charges") {
		return limiter.Decision{Outcome: limiter.Deny}
	}
	if best == nil {
		return limiter.Decision{Outcome: limiter.Allow}
	}
	return limiter.Decision{
		Outcome: best.result.Outcome, Budget: best.charge.Key.Budget, Limit: best.charge.Limit,
		Remaining: best.result.Remaining, RetryAfter: best.result.RetryAfter,
		ResetAfter: best.result.ResetAfter,
	}
}

func (s *reference) receipt(c *limiter.Charge, d *draw, now int64, taken bool) {
	if !s.is("a refusal keeps the receipt") || taken {
		c.Receipt = limiter.Receipt{}
	}
	if taken && d.outcome == limiter.Allow || s.is("peek writes a receipt") {
		c.Receipt = limiter.NewReceipt(now, c.Cost, 0)
	}
}

func (s *reference) result(d *draw) limiter.Result {
	a := d.account.Account
	r := limiter.Result{
		Outcome:    d.outcome,
		Remaining:  a.Limit.Remaining(d.used),
		ResetAfter: time.Duration(a.Reset(d.now)),
	}
	if d.outcome == limiter.Deny && d.cost > 0 && d.cost <= a.Limit.Burst {
		r.RetryAfter = s.wait(d)
	}
	return r
}

func (s *reference) wait(d *draw) time.Duration {
	a := d.account.Account
	wait := a.Wait(d.used, d.now, d.cost)
	bucket := a.Limit.Algorithm == account.TokenBucket
	switch {
	case s.is("rounds waits down") && bucket:
		wait = max(wait-1, 1)
	case s.is("rounds waits up to a millisecond"):
		wait = (wait + 999_999) / 1_000_000 * 1_000_000
	case s.is("waits until the whole log is empty") && a.Limit.Algorithm == account.RollingLog:
		wait = a.Reset(d.now)
	case s.is("waits a whole window") && a.Limit.Algorithm == account.FixedWindow:
		wait = int64(a.Limit.Per)
	}
	return time.Duration(wait)
}

func (s *reference) before(d, other *draw) bool {
	a, b := d.account.Limit, other.account.Limit
	switch {
	case s.is("the first charge decides") && d.outcome == other.outcome:
		return false
	case d.outcome != other.outcome:
		return d.outcome > other.outcome
	case d.result.RetryAfter != other.result.RetryAfter && !s.is("the shortest wait decides"):
		return d.result.RetryAfter > other.result.RetryAfter
	case d.result.RetryAfter != other.result.RetryAfter:
		return d.result.RetryAfter < other.result.RetryAfter
	case s.is("the least left decides, whatever the capacity"):
		return d.result.Remaining < other.result.Remaining
	case d.outcome == limiter.Allow:
		more := account.CompareRatios(d.used, a.Capacity(), other.used, b.Capacity())
		if more != 0 {
			return more > 0
		}
	}
	return d.charge.Key.Compare(other.charge.Key) < 0
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
	now = s.advance(now)
	for i := range charges {
		if s.is("settles one by one") {
			if err := s.checkSettle(charges[i : i+1]); err != nil {
				return err
			}
		}
		s.correct(&charges[i], now)
	}
	return nil
}

func (s *reference) checkSettle(charges []limiter.Charge) error {
	err := limiter.CheckSettle(charges)
	var cost *limiter.CostError
	switch {
	case errors.As(err, &cost) && s.is("credits more than was taken"):
		return nil
	case errors.As(err, &cost) && s.is("a credit that is too large consumes the receipt"):
		charges[0].Receipt = limiter.Receipt{}
	case errors.Is(err, limiter.ErrReceipt) && s.is("settles without a receipt"):
		return nil
	case errors.Is(err, limiter.ErrReceipt) && s.is("a missing receipt has another error"):
		return fmt.Errorf("nothing to settle")
	}
	return err
}

func (s *reference) correct(c *limiter.Charge, now int64) {
	if s.prepare(c.Limit) != nil {
		return
	}
	id := s.id(c.Key)
	a := s.accounts[id]
	if a.Limit == nil {
		a.Account, _ = a.Under(s.rules[c.Limit], now)
	}
	at, _, _, _ := c.Receipt.Taken()
	if s.is("corrects the window of now") {
		at = now
	}
	delta := c.Cost
	left := a.Limit.Remaining(a.Used(now))
	capacity := c.Limit.Capacity()
	if s.is("credits above the capacity") && left-delta > capacity {
		a.banked += uint64(left - delta - capacity)
	}
	if s.is("a debit stops at zero") {
		delta = min(delta, left)
	}
	if s.is("loses concurrent corrections") {
		s.mu.Unlock()
		runtime.Gosched()
		s.mu.Lock()
	}
	if s.is("debts have no floor") && delta > 0 {
		a.Debit(a.Used(now), now, uint64(delta))
	} else if delta > math.MinInt64 {
		a.Settle(now, at, delta)
	}
	s.accounts[id] = a
	if !s.is("a receipt can be used twice") {
		c.Receipt = limiter.Receipt{}
	}
}
