package model

import (
	"fmt"
	"math/big"

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
	taken   []entry // not given back by a log
}

// pass moves the ledger to the instant of a request.
func (l *ledger) pass(m *Store, at int64, c limiter.Charge) {
	a, now := m.at(c.Key, c.Limit, m.clock(at))
	switch {
	case l.now == nil || now.Cmp(l.now) != 0 && a.full():
		*l = ledger{given: new(big.Rat)}
	case a.limit.Algorithm == limiter.TokenBucket:
		back := rat(sub(now, l.now))
		l.given.Add(l.given, back.Mul(back, a.rate()))
	case a.limit.Algorithm == limiter.RollingLog:
		for len(l.taken) > 0 && gone(a.limit, l.taken[0].at, now) {
			l.given.Add(l.given, rat(l.taken[0].count))
			l.taken = l.taken[1:]
		}
	}
	l.now = now
	l.largest = max(l.largest, c.Limit.Capacity())
}

func (l *ledger) take(cost int64) {
	l.allowed += cost
	l.taken = append(l.taken, entry{l.now, integer(cost)})
}

func (l *ledger) check() error {
	most := new(big.Rat).Add(rat(integer(l.largest)), l.given)
	if most.Cmp(rat(integer(l.allowed))) < 0 {
		return fmt.Errorf("%d tokens were allowed since the account was full; the largest capacity "+
			"and what was given back are %v", l.allowed, most)
	}
	return nil
}
