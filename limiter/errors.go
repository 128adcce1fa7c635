package limiter

import (
	"cmp"
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
	Field   string // such as `Budgets[2] ("orders").Limit.Per`
	Value   any    // nil: the error shows no value
	Reason  string
	Package string // the package that the field belongs to; empty means "limiter"
}

// Error returns "Package: Field = Value: Reason".
func (e *ConfigError) Error() string {
	field := cmp.Or(e.Package, "limiter") + ": " + e.Field
	if e.Value == nil {
		return field + ": " + e.Reason
	}
	if text, ok := e.Value.(string); ok {
		return fmt.Sprintf("%s = %q: %s", field, text, e.Reason)
	}
	return fmt.Sprintf("%s = %v: %s", field, e.Value, e.Reason)
}

// wrong returns an error for a field of this package.
func wrong(field string, value any, reason string) *ConfigError {
	return &ConfigError{Field: field, Value: value, Reason: reason}
}

// errZero is the error of a value that was not made by its constructor.
func errZero(typ, constructor string) error {
	return wrong(typ, nil, "the zero value is not usable: want one made by "+constructor)
}

// within returns err with its field below prefix.
func within(prefix string, err error) error {
	var config *ConfigError
	if errors.As(err, &config) {
		return wrong(prefix+"."+config.Field, config.Value, config.Reason)
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

// The reasons of a StoreError after which a Settle may be tried again; package
// storekit has all of them.
const (
	timeout     = "timeout"
	overload    = "overload"
	unavailable = "unavailable"
)

// StoreError says that a store could not decide. The Decision beside it is the
// answer of the failure policy already.
type StoreError struct {
	// Reason is the metric label: "timeout", "overload", "unavailable", "ambiguous" or
	// "other". Package storekit says what each means.
	Reason string
	Err    error // the cause
	// Policy is the one that made the Decision: [Local], [Open] or [Closed]. Only a
	// Limiter sets it.
	Policy FailurePolicy

	store *StoreError // as the store returned it
}

// Error names the reason and the cause.
func (e *StoreError) Error() string {
	return fmt.Sprintf("limiter: store %s: %v", e.Reason, e.Err)
}

// Unwrap returns the error of the store, if it returned a *StoreError itself, and
// otherwise the cause.
func (e *StoreError) Unwrap() error {
	if e.store != nil {
		return e.store
	}
	return e.Err
}

// answeredLocally reports whether a decision with the error err is that of the local side
// of a store.
func answeredLocally(err error) bool {
	store, failed := errors.AsType[*StoreError](err)
	return failed && store.Policy == Local
}
