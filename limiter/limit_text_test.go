package limiter_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
)

// What an error suggests is accepted: right is the text put right as it says.
func TestLimit_UnmarshalTextSaysWhatIsWrongAndWhatWouldBeRight(t *testing.T) {
	tests := []struct {
		text, reason string
		right        string
	}{
		{"", `want the form "100/1m", "100/1m burst=20" or "100/1m fixed-window"`, "100/1m"},
		{"100", `want the form "100/1m", "100/1m burst=20" or "100/1m fixed-window"`, "100/1m"},
		{"100 /1m", `want no space beside the slash, as in "100/1m"`, "100/1m"},
		{"100/ 1m", `want no space beside the slash, as in "100/1m"`, "100/1m"},
		{"100 / 1m", `want no space beside the slash, as in "100/1m"`, "100/1m"},
		{"unlimited 1/1m", `"unlimited" stands alone: want no other word`, "unlimited"},
		{"1/1m blocked", `"blocked" stands alone: want no other word`, "blocked"},

		{"/1m", `the number of tokens is missing: want "100/1m", for example`, "100/1m"},
		{"1e3/1m", `"1e3" is not a number of tokens: want digits only, as in "1000/1m"`, "1000/1m"},
		{"1,000/1m", `"1,000" is not a number of tokens: want digits only, as in "1000/1m"`,
			"1000/1m"},
		{"9223372036854775808/1m",
			"9223372036854775808 is out of range: want 1 to 9223372036854775807 tokens",
			"9223372036854775807/1ns"},

		{"100/", `the period is missing: want "100/1m", for example`, "100/1m"},
		{"100/ burst=20", `the period is missing: want "100/1m", for example`, "100/1m"},
		{"100/m", `the period "m" is not a number and a unit: want "100/1m"`, "100/1m"},
		{"100/day", `the period "day" is not a number and a unit: want "100/24h"`, "100/24h"},
		{"100/Day burst=20", `the period "Day" is not a number and a unit: want "100/24h"`, "100/24h"},
		{"5/7days", `the period "7days" is not a number and a unit: want "5/168h"`, "5/168h"},
		{"5/2weeks", `the period "2weeks" is not a number and a unit: want "5/336h"`, "5/336h"},
		{"5/ms", `the period "ms" is not a number and a unit: want "5/1ms"`, "5/1ms"},
		{"5/10min", `the period "10min" is not a number and a unit: want "5/10m"`, "5/10m"},
		{"5/60", `the period "60" is not a number and a unit: want "5/1m"`, "5/1m"},
		{"5/month", `a month has no fixed length: want hours, as in "5/720h"`, "5/720h"},
		{"5/1fortnight", `the period "1fortnight" is not a number and a unit ` +
			`(ns, us, ms, s, m, h): want "5/1m", for example`, "5/1m"},
		{"5/0day", `the period "0day" is not a number and a unit (ns, us, ms, s, m, h): ` +
			`want "5/1m", for example`, "5/1m"},
		{"100/1m/1m", `the period "1m/1m" is not a number and a unit (ns, us, ms, s, m, h): ` +
			`want "100/1m", for example`, "100/1m"},
		{"5/99999999h", `the period "99999999h" is too long: want at most 876600h`, "5/876600h"},
		{"5/99999999999999999999day",
			`the period "99999999999999999999day" is too long: want at most 876600h`, "5/876600h"},

		{"600/1m burst=0", `"burst=0" leaves no room for a token: want "burst=1" or more, ` +
			`or no burst to hold the 600 tokens of a period`, "600/1m burst=1"},
		{"600/1m burst=-3", `"burst=-3" leaves no room for a token: want "burst=1" or more, ` +
			`or no burst to hold the 600 tokens of a period`, "600/1m burst=1"},
		{"6/1m burst", `"burst" is not a burst: want "burst=20", for example`, "6/1m burst=20"},
		{"6/1m burst=", `"burst=" is not a burst: want "burst=20", for example`, "6/1m burst=20"},
		{"6/1m Burst=9", `"Burst=9" is not a burst: want "burst=20", for example`, "6/1m burst=20"},
		{"6/1m burst=1 burst=2", `"burst=1" and "burst=2" both set the burst: want one of them`,
			"6/1m burst=1"},
		{"6/1m Fixed-Window", `"Fixed-Window" is not known: want "fixed-window"`, "6/1m fixed-window"},
		{"6/1m fixed-window rolling-log", `"fixed-window" and "rolling-log" both set the ` +
			`algorithm: want one of them`, "6/1m rolling-log"},
		{"6/1m sliding", `"sliding" is not known: want "burst=20", "token-bucket", ` +
			`"fixed-window" or "rolling-log"`, "6/1m rolling-log"},
	}
	for _, test := range tests {
		t.Run(test.text, func(t *testing.T) {
			l := limiter.PerDay(7)
			err := l.UnmarshalText([]byte(test.text))
			assert.Equal(t, &limiter.ConfigError{Field: "Limit", Value: test.text,
				Reason: test.reason}, err)
			assert.Equal(t, limiter.PerDay(7), l, "it stays as it is")
			require.NoError(t, l.UnmarshalText([]byte(test.right)))
			assert.NotEqual(t, limiter.PerDay(7), l)
		})
	}
}
