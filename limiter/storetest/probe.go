package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ration-go/ration/limiter"
)

// start is the first instant of every rule: a whole hour since the epoch.
var start = time.Unix(1_800_000_000, 0)

// clock is a virtual clock, safe for concurrent use.
type clock struct{ ns atomic.Int64 }

func (c *clock) now() time.Time     { return time.Unix(0, c.ns.Load()) }
func (c *clock) set(t time.Time)    { c.ns.Store(t.UnixNano()) }
func (c *clock) at(d time.Duration) { c.set(start.Add(d)) }

// probe is a store under test and the clock that it reads. Its verbs stop the
// rule where the store answers an error or something else than expected.
type probe struct {
	t     testing.TB
	h     Harness
	step  time.Duration // the store's resolution
	clock *clock
	store limiter.Store
}

func newProbe(t testing.TB, h Harness) *probe {
	p := &probe{t: t, h: h, step: h.Resolution, clock: &clock{}}
	p.clock.at(0)
	p.store = h.New(t, p.clock.now)
	return p
}

// fresh returns a probe of another store, its clock at the start.
func (p *probe) fresh() *probe { return newProbe(p.t, p.h) }

// after moves the clock; a negative d is a step back.
func (p *probe) after(d time.Duration) { p.clock.ns.Add(int64(d)) }

// holds reports whether the store accepts the limit.
func (p *probe) holds(l limiter.Limit) bool {
	err := p.store.Check(l)
	var config *limiter.ConfigError
	if err != nil && !errors.As(err, &config) {
		violated("Check(%v) = %v, want nil or a *limiter.ConfigError", l, err)
	}
	return err == nil
}

// on returns a charge on the account of a user in the budget "requests".
func on(user string, l limiter.Limit, cost int64) limiter.Charge {
	c := in("requests", l, cost)
	c.Key.Principal.ID = user
	return c
}

// in returns a charge on alice's account in a budget.
func in(budget string, l limiter.Limit, cost int64) limiter.Charge {
	principal := limiter.Principal{Kind: "user", ID: "alice"}
	return limiter.Charge{
		Key: limiter.Key{Budget: budget, Principal: principal}, Limit: l, Cost: cost,
	}
}

func shadow(c limiter.Charge) limiter.Charge {
	c.Shadow = true
	return c
}

// take returns the decision; the charges get their results and receipts.
func (p *probe) take(charges ...limiter.Charge) limiter.Decision {
	d, _ := p.taken(charges...)
	return d
}

// taken is take that also returns the charges as the store has written them.
func (p *probe) taken(charges ...limiter.Charge) (limiter.Decision, []limiter.Charge) {
	d, err := p.store.Take(context.Background(), charges)
	if err != nil {
		violated("Take(%s) = %v, want no error", describe(charges), err)
	}
	return d, charges
}

func (p *probe) peek(charges ...limiter.Charge) limiter.Decision {
	d, err := p.store.Peek(context.Background(), charges)
	if err != nil {
		violated("Peek(%s) = %v, want no error", describe(charges), err)
	}
	return d
}

// allowed takes the charges and stops the rule unless that is allowed.
func (p *probe) allowed(charges ...limiter.Charge) []limiter.Charge {
	d, charges := p.taken(charges...)
	p.outcome(d, limiter.Allow, charges)
	return charges
}

// denied takes the charges, stops the rule unless the outcome is Deny, and
// returns the promised wait.
func (p *probe) denied(charges ...limiter.Charge) time.Duration {
	d, charges := p.taken(charges...)
	p.outcome(d, limiter.Deny, charges)
	return d.RetryAfter
}

func (p *probe) outcome(d limiter.Decision, want limiter.Outcome, charges []limiter.Charge) {
	if d.Outcome != want {
		violated("%s at %v: %+v, want %v", describe(charges), p.elapsed(), d, want)
	}
}

func (p *probe) elapsed() time.Duration { return p.clock.now().Sub(start) }

// left stops the rule unless the account of c has want whole tokens left now.
func (p *probe) left(want int64, c limiter.Charge) {
	c.Cost = 0
	charges := []limiter.Charge{c}
	p.peek(charges...)
	if got := charges[0].Result.Remaining; got != want {
		violated("%d tokens left in %s at %v, want %d", got, name(c.Key), p.elapsed(), want)
	}
}

// correct settles the charge by delta tokens.
func (p *probe) correct(c *limiter.Charge, delta int64) {
	if err := p.settle(c, delta); err != nil {
		violated("Settle of %d on %s = %v, want no error", delta, name(c.Key), err)
	}
}

func (p *probe) settle(c *limiter.Charge, delta int64) error {
	one := []limiter.Charge{*c}
	one[0].Cost = delta
	err := p.store.Settle(context.Background(), one)
	c.Receipt = one[0].Receipt
	return err
}

// equal stops the rule unless the answers are the same.
func equal[T comparable](what string, got, want T) {
	if got != want {
		violated("%s: %+v, want %+v", what, got, want)
	}
}

// wrong stops the rule unless err is a T.
func wrong[T error](what string, err error) {
	var want T
	if !errors.As(err, &want) {
		violated("%s: error %v, want a %T", what, err, want)
	}
}

// noReceipt stops the rule unless err is ErrReceipt.
func noReceipt(what string, err error) {
	if !errors.Is(err, limiter.ErrReceipt) {
		violated("%s: error %v, want limiter.ErrReceipt", what, err)
	}
}

// name writes a key for a reader.
func name(k limiter.Key) string {
	return fmt.Sprintf("%s/%s", k.Budget, k.Principal.ID)
}

// describe writes charges for a reader.
func describe(charges []limiter.Charge) string {
	parts := make([]string, len(charges))
	for i, c := range charges {
		parts[i] = fmt.Sprintf("%s costs %d of %v", name(c.Key), c.Cost, c.Limit)
		if c.Shadow {
			parts[i] += " in shadow"
		}
	}
	return strings.Join(parts, ", ")
}
