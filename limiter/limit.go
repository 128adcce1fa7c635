package limiter

import (
	"fmt"
	"strconv"
	"time"

	"github.com/ration-go/ration/internal/account"
)

// Algorithm says how an account refills.
type Algorithm uint8

const (
	// TokenBucket refills continuously, Tokens per Per, up to its capacity. Over
	// any span T it admits at most Burst + T*Tokens/Per. Tokens that a Reservation
	// gives back in the span are extra; see [Reservation]. The zero value.
	TokenBucket Algorithm = iota
	// FixedWindow admits Tokens in each window; windows are whole multiples of
	// Per since the Unix epoch. Across a boundary up to 2*Tokens can pass within
	// one Per.
	FixedWindow
	// RollingLog admits Tokens in any span of Per, exactly, and remembers every
	// instant at which it admitted something: at most 10,000 Tokens.
	RollingLog

	unlimited
	blocked
)

var algorithmNames = [...]string{
	"token-bucket", "fixed-window", "rolling-log", "unlimited", "blocked",
}

// name returns the word that the text form of a [Limit] uses, such as
// "fixed-window".
func (a Algorithm) name() string {
	if int(a) < len(algorithmNames) {
		return algorithmNames[a]
	}
	return "algorithm(" + strconv.Itoa(int(a)) + ")"
}

// Bounds of a limit.
const (
	// maxFill is 100 years of 365.25 days: with a debt of one more capacity, an
	// account's instants stay within 292 years, the range of a time.Duration.
	maxFill = 876_600 * time.Hour
	// maxLogTokens bounds the entries of a rolling log.
	maxLogTokens = 10_000
)

// Limit is pure, comparable data: how many tokens come back in which time, and
// how many an account can hold. The zero value is not valid; it is neither
// "allow all" nor "deny all".
type Limit struct {
	Algorithm Algorithm
	Tokens    int64         // tokens (or requests) per Per; at least 1
	Per       time.Duration // more than 0
	Burst     int64         // capacity of a token bucket; 0 means Tokens
}

// Unlimited and Blocked are answers of [Budget.LimitFor] and no limits of their
// own: Unlimited skips the budget for this caller, Blocked refuses with [Never].
var (
	Unlimited = Limit{Algorithm: unlimited}
	Blocked   = Limit{Algorithm: blocked}
)

// PerSecond returns a token bucket of n tokens a second that holds n tokens.
func PerSecond(n int64) Limit { return Limit{Tokens: n, Per: time.Second} }

// PerMinute returns a token bucket of n tokens a minute that holds n tokens.
func PerMinute(n int64) Limit { return Limit{Tokens: n, Per: time.Minute} }

// PerHour returns a token bucket of n tokens an hour that holds n tokens.
func PerHour(n int64) Limit { return Limit{Tokens: n, Per: time.Hour} }

// PerDay returns a token bucket of n tokens in 24 hours that holds n tokens.
func PerDay(n int64) Limit { return Limit{Tokens: n, Per: 24 * time.Hour} }

// Capacity returns the most tokens that an account can hold: Burst, or Tokens
// where Burst is 0. A cost above it can never be paid.
func (l Limit) Capacity() int64 {
	if l.Burst == 0 {
		return l.Tokens
	}
	return l.Burst
}

// Validate returns nil, or a *[ConfigError] that names the first field that is
// wrong, its value and what would be right. A time to fill from empty of more
// than 100 years is wrong for every algorithm.
func (l Limit) Validate() error {
	switch {
	case l.Algorithm == unlimited || l.Algorithm == blocked:
		return wrong("Limit", l, "only LimitFor may answer "+l.Algorithm.name())
	case l.Algorithm > RollingLog:
		return wrong("Limit.Algorithm", l.Algorithm,
			"want TokenBucket, FixedWindow or RollingLog")
	case l.Tokens < 1:
		return wrong("Limit.Tokens", l.Tokens, "want at least 1")
	case l.Per <= 0:
		return wrong("Limit.Per", l.Per, "want more than 0")
	case l.Burst < 0:
		return wrong("Limit.Burst", l.Burst, "want at least 1, or 0 for Tokens")
	case l.Algorithm != TokenBucket && l.Burst != 0 && l.Burst != l.Tokens:
		return wrong("Limit.Burst", l.Burst, fmt.Sprintf(
			"a %s holds Tokens: want 0 or %d", l.Algorithm.name(), l.Tokens))
	case l.Algorithm == RollingLog && l.Tokens > maxLogTokens:
		return wrong("Limit.Tokens", l.Tokens, fmt.Sprintf(
			"a rolling-log holds at most %d; a token-bucket has no such bound", maxLogTokens))
	case account.FillTime(l.Tokens, int64(l.Per), l.Capacity()) > int64(maxFill):
		return wrong("Limit", l,
			"takes more than 100 years to fill: want a smaller Burst or Per, or more Tokens")
	}
	return nil
}

// prepare returns the limit as the arithmetic wants it; l is valid.
func (l Limit) prepare() account.Limit {
	return account.NewLimit(account.Algorithm(l.Algorithm), l.Tokens, int64(l.Per), l.Capacity())
}
