package model_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"math/rand/v2"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/lab/model"
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
