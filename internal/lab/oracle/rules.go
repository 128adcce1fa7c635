package oracle

import (
	"math/big"
	"time"

	"github.com/ration-go/ration/limiter"
)

// Rules are what a store may do otherwise than one in memory. The zero Rules are
// those of memory.
type Rules struct {
	// Step is the least time that the store tells apart; 0 means 1 ns. Instants
	// are multiples of it, and waits are rounded up to it.
	Step time.Duration
	// AccountClock says that each account keeps its latest instant (R2), and that
	// only what is written to the account moves it.
	AccountClock bool
	// Unit returns how many units a token has to which a change of limit rounds a
	// balance down (R10); nil means one for each nanosecond of Per.
	Unit func(limiter.Limit) int64
	// Most is the most units that an account can have used after a change of
	// limit; 0 means those of 292 years.
	Most int64
}

func (r *Rules) step() int64 { return max(int64(r.Step), 1) }

func (r *Rules) unit(l limiter.Limit) int64 {
	if r.Unit == nil {
		return int64(l.Per)
	}
	return r.Unit(l)
}

// steps rounds nanoseconds up to whole steps.
func (r *Rules) steps(ns *big.Rat) *big.Int {
	step := integer(r.step())
	whole := ceil(new(big.Rat).Quo(ns, rat(step)))
	return whole.Mul(whole, step)
}
