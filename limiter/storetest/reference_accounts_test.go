package storetest_test

import (
	"math"
	"strings"
	"time"

	"github.com/ration-go/ration/internal/account"
	"github.com/ration-go/ration/limiter"
)

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
		return spent(rule, now, min(tokens, rule.Burst))
	}
	changed, used := a.Under(rule, now)
	if used == (account.Uint128{}) || a.Limit == rule {
		return changed, used
	}
	bucket, becomes := a.Limit.Algorithm == account.TokenBucket, rule.Algorithm == account.TokenBucket
	switch {
	case s.is("carries what was used of a bucket") && bucket != becomes:
		return spent(rule, now, a.Limit.TokensUsed(a.Used(now)))
	case s.is("forgets that a window was a bucket") && !becomes:
		return spent(rule, now, used.Lo)
	}
	return changed, used
}

// spent returns an account of which so many tokens were taken now.
func spent(rule *account.Limit, now int64, tokens uint64) (account.Account, account.Uint128) {
	a, used := account.Account{}.Under(rule, now)
	used = a.Debit(used, now, tokens)
	return a, used
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
