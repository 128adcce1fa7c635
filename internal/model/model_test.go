package model_test

import (
	"context"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"math/rand/v2"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/model"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
)

func inMemory(now func() time.Time) limiter.Store {
	return limiter.Must(memstore.New(memstore.Config{Now: now}))
}

// scaled returns n, or a part of it where steps are slow or time is short.
func scaled(n int) int {
	if testing.Short() {
		n /= 10
	}
	return n / slowdown
}

const stepsAStream = 500

func TestMemstore_AgreesWithTheModel(t *testing.T) {
	for half := range uint64(2) {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(scaled(1_000_000) / stepsAStream / 2) {
				g := model.NewGenerator(rand.NewPCG(seed, half), model.Shape{})
				require.NoError(t, model.Check(inMemory, g, stepsAStream), "seed %d, %d", seed, half)
			}
		})
	}
}

// Limits of all algorithms that change all the time, and corrections that come
// long after what they correct has gone.
func TestMemstore_AgreesWithTheModelWhileLimitsChange(t *testing.T) {
	for seed := range uint64(scaled(100_000) / stepsAStream) {
		g := model.NewGenerator(rand.NewPCG(seed, 7), model.Shape{Reloads: true})
		require.NoError(t, model.Check(inMemory, g, stepsAStream), "seed %d", seed)
	}
}

func TestMemstore_AllowsNoMoreThanTheLargestCapacityAtOneInstant(t *testing.T) {
	shape := model.Shape{OneKey: true, Decisions: true, Reloads: true, Still: true}
	for seed := range uint64(scaled(2000)) {
		g := model.NewGenerator(rand.NewPCG(seed, 8), shape)
		require.NoError(t, model.Rules{}.Conserves(inMemory, g, 40), "seed %d", seed)
	}
}

func TestMemstore_AllowsNoMoreThanTheLargestCapacityAndWhatTimeGaveBack(t *testing.T) {
	shape := model.Shape{OneKey: true, Decisions: true, Reloads: true, Forward: true}
	for seed := range uint64(scaled(200)) {
		g := model.NewGenerator(rand.NewPCG(seed, 9), shape)
		require.NoError(t, model.Rules{}.Conserves(inMemory, g, stepsAStream), "seed %d", seed)
	}
}

func TestMemstore_AgreesWithTheModelOnKeptStreams(t *testing.T) {
	files, err := filepath.Glob("testdata/streams/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			s, err := model.Parse(string(text))
			require.NoError(t, err)
			require.NoError(t, model.Drive(inMemory, s))
		})
	}
}

func TestMemstore_ObeysTheLaws(t *testing.T) {
	for _, law := range model.Laws {
		t.Run(law.Name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(scaled(300)) {
				require.NoError(t, law.Obeys(inMemory, seed, 200), "seed %d", seed)
			}
		})
	}
}

// The oracle itself, on sequences that were worked out by hand.
func TestStore_FollowsTheRules(t *testing.T) {
	tests := []struct{ name, stream, want string }{
		{"refill", `
			1 take 0 a 5 2/1s burst=5
			2 take 100000000 a 1 2/1s burst=5
			3 take 1000000000 a 2 2/1s burst=5
			4 take 1401000000 a 1 2/1s burst=5`,
			"allow; deny 400ms; allow; deny 99ms"},
		{"clock-back", `
			1 take 0 a 3 1/1s burst=3
			2 take 2000000000 a 1 1/1s burst=3
			3 take -5000000000 a 1 1/1s burst=3
			4 take 2000000000 a 1 1/1s burst=3`,
			"allow; allow; allow; deny 1s"},
		{"window", `
			1 take 7000000000 a 3 3/10s fixed-window
			2 take 8000000000 a 1 3/10s fixed-window
			3 take 10000000000 a 3 3/10s fixed-window`,
			"allow; deny 2s; allow"},
		{"log-left-boundary-is-exclusive", `
			1 take 0 a 1 3/10s rolling-log
			2 take 1000000000 a 2 3/10s rolling-log
			3 take 9999999999 a 1 3/10s rolling-log
			4 take 10000000000 a 1 3/10s rolling-log
			5 take 10000000000 a 2 3/10s rolling-log`,
			"allow; allow; deny 1ns; allow; deny 1s"},
		{"all-or-nothing", `
			1 take 0 a 2 2/60s; b 1 10/60s
			2 take 0 a 1 2/60s; b 1 10/60s
			3 take 0 b 9 10/60s`,
			"allow; deny 30s; allow"},
		{"debt", `
			1 take 0 a 2 1/1s burst=5
			2 settle 0 1 +9
			3 take 0 a 1 1/1s burst=5
			4 take 0 a 0 1/1s burst=5`,
			"allow; deny 6s; allow"},
		{"a-bucket-lowered-and-then-a-window", `
			1 take 0 a 5 10/1h
			2 take 0 a 1 5/1h
			3 take 0 a 9 10/1h fixed-window
			4 take 0 a 4 10/1h fixed-window
			5 take 0 a 1 20/1h fixed-window`,
			"allow; allow; deny 1h0m0s; allow; deny 1h0m0s"},
		{"a-bucket-then-windows", `
			1 take 0 a 5 10/1h
			2 take 0 a 1 5/1h fixed-window
			3 take 0 a 5 10/1h rolling-log
			4 take 0 a 4 10/1h rolling-log`,
			"allow; allow; deny 1h0m0s; allow"},
		{"a-late-debit", `
			1 take 0 a 1 10/10s rolling-log
			2 settle 12000000000 1 +9
			3 take 12000000000 a 2 10/10s rolling-log
			4 take 12000000000 a 1 10/10s rolling-log`,
			"allow; deny 10s; allow"},
		{"never-decides-before-deny", `
			1 take 0 a 1 1/1m; b 1 5/1m
			2 take 0 a 1 1/1m; b 6 5/1m`,
			"allow; never"},
		{"lower-and-raise", `
			1 take 0 a 2 20/60s
			2 take 0 a 12 10/60s
			3 take 0 a 1 10/60s
			4 take 0 a 10 30/60s`,
			"allow; never; allow; deny 2s"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s, err := model.Parse(test.stream)
			require.NoError(t, err)
			m := model.New()
			var got []string
			for _, step := range s {
				if step.Op == model.Settle {
					c := s[0].Charges
					c[0].Cost = step.Corrections[0]
					require.NoError(t, m.Settle(step.At, c))
					continue
				}
				d, err := m.Take(step.At, step.Charges)
				require.NoError(t, err)
				text := d.Outcome.String()
				if d.Outcome == limiter.Deny {
					text += " " + d.RetryAfter.String()
				}
				got = append(got, text)
			}
			assert.Equal(t, test.want, strings.Join(got, "; "))
		})
	}
}

// lenient forgets the debits of every 50th take.
type lenient struct {
	limiter.Store
	takes int
}

func (l *lenient) Take(
	ctx context.Context, charges []limiter.Charge,
) (limiter.Decision, error) {
	if l.takes++; l.takes%50 == 0 {
		return l.Store.Peek(ctx, charges)
	}
	return l.Store.Take(ctx, charges)
}

func TestCheck_ShrinksTheStreamOfAStoreThatIsWrong(t *testing.T) {
	wrong := func(now func() time.Time) limiter.Store { return &lenient{Store: inMemory(now)} }
	err := model.Check(wrong, model.NewGenerator(rand.NewPCG(1, 1), model.Shape{}), stepsAStream)
	require.ErrorContains(t, err, "keep this stream")
	_, text, _ := strings.Cut(err.Error(), "keep this stream:\n")
	s, err := model.Parse(text)
	require.NoError(t, err)
	assert.LessOrEqual(t, len(s), 50)
	assert.Error(t, model.Drive(wrong, s), "the text form fails as the stream did")
	assert.NoError(t, model.Drive(inMemory, s))
}

func TestStream_TextFormRoundTrips(t *testing.T) {
	g := model.NewGenerator(rand.NewPCG(3, 3), model.Shape{})
	var s model.Stream
	for range 300 {
		s = append(s, g.Next(limiter.Decision{}))
	}
	parsed, err := model.Parse(s.String())
	require.NoError(t, err)
	assert.Equal(t, s.String(), parsed.String())
}

func TestParse_ReportsTheLine(t *testing.T) {
	for _, text := range []string{"1 take", "x take 0 a 1 1/1s", "1 take y a 1 1/1s",
		"1 take 0 a", "1 take 0 a z 1/1s", "1 take 0 a 1 0/1s", "1 settle 0 q", "1 settle 0 1 q"} {
		_, err := model.Parse("# comment\n" + text)
		assert.ErrorContains(t, err, "line 2", text)
	}
}

func TestStore_TokensIsExact(t *testing.T) {
	m, k := model.New(), model.NewKey("a", "")
	third := limiter.Limit{Tokens: 1, Per: 3, Burst: 2}
	_, err := m.Take(0, []limiter.Charge{{Key: k, Limit: third, Cost: 2}})
	require.NoError(t, err)
	assert.Equal(t, big.NewRat(4, 3), m.Tokens(4, k, third))
}
