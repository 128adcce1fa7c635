package limiter

import "time"

// Outcome is what becomes of a request. The zero value is none of them.
type Outcome uint8

const (
	// Allow: the cost was paid.
	Allow Outcome = iota + 1
	// Deny: the cost can be paid after RetryAfter, and not before.
	Deny
	// Never: the cost is above the capacity and can never be paid.
	Never
)

// String returns "allow", "deny", "never", or "none" for the zero value.
func (o Outcome) String() string {
	switch o {
	case Allow:
		return "allow"
	case Deny:
		return "deny"
	case Never:
		return "never"
	default:
		return "none"
	}
}

// Decision is the answer to one request: its outcome, and the state of the
// budget that decided. Any never decides, else the deny with the longest wait,
// else the budget with the least left relative to its capacity after the
// debit; ties go by budget name, then key.
type Decision struct {
	Outcome    Outcome
	Budget     string        // the budget that decided; empty where none applied
	Limit      Limit         // its limit
	Remaining  int64         // whole tokens left in it, rounded down, at least 0
	RetryAfter time.Duration // exact wait until the request, alone, is allowed; 0 unless Deny
	ResetAfter time.Duration // until it is full again (fixed window: until the window ends)
}

// valid reports whether d is a decision of a store.
func (d *Decision) valid() bool { return Allow <= d.Outcome && d.Outcome <= Never }

// Allowed reports whether the outcome is [Allow].
func (d Decision) Allowed() bool { return d.Outcome == Allow }
