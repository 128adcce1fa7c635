package limiter

import (
	"errors"
	"fmt"
	"math"
)

var (
	// ErrNobody is returned where a budget needs a principal and the caller has
	// none: a Kind or an ID is empty. It refuses, and no failure policy applies.
	ErrNobody = errors.New("limiter: a principal is required and the caller has none")
	// ErrReceipt is returned by Settle for a charge without a receipt: nothing
	// was taken for it, or it is settled already.
	ErrReceipt = errors.New("limiter: the charge has no receipt: not taken, or settled already")
	// ErrNever is returned by [Bucket.Wait] for a cost above the capacity.
	ErrNever = errors.New("limiter: the cost is above the capacity and can never be paid")
)

// ConfigError says which field of a configuration or of an argument is wrong,
// its value and what would be right.
type ConfigError struct {
	Field  string // such as "Budgets[2].Limit.Per"
	Value  any
	Reason string
}

// Error returns "limiter: Field = Value: Reason".
func (e *ConfigError) Error() string {
	if e.Value == nil {
		return fmt.Sprintf("limiter: %s: %s", e.Field, e.Reason)
	}
	if text, ok := e.Value.(string); ok {
		return fmt.Sprintf("limiter: %s = %q: %s", e.Field, text, e.Reason)
	}
	return fmt.Sprintf("limiter: %s = %v: %s", e.Field, e.Value, e.Reason)
}

// within returns err with its field below prefix.
func within(prefix string, err error) error {
	var config *ConfigError
	if errors.As(err, &config) {
		return &ConfigError{prefix + "." + config.Field, config.Value, config.Reason}
	}
	return fmt.Errorf("limiter: %s: %w", prefix, err)
}

// CostError says that a cost, or a correction, is out of its range. It is the
// caller's mistake: it refuses before any state is read.
type CostError struct {
	Cost     int64
	Min, Max int64
}

// Error names the cost and its range.
func (e *CostError) Error() string {
	if e.Max == math.MaxInt64 {
		return fmt.Sprintf("limiter: cost = %d: want at least %d", e.Cost, e.Min)
	}
	return fmt.Sprintf("limiter: cost = %d: want %d to %d", e.Cost, e.Min, e.Max)
}

// checkCost returns a *CostError for a negative cost.
func checkCost(cost int64) error {
	if cost < 0 {
		return &CostError{Cost: cost, Max: math.MaxInt64}
	}
	return nil
}

// StoreReason says why a store could not decide.
type StoreReason string

// The reasons, as the metric label "reason" spells them.
const (
	Timeout     StoreReason = "timeout"     // no answer within the store's deadline
	Unavailable StoreReason = "unavailable" // nothing ran
	Ambiguous   StoreReason = "ambiguous"   // it may have been debited, or not
	Other       StoreReason = "other"
)

// StoreError says that a store could not decide. The Decision beside it is the
// answer of the failure policy already.
type StoreError struct {
	Reason StoreReason
	Err    error
}

// Error names the reason and the cause.
func (e *StoreError) Error() string {
	return fmt.Sprintf("limiter: store %s: %v", e.Reason, e.Err)
}

// Unwrap returns the cause.
func (e *StoreError) Unwrap() error { return e.Err }
