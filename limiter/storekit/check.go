package storekit

import (
	"context"
	"math"

	"github.com/ration-go/ration/limiter"
)

// The reasons of a [limiter.StoreError].
const (
	Timeout     = "timeout"     // it did not run before the store's deadline
	Overload    = "overload"    // it did not run: too many requests wait for the store
	Unavailable = "unavailable" // it did not run
	Ambiguous   = "ambiguous"   // it may have run, or not
	Other       = "other"       // unknown, also whether it ran
)

// ErrDeadline is what a store returns for a caller whose own deadline comes too early
// for an answer, and for whom nothing ran. It matches [context.DeadlineExceeded]. No
// failure policy answers for it, even before the caller's context ends; any other
// error of the store while that context lives is the store's.
var ErrDeadline error = callerDeadline{}

type callerDeadline struct{}

func (callerDeadline) Error() string {
	return "store: the caller's deadline comes before an answer can"
}

// Is reports whether target is context.DeadlineExceeded.
func (callerDeadline) Is(target error) bool { return target == context.DeadlineExceeded }

// CallerDeadline marks the error for package limiter.
func (callerDeadline) CallerDeadline() {}

// Reasons returns all reasons.
func Reasons() []string { return []string{Timeout, Overload, Unavailable, Ambiguous, Other} }

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
