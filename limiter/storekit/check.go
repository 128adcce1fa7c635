package storekit

import (
	"math"

	"github.com/ration-go/ration/limiter"
)

// The reasons of a [limiter.StoreError].
const (
	Timeout     = "timeout"     // it did not run before the store's deadline
	Unavailable = "unavailable" // it did not run
	Ambiguous   = "ambiguous"   // it may have run, or not
	Other       = "other"       // unknown, also whether it ran
)

// Reasons returns all reasons.
func Reasons() []string { return []string{Timeout, Unavailable, Ambiguous, Other} }

// CheckTake returns a *[limiter.CostError] for the first charge whose cost is
// negative. A store calls it before it reads any state (R7).
func CheckTake(charges []limiter.Charge) error {
	for i := range charges {
		if cost := charges[i].Cost; cost < 0 {
			return &limiter.CostError{Cost: cost, Max: math.MaxInt64}
		}
	}
	return nil
}

// CheckSettle returns [limiter.ErrReceipt] for the first charge that has no
// receipt, or a *[limiter.CostError] for one that credits more than was taken. A
// store calls it before it changes any state (R9).
func CheckSettle(charges []limiter.Charge) error {
	for i := range charges {
		c := &charges[i]
		if !c.Receipt.Valid {
			return limiter.ErrReceipt
		}
		if c.Cost < -c.Receipt.Taken {
			return &limiter.CostError{Cost: c.Cost, Min: -c.Receipt.Taken, Max: math.MaxInt64}
		}
	}
	return nil
}
