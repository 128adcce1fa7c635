package limiter

import "time"

// GateResult is the answer of [Config].Gate for one request. The zero GateResult
// lets the budgets decide.
type GateResult struct {
	// Exempt allows the request without any budget; adapters count it as skipped.
	Exempt bool
	// Blocked refuses the request before any budget. It counts before Exempt.
	Blocked bool
	// RetryAfter is how long Blocked holds, as the decision states it. 0 means
	// that no end is known: the outcome is then [Never].
	RetryAfter time.Duration
}

// decision returns the answer to a request that the gate has decided.
func (g GateResult) decision() Decision {
	switch {
	case g.Blocked && g.RetryAfter > 0:
		return Decision{Outcome: Deny, Limit: Blocked, RetryAfter: g.RetryAfter}
	case g.Blocked:
		return Decision{Outcome: Never, Limit: Blocked}
	default:
		return Decision{Outcome: Allow}
	}
}
