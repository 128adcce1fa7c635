package model

import (
	"fmt"
	"math/big"

	"github.com/ration-go/ration/internal/lab/oracle"
	"github.com/ration-go/ration/limiter"
)

// Conserves drives a store with takes on one account, under limits that change,
// and reports if more is allowed than there was: from full on, at most the
// largest capacity shown and what time gave back. Time gives a bucket its rate, and
// a log what was taken Per ago; a window that ends is full. If no time passes,
// nothing is given back. The generator's shape has OneKey, Decisions and Forward.
func (r Rules) Conserves(f Factory, g *Generator, steps int) error {
	d := newDriver(f, r)
	var l ledger
	var last limiter.Decision
	for range steps {
		s := g.Next(last)
		c := s.Charges[0]
		l.pass(d.model, s.At, c)
		var err error
		if last, err = d.step(s); err != nil {
			return err
		}
		if s.Op == Take && last.Allowed() {
			l.take(c.Cost)
		}
		if err := l.check(); err != nil {
			return fmt.Errorf("%w in the stream\n%v", err, d.done)
		}
	}
	return nil
}

// ledger is what an account was given and has allowed since it was full.
type ledger struct {
	now     *big.Int // nil before the first request
	largest int64    // capacity shown
	given   *big.Rat
	allowed int64
	taken   []taken // not given back by a log
}

// taken is what was allowed at one instant.
type taken struct {
	at   *big.Int
	cost int64
}

func tokens(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

// pass moves the ledger to the instant of a request.
func (l *ledger) pass(m *oracle.Store, at int64, c limiter.Charge) {
	a, now := m.At(c.Key, c.Limit, m.Now(at))
	switch {
	case l.now == nil || now.Cmp(l.now) != 0 && a.Full():
		*l = ledger{given: new(big.Rat)}
	case a.Limit.Algorithm == limiter.TokenBucket:
		back := new(big.Rat).SetInt(new(big.Int).Sub(now, l.now))
		l.given.Add(l.given, back.Mul(back, a.Rate()))
	case a.Limit.Algorithm == limiter.RollingLog:
		for len(l.taken) > 0 && oracle.Gone(a.Limit, l.taken[0].at, now) {
			l.given.Add(l.given, tokens(l.taken[0].cost))
			l.taken = l.taken[1:]
		}
	}
	l.now = now
	l.largest = max(l.largest, c.Limit.Capacity())
}

func (l *ledger) take(cost int64) {
	l.allowed += cost
	l.taken = append(l.taken, taken{l.now, cost})
}

func (l *ledger) check() error {
	most := new(big.Rat).Add(tokens(l.largest), l.given)
	if most.Cmp(tokens(l.allowed)) < 0 {
		return fmt.Errorf("%d tokens were allowed since the account was full; the largest capacity "+
			"and what was given back are %v", l.allowed, most)
	}
	return nil
}
