package limiter_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
)

const year = 8_766 * time.Hour

// requireConfigError asserts the field and the value that err names.
func requireConfigError(t *testing.T, err error, field string, value any) {
	t.Helper()
	var config *limiter.ConfigError
	require.ErrorAs(t, err, &config)
	assert.Equal(t, field, config.Field)
	assert.Equal(t, value, config.Value)
	assert.NotEmpty(t, config.Reason)
}

func TestLimit_ValidateNamesWhatIsWrong(t *testing.T) {
	window, log := limiter.FixedWindow, limiter.RollingLog
	long := limiter.Limit{Tokens: 1, Per: 100*year + 1}
	burst := limiter.Limit{Tokens: 1, Per: time.Second, Burst: 3_155_760_001}
	overflow := limiter.Limit{Tokens: 2, Per: 3, Burst: 6_148_914_691_236_517_205}
	longest := limiter.Limit{Tokens: 1, Per: math.MaxInt64, Burst: math.MaxInt64}
	tests := []struct {
		name  string
		limit limiter.Limit
		field string
		value any
	}{
		{"zero", limiter.Limit{}, "Limit.Tokens", int64(0)},
		{"zero-tokens", limiter.PerSecond(0), "Limit.Tokens", int64(0)},
		{"negative-tokens", limiter.PerDay(-1), "Limit.Tokens", int64(-1)},
		{"least-tokens", limiter.PerHour(math.MinInt64), "Limit.Tokens", int64(math.MinInt64)},
		{"no-period", limiter.Limit{Tokens: 6}, "Limit.Per", time.Duration(0)},
		{"negative-period", limiter.Limit{Tokens: 6, Per: -1}, "Limit.Per", time.Duration(-1)},
		{"negative-burst", limiter.Limit{Tokens: 6, Per: 1, Burst: -1}, "Limit.Burst", int64(-1)},
		{"algorithm", limiter.Limit{Algorithm: 5, Tokens: 1, Per: 1},
			"Limit.Algorithm", limiter.Algorithm(5)},
		{"unlimited", limiter.Unlimited, "Limit", limiter.Unlimited},
		{"blocked", limiter.Blocked, "Limit", limiter.Blocked},
		{"window-burst", limiter.Limit{Algorithm: window, Tokens: 6, Per: 1, Burst: 5},
			"Limit.Burst", int64(5)},
		{"log-burst", limiter.Limit{Algorithm: log, Tokens: 6, Per: 1, Burst: 7},
			"Limit.Burst", int64(7)},
		{"log-tokens", limiter.Limit{Algorithm: log, Tokens: 10_001, Per: 1},
			"Limit.Tokens", int64(10_001)},
		{"a-nanosecond-over-100-years", long, "Limit", long},
		{"a-second-over-100-years", burst, "Limit", burst},
		{"fill-time-of-2^63-nanoseconds", overflow, "Limit", overflow},
		{"fill-time-beyond-128-bits", longest, "Limit", longest},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			requireConfigError(t, test.limit.Validate(), test.field, test.value)
			_, err := limiter.NewBucket(test.limit, nil)
			requireConfigError(t, err, test.field, test.value)
		})
	}
}

func TestLimit_ValidateAcceptsTheExtremes(t *testing.T) {
	for _, l := range []limiter.Limit{
		{Tokens: 1, Per: 1},
		{Tokens: 1, Per: 100 * year},
		{Tokens: 1, Per: time.Second, Burst: 3_155_760_000},
		{Tokens: math.MaxInt64, Per: 1},
		{Tokens: math.MaxInt64, Per: 100 * year},
		{Tokens: math.MaxInt64, Per: 100 * year, Burst: 1},
		{Tokens: 3, Per: 1, Burst: math.MaxInt64},
		{Algorithm: limiter.FixedWindow, Tokens: math.MaxInt64, Per: 100 * year},
		{Algorithm: limiter.FixedWindow, Tokens: 5, Per: 1, Burst: 5},
		{Algorithm: limiter.RollingLog, Tokens: 10_000, Per: 100 * year, Burst: 10_000},
	} {
		assert.NoError(t, l.Validate(), "%v", l)
	}
}

func TestLimit_Constructors(t *testing.T) {
	assert.Equal(t, limiter.Limit{Tokens: 5, Per: time.Second}, limiter.PerSecond(5))
	assert.Equal(t, limiter.Limit{Tokens: 5, Per: time.Minute}, limiter.PerMinute(5))
	assert.Equal(t, limiter.Limit{Tokens: 5, Per: time.Hour}, limiter.PerHour(5))
	assert.Equal(t, limiter.Limit{Tokens: 5, Per: 24 * time.Hour}, limiter.PerDay(5))
	assert.EqualValues(t, 5, limiter.PerDay(5).Capacity())
	assert.EqualValues(t, 9, limiter.Limit{Tokens: 5, Per: 1, Burst: 9}.Capacity())
}

func TestLimit_TextForm(t *testing.T) {
	tests := []struct {
		text  string
		limit limiter.Limit
	}{
		{"100/1m", limiter.PerMinute(100)},
		{"5/1h", limiter.PerHour(5)},
		{"5/1h1m", limiter.Limit{Tokens: 5, Per: time.Hour + time.Minute}},
		{"5/1h0m1s", limiter.Limit{Tokens: 5, Per: time.Hour + time.Second}},
		{"5/10m", limiter.Limit{Tokens: 5, Per: 10 * time.Minute}},
		{"5/10s", limiter.Limit{Tokens: 5, Per: 10 * time.Second}},
		{"5/24h", limiter.PerDay(5)},
		{"100/1m burst=20", limiter.Limit{Tokens: 100, Per: time.Minute, Burst: 20}},
		{"100/1m fixed-window", limiter.Limit{Algorithm: limiter.FixedWindow,
			Tokens: 100, Per: time.Minute}},
		{"100/1m rolling-log burst=100", limiter.Limit{Algorithm: limiter.RollingLog,
			Tokens: 100, Per: time.Minute, Burst: 100}},
		{"9223372036854775807/1ns", limiter.Limit{Tokens: math.MaxInt64, Per: 1}},
		{"9223372036854775807/1ns burst=9223372036854775807",
			limiter.Limit{Tokens: math.MaxInt64, Per: 1, Burst: math.MaxInt64}},
		{"unlimited", limiter.Unlimited},
		{"blocked", limiter.Blocked},
	}
	for _, test := range tests {
		t.Run(test.text, func(t *testing.T) {
			assert.Equal(t, test.text, test.limit.String())
			text, err := test.limit.MarshalText()
			require.NoError(t, err)
			assert.Equal(t, test.text, string(text))
			var l limiter.Limit
			require.NoError(t, l.UnmarshalText(text))
			assert.Equal(t, test.limit, l)
		})
	}
}

func TestLimit_UnmarshalTextReadsOtherSpellings(t *testing.T) {
	for text, want := range map[string]limiter.Limit{
		" 6/60s ":                     limiter.PerMinute(6),
		"6/0.5m token-bucket":         {Tokens: 6, Per: 30 * time.Second},
		"6/1m\tburst=6  token-bucket": {Tokens: 6, Per: time.Minute, Burst: 6},
		"6/1m burst=6 fixed-window": {Algorithm: limiter.FixedWindow, Tokens: 6,
			Per: time.Minute, Burst: 6},
		"+6/1m rolling-log": {Algorithm: limiter.RollingLog, Tokens: 6, Per: time.Minute},
	} {
		var l limiter.Limit
		require.NoError(t, l.UnmarshalText([]byte(text)), text)
		assert.Equal(t, want, l, text)
	}
}

func TestLimit_UnmarshalTextRefusesAndLeavesTheLimitAsItIs(t *testing.T) {
	for _, text := range []string{"", " ", "100", "100/", "/1m", "100/m", "100/1m/1m", "1e3/1m",
		"100 /1m", "100/1m burst", "100/1m burst=", "100/1m burst=0", "100/1m burst=-1",
		"100/1m burst=1 burst=1", "100/1m fixed-window rolling-log", "100/1m unlimited",
		"100/1m blocked", "unlimited 1/1m", "100/1m FIXED-WINDOW", "9223372036854775808/1m",
		"0/1m", "-1/1m", "100/0s", "100/-1m", "100/1m fixed-window burst=99",
		"20000/1m rolling-log", "1/876601h",
		"9223372036854775807/1ns burst=9223372036854775808"} {
		l := limiter.PerDay(7)
		var config *limiter.ConfigError
		require.ErrorAs(t, l.UnmarshalText([]byte(text)), &config, "%q", text)
		assert.Contains(t, config.Field, "Limit", "%q", text)
		assert.Equal(t, limiter.PerDay(7), l, "%q", text)
	}
}

func TestLimit_UnmarshalTextShowsATextThatIsNotOfTheForm(t *testing.T) {
	for _, text := range []string{"100", "100/m", "x/1m", "100/1m x"} {
		var config *limiter.ConfigError
		require.ErrorAs(t, new(limiter.Limit).UnmarshalText([]byte(text)), &config)
		assert.Equal(t, text, config.Value)
	}
}

func TestLimit_MarshalTextRefusesWhatIsNotValid(t *testing.T) {
	_, err := limiter.Limit{Tokens: -4, Per: time.Second}.MarshalText()
	requireConfigError(t, err, "Limit.Tokens", int64(-4))
}

func TestLimit_IsReadFromConfigurationFiles(t *testing.T) {
	var config struct{ Plans map[string]limiter.Limit }
	text := `{"Plans": {"free": "10/1m", "gold": "1000/1m burst=50", "staff": "unlimited"}}`
	require.NoError(t, json.Unmarshal([]byte(text), &config))
	assert.Equal(t, map[string]limiter.Limit{
		"free":  limiter.PerMinute(10),
		"gold":  {Tokens: 1000, Per: time.Minute, Burst: 50},
		"staff": limiter.Unlimited,
	}, config.Plans)
}

// algorithmName returns the word for an algorithm in the text of a limit.
func algorithmName(a limiter.Algorithm) string {
	text := limiter.Limit{Algorithm: a, Tokens: 1, Per: 1}.String()
	return strings.TrimPrefix(strings.TrimPrefix(text, "1/1ns"), " ")
}

func TestLimit_StringNamesItsAlgorithm(t *testing.T) {
	assert.Empty(t, algorithmName(limiter.TokenBucket), "which is the default")
	assert.Equal(t, "fixed-window", algorithmName(limiter.FixedWindow))
	assert.Equal(t, "rolling-log", algorithmName(limiter.RollingLog))
	assert.Equal(t, "algorithm(5)", algorithmName(limiter.Algorithm(5)))
	assert.Equal(t, "algorithm(9)", algorithmName(limiter.Algorithm(9)))
}

func TestLimit_ErrorsNameTheAlgorithm(t *testing.T) {
	for want, l := range map[string]limiter.Limit{
		"a fixed-window holds Tokens: want 0 or 6": {Algorithm: limiter.FixedWindow, Tokens: 6, Per: 1,
			Burst: 5},
		"a rolling-log holds Tokens: want 0 or 6": {Algorithm: limiter.RollingLog, Tokens: 6, Per: 1,
			Burst: 7},
		"only LimitFor may answer unlimited":          limiter.Unlimited,
		"want TokenBucket, FixedWindow or RollingLog": {Algorithm: 5, Tokens: 1, Per: 1},
	} {
		assert.ErrorContains(t, l.Validate(), want)
	}
}

func TestConfigError_TextNamesFieldValueAndWhatWouldBeRight(t *testing.T) {
	assert.EqualError(t, limiter.PerSecond(-3).Validate(),
		"limiter: Limit.Tokens = -3: want at least 1")
	_, err := limiter.New(nil, nil, limiter.Config{})
	assert.EqualError(t, err, "limiter: Store: want a store, not nil")
	var l limiter.Limit
	assert.EqualError(t, l.UnmarshalText([]byte("x")), `limiter: Limit = "x": `+
		`want the form "100/1m", "100/1m burst=20" or "100/1m fixed-window"`)
	_, err = limiter.Must(limiter.NewBucket(limiter.PerSecond(1), nil)).Take(-5)
	assert.EqualError(t, err, "limiter: cost = -5: want at least 0")
}
