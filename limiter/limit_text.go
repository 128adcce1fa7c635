package limiter

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// String returns the text form: "100/1m", "100/1m burst=20",
// "100/1m fixed-window", "unlimited". Per is written as time.Duration writes it,
// without trailing zero units.
func (l Limit) String() string {
	if l.Algorithm == unlimited || l.Algorithm == blocked {
		return l.Algorithm.name()
	}
	text := strconv.FormatInt(l.Tokens, 10) + "/" + shortDuration(l.Per)
	if l.Algorithm != TokenBucket {
		text += " " + l.Algorithm.name()
	}
	if l.Burst != 0 {
		text += " burst=" + strconv.FormatInt(l.Burst, 10)
	}
	return text
}

// shortDuration writes 1h0m0s as 1h.
func shortDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// MarshalText returns the text form of a valid limit, of [Unlimited] or of
// [Blocked]; else the error of Validate.
func (l Limit) MarshalText() ([]byte, error) {
	if l.Algorithm != unlimited && l.Algorithm != blocked {
		if err := l.Validate(); err != nil {
			return nil, err
		}
	}
	return []byte(l.String()), nil
}

// UnmarshalText reads the text form that [Limit.String] writes, with any
// duration that [time.ParseDuration] reads. A text that is not of the form, or
// whose limit is not valid, is a *[ConfigError] that says what would be right, and
// leaves l as it is. Days are not a unit: write "100/24h".
func (l *Limit) UnmarshalText(text []byte) error {
	parsed, err := parseLimit(string(text))
	if err != nil {
		return err
	}
	*l = parsed
	return nil
}

const limitForm = `want the form "100/1m", "100/1m burst=20" or "100/1m fixed-window"`

func parseLimit(text string) (Limit, error) {
	words := strings.Fields(text)
	if len(words) == 1 && standsAlone(words[0]) {
		if words[0] == blocked.name() {
			return Blocked, nil
		}
		return Unlimited, nil
	}
	l, reason := parseWords(words)
	if reason != "" {
		return Limit{}, &ConfigError{Field: "Limit", Value: text, Reason: reason}
	}
	return l, l.Validate()
}

// parseWords returns the limit that the words describe, or else what is wrong
// with them and what would be right.
func parseWords(words []string) (l Limit, reason string) {
	if len(words) == 0 {
		return l, limitForm
	}
	if reason = l.parseRate(words); reason != "" {
		return l, reason
	}
	seen := map[string]string{}
	for _, word := range words[1:] {
		name, reason := l.parseOption(word)
		if reason != "" {
			return l, reason
		}
		if first, ok := seen[name]; ok {
			return l, fmt.Sprintf("%q and %q both set the %s: want one of them", first, word, name)
		}
		seen[name] = word
	}
	return l, ""
}

// parseRate reads the first word, such as "100/1m".
func (l *Limit) parseRate(words []string) (reason string) {
	tokens, per, found := strings.Cut(words[0], "/")
	switch {
	case standsAlone(words[0]):
		return fmt.Sprintf("%q stands alone: want no other word", words[0])
	case len(words) > 1 && (per == "" && isDigit(words[1]) || words[1][0] == '/'):
		return `want no space beside the slash, as in "100/1m"`
	case !found:
		return limitForm
	case tokens == "":
		return `the number of tokens is missing: want "100/1m", for example`
	case per == "":
		return fmt.Sprintf(`the period is missing: want "%s/1m", for example`, tokens)
	}
	var err error
	switch l.Tokens, err = strconv.ParseInt(tokens, 10, 64); {
	case errors.Is(err, strconv.ErrRange):
		return fmt.Sprintf("%s is out of range: want 1 to %d tokens", tokens, int64(math.MaxInt64))
	case err != nil:
		return fmt.Sprintf(`%q is not a number of tokens: want digits only, as in "1000/1m"`, tokens)
	}
	if l.Per, err = time.ParseDuration(per); err != nil {
		return l.periodReason(per)
	}
	return ""
}

func isDigit(word string) bool { return word[0] >= '0' && word[0] <= '9' }

func standsAlone(word string) bool { return word == unlimited.name() || word == blocked.name() }

// periods are the units that people write, also those that [time.ParseDuration]
// does not read.
var periods = map[string]time.Duration{
	"ns": 1, "us": time.Microsecond, "ms": time.Millisecond,
	"": time.Second, "s": time.Second, "sec": time.Second, "second": time.Second,
	"m": time.Minute, "min": time.Minute, "minute": time.Minute,
	"h": time.Hour, "hr": time.Hour, "hour": time.Hour,
	"d": 24 * time.Hour, "day": 24 * time.Hour,
	"w": 7 * 24 * time.Hour, "week": 7 * 24 * time.Hour,
}

// periodReason says what is wrong with a period that is not a duration.
func (l *Limit) periodReason(per string) string {
	unit := strings.TrimLeft(per, "0123456789")
	number := per[:len(per)-len(unit)]
	n, err := strconv.ParseInt(cmp.Or(number, "1"), 10, 64)
	if unit = strings.ToLower(unit); len(unit) > 2 {
		unit = strings.TrimSuffix(unit, "s")
	}
	one, known := periods[unit]
	switch {
	case unit == "month" || unit == "year":
		return fmt.Sprintf(`a %s has no fixed length: want hours, as in "%d/720h"`, unit, l.Tokens)
	case known && (err != nil || n > int64(maxFill/one)):
		return fmt.Sprintf("the period %q is too long: want at most %s", per, shortDuration(maxFill))
	case known && n > 0:
		l.Per = time.Duration(n) * one
		return fmt.Sprintf(`the period %q is not a number and a unit: want "%d/%s"`,
			per, l.Tokens, shortDuration(l.Per))
	default:
		return fmt.Sprintf(`the period %q is not a number and a unit (ns, us, ms, s, m, h): `+
			`want "%d/1m", for example`, per, l.Tokens)
	}
}

// parseOption reads one word after the rate and returns what it sets.
func (l *Limit) parseOption(word string) (name, reason string) {
	lower := strings.ToLower(word)
	if strings.HasPrefix(lower, "burst") {
		return "burst", l.parseBurst(word)
	}
	for a := TokenBucket; a <= RollingLog; a++ {
		switch {
		case word == a.name():
			l.Algorithm = a
			return "algorithm", ""
		case lower == a.name():
			return "", fmt.Sprintf("%q is not known: want %q", word, a.name())
		}
	}
	if standsAlone(word) {
		return "", fmt.Sprintf("%q stands alone: want no other word", word)
	}
	return "", fmt.Sprintf(
		`%q is not known: want "burst=20", "token-bucket", "fixed-window" or "rolling-log"`, word)
}

func (l *Limit) parseBurst(word string) (reason string) {
	value, found := strings.CutPrefix(word, "burst=")
	burst, err := strconv.ParseInt(value, 10, 64)
	switch {
	case !found || err != nil:
		return fmt.Sprintf(`%q is not a burst: want "burst=20", for example`, word)
	case burst < 1:
		return fmt.Sprintf(`%q leaves no room for a token: want "burst=1" or more, `+
			`or no burst to hold the %d tokens of a period`, word, l.Tokens)
	}
	l.Burst = burst
	return ""
}
