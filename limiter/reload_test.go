package limiter_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
)

func reload(t *testing.T, l *limiter.Limiter, limit limiter.Limit) {
	t.Helper()
	require.NoError(t, l.Reload([]limiter.Budget{{Name: "b", Limit: limit}}))
}

func TestReload_KeepsWhatWasUsedAndMintsNothing(t *testing.T) {
	l, clock := newLimiter(t, limiter.Budget{Name: "b", Limit: limiter.PerMinute(20)})
	assert.Equal(t, "b allow 18", take(t, l, alice, 2))
	reload(t, l, limiter.PerMinute(10))
	assert.Equal(t, "b allow 10", peek(t, l, alice, 0), "clamped")
	assert.Equal(t, "b never", take(t, l, alice, 12))
	assert.Equal(t, "b allow 9", take(t, l, alice, 1))
	reload(t, l, limiter.PerMinute(30))
	assert.Equal(t, "b allow 9", peek(t, l, alice, 0), "a higher limit refills, no more")
	assert.Equal(t, "b allow 8", take(t, l, alice, 1))
	clock.add(2 * time.Second)
	assert.Equal(t, "b allow 9", peek(t, l, alice, 0), "at the new rate")
}

func TestReload_AFullAccountIsFullUnderTheNewLimit(t *testing.T) {
	l, clock := newLimiter(t, limiter.Budget{Name: "b", Limit: limiter.PerMinute(10)})
	take(t, l, alice, 5)
	clock.add(time.Minute)
	reload(t, l, limiter.PerMinute(30))
	assert.Equal(t, "b allow 0", take(t, l, alice, 30))
}

func TestReload_ADrainedCallerRefillsAtTheNewRateFromItsNextRequestOn(t *testing.T) {
	l, clock := newLimiter(t, limiter.Budget{Name: "b", Limit: limiter.PerDay(1)})
	take(t, l, alice, 1)
	reload(t, l, limiter.PerSecond(1))
	assert.Equal(t, "b deny 1s", take(t, l, alice, 1))
	clock.add(time.Second)
	assert.Equal(t, "b allow 0", take(t, l, alice, 1))
}

func TestReload_EqualLimitsAreNoChange(t *testing.T) {
	third := limiter.Limit{Tokens: 1, Per: 3, Burst: 1}
	l, clock := newLimiter(t, limiter.Budget{Name: "b", Limit: third})
	take(t, l, alice, 1)
	for range 3 {
		third.Burst = 1 - third.Burst // 0 means Tokens
		reload(t, l, third)
		d, err := l.Take(background, alice, 1)
		require.NoError(t, err)
		assert.Equal(t, limiter.Deny, d.Outcome)
		clock.add(1)
	}
	assert.Equal(t, "b allow 0", take(t, l, alice, 1))
}

// What was used counts, whichever way the algorithm changes.
func TestReload_BetweenAlgorithmsCarriesWhatWasUsed(t *testing.T) {
	limits := map[string]limiter.Limit{
		"bucket":      {Tokens: 10, Per: time.Minute},
		"window":      {Algorithm: limiter.FixedWindow, Tokens: 10, Per: time.Minute},
		"log":         {Algorithm: limiter.RollingLog, Tokens: 10, Per: time.Minute},
		"slow-bucket": {Tokens: 10, Per: time.Hour},
		"long-window": {Algorithm: limiter.FixedWindow, Tokens: 10, Per: time.Hour},
		"long-log":    {Algorithm: limiter.RollingLog, Tokens: 10, Per: time.Hour},
	}
	for from, old := range limits {
		for to, next := range limits {
			t.Run(from+"-to-"+to, func(t *testing.T) {
				l, clock := newLimiter(t, limiter.Budget{Name: "b", Limit: old})
				clock.set(time.Hour)
				take(t, l, alice, 7)
				reload(t, l, next)
				assert.Equal(t, "b allow 2", take(t, l, alice, 1))
				reload(t, l, old)
				assert.Equal(t, "b allow 1", take(t, l, alice, 1))
			})
		}
	}
}

func TestReload_APartOfATokenThatWasUsedCountsAsAWholeOne(t *testing.T) {
	l, clock := newLimiter(t, limiter.Budget{Name: "b", Limit: limiter.PerMinute(10)})
	take(t, l, alice, 4)
	clock.add(time.Second) // 3.83 used
	reload(t, l, limiter.Limit{Algorithm: limiter.FixedWindow, Tokens: 10, Per: time.Minute})
	assert.Equal(t, "b allow 6", peek(t, l, alice, 0))
}

func TestReload_WhileRequestsAreDecidedNeverAdmitsMoreThanTheHigherLimit(t *testing.T) {
	l, _ := newLimiter(t, limiter.Budget{Name: "b", Limit: limiter.PerHour(100)})
	var group sync.WaitGroup
	var mu sync.Mutex
	allowed := 0
	for range 8 {
		group.Go(func() {
			for range 100 {
				if d, err := l.Take(background, alice, 1); err == nil && d.Allowed() {
					mu.Lock()
					allowed++
					mu.Unlock()
				}
			}
		})
	}
	for i := range 100 {
		reload(t, l, limiter.PerHour(int64(100-i%2)))
	}
	group.Wait()
	assert.LessOrEqual(t, allowed, 100)
	assert.GreaterOrEqual(t, allowed, 99)
}

func TestReload_AddsAndRemovesBudgets(t *testing.T) {
	l, _ := newLimiter(t, limiter.Budget{Name: "a", Limit: limiter.PerHour(5)})
	assert.Equal(t, "a allow 4", take(t, l, alice, 1))
	require.NoError(t, l.Reload([]limiter.Budget{{Name: "c", Limit: limiter.PerHour(5)}}))
	assert.Equal(t, "c allow 4", take(t, l, alice, 1))
	require.NoError(t, l.Reload([]limiter.Budget{{Name: "a", Limit: limiter.PerHour(5)}}))
	assert.True(t, strings.HasPrefix(take(t, l, alice, 1), "a allow 3"), "what was used stays used")
}

func TestReload_LogsABudgetWhoseScopeChanges(t *testing.T) {
	var log bytes.Buffer
	events := new(charges)
	budget := func(s limiter.Scope) []limiter.Budget {
		return []limiter.Budget{{Name: "own", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(5)},
			{Name: "b", Scope: s, Limit: limiter.PerHour(5)}}
	}
	l := limiter.Must(limiter.New(newStore(t, new(manual)), budget(limiter.ByPrincipal),
		limiter.Config{Logger: slog.New(slog.NewTextHandler(&log, nil)), Observer: events.observer()}))
	take(t, l, alice, 3)
	require.NoError(t, l.Reload(budget(limiter.ByPrincipal)))
	require.NoError(t, l.Reload(budget(limiter.ByPrincipal|limiter.ByTenant)))
	assert.Empty(t, log.String(), "a principal's key has its tenant already")
	assert.Equal(t, "b allow 2", peek(t, l, alice, 0))

	require.NoError(t, l.Reload(budget(limiter.ByTenant)))
	assert.Equal(t, map[string]int64{"own": 2, "b": 5}, remaining(t, l, events, alice), "full again")
	for _, part := range []string{"level=WARN", "code=scope-changed", "budget=b",
		"old=ByTenant|ByPrincipal new=ByTenant\n"} {
		assert.Contains(t, log.String(), part)
	}
	assert.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())

	require.Error(t, l.Reload([]limiter.Budget{{Name: "b", Limit: limiter.Limit{}}}))
	require.NoError(t, l.Reload([]limiter.Budget{{Name: "c", Limit: limiter.PerHour(5)}}))
	require.NoError(t, l.Reload(budget(0)))
	assert.Equal(t, 1, strings.Count(log.String(), "\n"), "a budget that is new changes no scope")
}
