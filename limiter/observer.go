package limiter

// Observer is told what a limiter decides; package metrics implements it for
// Prometheus. Its methods are called with no lock held, by many goroutines, and
// may call the limiter.
type Observer interface {
	// Configured names the limiter and its budgets, from New and Reload.
	Configured(limiter string, budgets []string)
	// Decided is called for the budget that decided a Take, and for each shadow
	// budget that could not pay.
	Decided(e DecisionEvent)
	// Answered is called by an adapter once for each request that it has seen.
	Answered(e RequestEvent)
}

// DecisionEvent is one budget's part in a decision.
type DecisionEvent struct {
	Limiter string
	Budget  string
	Verdict Verdict
}

// Verdict is the outcome label of a budget's decision.
type Verdict uint8

// The verdicts. NearLimit stands in for an allow that leaves under 20 % of the
// capacity, so the verdicts of the enforced budgets add up to the decisions.
const (
	VerdictAllow Verdict = iota
	VerdictDeny
	VerdictNever
	VerdictShadowDeny
	VerdictNearLimit
	verdicts
)

var verdictNames = [...]string{"allow", "deny", "never", "shadow_deny", "near_limit"}

// String returns the label, such as "near_limit".
func (v Verdict) String() string { return label(verdictNames[:], uint8(v)) }

// Verdicts returns all verdicts.
func Verdicts() []Verdict { return all(verdicts) }

// all returns the labels below end.
func all[T ~uint8](end T) []T {
	labels := make([]T, end)
	for i := range labels {
		labels[i] = T(i)
	}
	return labels
}

// label returns the name of i, or "unknown".
func label(names []string, i uint8) string {
	if int(i) < len(names) {
		return names[i]
	}
	return "unknown"
}

// RequestEvent is one request that an adapter answered or let pass.
type RequestEvent struct {
	Limiter   string
	Transport string // "http" or "grpc"
	Route     string // the registered pattern, or "unmatched"
	Answer    Answer
}

// Answer is the outcome label of a request.
type Answer uint8

// The answers.
const (
	AnswerAllow Answer = iota
	AnswerDeny
	AnswerNever
	AnswerUnauthenticated
	AnswerCanceled
	AnswerErrorLocal
	AnswerErrorOpen
	AnswerErrorClosed
	AnswerSkipped
	answers
)

var answerNames = [...]string{"allow", "deny", "never", "unauthenticated", "canceled",
	"error_local", "error_open", "error_closed", "skipped"}

// String returns the label, such as "unauthenticated".
func (a Answer) String() string { return label(answerNames[:], uint8(a)) }

// Answers returns all answers.
func Answers() []Answer { return all(answers) }

// verdict returns the label of an enforced budget's decision.
func verdict(d Decision) Verdict {
	switch {
	case d.Outcome == Deny:
		return VerdictDeny
	case d.Outcome == Never:
		return VerdictNever
	case d.Remaining < nearLimit(d.Limit.Capacity()):
		return VerdictNearLimit
	default:
		return VerdictAllow
	}
}

// nearLimit returns 20 % of the capacity, rounded up.
func nearLimit(capacity int64) int64 { return capacity/5 + min(capacity%5, 1) }
