package storetest_test

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/ration-go/ration/internal/lab/oracle"
	"github.com/ration-go/ration/limiter"
)

// What the oracle is shown.

// instant returns the instant of a request.
func (s *reference) instant(now int64, charges []limiter.Charge) int64 {
	windows := len(charges) > 0 && charges[0].Limit.Algorithm == limiter.FixedWindow
	switch {
	case s.is("a clock that goes back drains"):
		s.oracle.Latest = nil
	case s.is("a clock that goes back credits") && s.oracle.Latest != nil:
		if latest := s.oracle.Latest.Int64(); now < latest {
			return latest + (latest - now)
		}
	case s.is("windows begin with the first request") && windows:
		key := charges[0].Key
		if _, known := s.first[key]; !known {
			s.first[key] = now
		}
		s.oracle.Latest = nil
		return now - s.first[key]
	case s.is("windows are rounded towards zero") && windows && now < 0:
		s.oracle.Latest = nil
		return now + int64(charges[0].Limit.Per) - 1
	case s.is("windows are rounded towards zero"):
		s.oracle.Latest = nil
	}
	return now
}

// show returns the charges for the oracle, and spoils the accounts that they draw on.
func (s *reference) show(now int64, charges []limiter.Charge, take bool) []limiter.Charge {
	shown := slices.Clone(charges)
	for i := range shown {
		c := &shown[i]
		c.Key, c.Limit = s.key(c.Key), s.limit(c.Limit)
		c.Shadow = c.Shadow && !s.is("shadow refuses")
		s.repeat(shown[:i], c)
		s.remember(c.Key)
		s.forget(now, c.Key)
		if c.Limit.Validate() == nil {
			s.spoil(now, c)
			s.recost(now, c, take)
		}
	}
	return shown
}

// key returns what an account is filed under.
func (s *reference) key(k limiter.Key) limiter.Key {
	p := &k.Principal
	switch s.fault {
	case "joins keys with a colon":
		joined := strings.Join([]string{p.Kind, p.Tenant, p.ID, k.Route, k.Workload}, ":")
		return limiter.Key{Budget: k.Budget, Workload: joined}
	case "ignores the case of keys":
		p.ID = strings.ToLower(p.ID)
	case "cuts long keys":
		p.ID = p.ID[:min(len(p.ID), 256)]
	case "makes keys valid UTF-8":
		p.ID = strings.ToValidUTF8(p.ID, "\ufffd")
	case "ignores the kind":
		p.Kind = ""
	case "keys are pointers":
		s.serial++
		k.Workload = fmt.Sprint(k.Workload, s.serial)
	}
	return k
}

// limit returns the limit that counts.
func (s *reference) limit(l limiter.Limit) limiter.Limit {
	if l.Validate() != nil {
		if s.is("takes limits that are not valid") {
			return limiter.PerSecond(5)
		}
		return l
	}
	switch tokens := time.Duration(l.Tokens); {
	case s.is("rounds the time of a token") && l.Algorithm == limiter.TokenBucket && l.Per > tokens:
		l.Per = l.Per / tokens * tokens
	case s.is("a log keeps its boundary") && l.Algorithm == limiter.RollingLog:
		l.Per++
	case s.is("a log forgets early") && l.Algorithm == limiter.RollingLog:
		l.Per--
	}
	return l
}

// repeat changes a charge whose key appears before.
func (s *reference) repeat(before []limiter.Charge, c *limiter.Charge) {
	i := slices.IndexFunc(before, func(b limiter.Charge) bool { return b.Key == c.Key })
	switch {
	case i < 0:
	case s.is("judges a key that appears twice twice"):
		c.Cost = 0
	case s.is("one key may have two limits"):
		c.Limit, c.Shadow = before[i].Limit, before[i].Shadow
	}
}

// remember keeps the account of a key as it is before the request.
func (s *reference) remember(k limiter.Key) {
	if _, repeated := s.before[k]; repeated {
		return
	}
	s.before[k] = nil
	if a, known := s.oracle.Accounts[k]; known {
		s.before[k] = &a
	}
}

// restore makes the accounts of the charges what they were before the request.
func (s *reference) restore(shown []limiter.Charge) {
	for i := range shown {
		k := shown[i].Key
		if a := s.before[k]; a != nil {
			s.oracle.Accounts[k] = *a
		} else {
			delete(s.oracle.Accounts, k)
		}
	}
}

// forget drops accounts that are not full.
func (s *reference) forget(now int64, k limiter.Key) {
	switch {
	case s.is("forgets after a minute") && now-s.touched[k] > int64(time.Minute):
		delete(s.oracle.Accounts, k)
	case s.is("forgets if there are many") && len(s.oracle.Accounts) > 1000:
		clear(s.oracle.Accounts)
	}
}

// spoil changes the account of a charge before the charge is decided.
func (s *reference) spoil(now int64, c *limiter.Charge) {
	old, known := s.oracle.Accounts[c.Key]
	rule := oracle.Normal(c.Limit)
	if !known {
		if s.is("starts empty") {
			s.set(now, c, c.Limit.Capacity())
		}
		return
	}
	at := big.NewInt(s.oracle.Now(now))
	was := old.Refilled(at)
	switch algorithm := old.Limit.Algorithm; {
	case s.is("hoards while idle") && was.Full():
		s.banked[c.Key] = 1
	case s.is("Burst spelled out is another limit") && s.given[c.Key] != c.Limit &&
		old.Limit == rule:
		delete(s.oracle.Accounts, c.Key)
	case old.Limit == rule:
	case s.is("a new limit refills"),
		s.is("another algorithm refills") && algorithm != rule.Algorithm,
		s.is("a new capacity refills a window") && algorithm == rule.Algorithm &&
			algorithm != limiter.TokenBucket:
		delete(s.oracle.Accounts, c.Key)
	case s.is("a full account keeps its old tokens") && was.Full():
		s.set(now, c, max(rule.Burst-old.Limit.Burst, 0))
	case !was.Full():
		s.carry(now, c, was)
	}
}

// carry changes the limit of an account that is not full.
func (s *reference) carry(now int64, c *limiter.Charge, was oracle.Account) {
	spent := new(big.Int).Div(was.Spent().Num(), was.Spent().Denom()).Int64()
	bucket := was.Limit.Algorithm == limiter.TokenBucket
	becomes := c.Limit.Algorithm == limiter.TokenBucket
	switch {
	case s.is("a change keeps what was used") && bucket && becomes:
		s.set(now, c, min(spent, c.Limit.Capacity()))
	case s.is("carries what was used of a bucket") && bucket != becomes:
		s.set(now, c, spent)
	case s.is("forgets that a window was a bucket") && !becomes:
		a, _ := s.account(now, c)
		a.Carried = nil
		s.oracle.Accounts[c.Key] = a
	}
}

// set replaces the account of a charge by one of which so much is used.
func (s *reference) set(now int64, c *limiter.Charge, used int64) {
	delete(s.oracle.Accounts, c.Key)
	full, at := s.account(now, c)
	s.oracle.Accounts[c.Key] = full.Debited(big.NewInt(used), at)
}

// recost changes the cost of a charge.
func (s *reference) recost(now int64, c *limiter.Charge, take bool) {
	capacity := c.Limit.Capacity()
	switch banked := s.banked[c.Key]; {
	case s.is("costs are 32 bits"):
		c.Cost &= math.MaxUint32
	case s.is("checks costs only where it must pay"):
		c.Cost = max(c.Cost, 0)
	case s.is("a negative cost credits") && c.Cost < 0:
		c.Cost = 0
		delete(s.oracle.Accounts, c.Key)
	case s.is("allows above the capacity when full") && c.Cost > capacity:
		if s.left(now, c) == capacity {
			c.Cost = capacity
		}
	case banked > 0:
		left := s.left(now, c)
		if more := c.Cost - left; more > 0 && more <= banked {
			c.Cost = left
			if take {
				s.banked[c.Key] -= more
			}
		}
	}
}

// misjudges returns the outcome of a fault that judges a single charge wrongly.
func (s *reference) misjudges(now int64, shown []limiter.Charge) (limiter.Outcome, bool) {
	if len(shown) != 1 || shown[0].Limit.Validate() != nil {
		return 0, false
	}
	c := &shown[0]
	cost, capacity := c.Cost, c.Limit.Capacity()
	switch s.fault {
	case "never at the capacity":
		return limiter.Never, cost == capacity
	case "denies the last token":
		return limiter.Deny, cost > 0 && cost == s.left(now, c)
	case "denies above the capacity":
		return limiter.Deny, cost > capacity
	case "denies cost 0 of an empty account":
		return limiter.Deny, cost == 0 && s.left(now, c) == 0
	}
	return 0, false
}

// What the oracle has stored.

// change carries accounts over to the limits of the charges.
func (s *reference) change(now int64, shown []limiter.Charge) {
	for i := range shown {
		c := &shown[i]
		if _, known := s.oracle.Accounts[c.Key]; known {
			s.oracle.Accounts[c.Key], _ = s.account(now, c)
		}
	}
}

func (s *reference) afterAllowed(now int64, shown []limiter.Charge) {
	for i := range shown {
		c := &shown[i]
		s.touched[c.Key], s.given[c.Key] = now, c.Limit
		a, known := s.oracle.Accounts[c.Key]
		switch {
		case s.is("drops the remainder") && known && c.Limit.Algorithm == limiter.TokenBucket:
			whole := new(big.Int).Div(a.Balance.Num(), a.Balance.Denom())
			a.Balance = new(big.Rat).SetInt(whole)
			s.oracle.Accounts[c.Key] = a
		case s.is("shadow is not debited") && c.Shadow:
			s.restore(shown[i : i+1])
		}
	}
}

func (s *reference) afterRefused(now int64, shown []limiter.Charge, earlier *big.Int) {
	switch s.fault {
	case "refused requests leave no instant":
		s.oracle.Latest = earlier
	case "a refusal keeps the old limit":
		s.restore(shown)
	}
	for i := range shown {
		c := &shown[i]
		switch s.fault {
		case "refusals create accounts":
			s.oracle.Accounts[c.Key], _ = s.account(now, c)
		case "refusals are charged":
			a, at := s.account(now, c)
			s.oracle.Accounts[c.Key] = a.Settled(big.NewInt(1), at, at)
		case "refusals give back":
			a, at := s.account(now, c)
			s.oracle.Accounts[c.Key] = a.Settled(big.NewInt(-1), at, at)
		case "refusals charge the others":
			if c.Result.Outcome == limiter.Allow {
				s.debit(now, c)
			}
		case "debits one budget before it asks the next":
			if c.Result.Outcome != limiter.Allow {
				return
			}
			s.debit(now, c)
		}
	}
}

// correct settles one charge.
func (s *reference) correct(now int64, given *limiter.Charge) {
	c := *given
	c.Key, c.Limit = s.key(c.Key), s.limit(c.Limit)
	if c.Limit.Validate() != nil {
		return
	}
	left := s.left(now, &c)
	switch s.fault {
	case "settles without a receipt", "credits more than was taken":
		c.Receipt = limiter.Receipt{At: now, Taken: math.MaxInt64, Valid: true}
	case "corrects the window of now":
		c.Receipt.At = now
	case "forgets late debits":
		a, at := s.account(now, &c)
		if !a.Kept(big.NewInt(c.Receipt.At), at) {
			c.Cost = min(c.Cost, 0)
		}
	case "credits above the capacity":
		s.banked[c.Key] += max(left-c.Cost-c.Limit.Capacity(), 0)
	case "a debit stops at zero":
		c.Cost = min(c.Cost, left)
	case "loses concurrent corrections":
		read, known := s.oracle.Accounts[c.Key]
		if s.yield(); known {
			s.oracle.Accounts[c.Key] = read
		}
	}
	if s.is("debts have no floor") && c.Cost > 0 {
		s.debit(now, &c)
	} else {
		_ = s.oracle.Settle(now, []limiter.Charge{c})
	}
	if !s.is("a receipt can be used twice") {
		given.Receipt = limiter.Receipt{}
	}
}
