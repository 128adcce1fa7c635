package memstore

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
)

// decideFast calls the fast path for the number of charges, and reports whether it
// decided them.
func decideFast(s *Store, charges []limiter.Charge, take bool) (d limiter.Decision, decided bool) {
	if len(charges) == 1 {
		decided = s.decideOne(&charges[0], take, &d)
	} else {
		decided = s.decideSeveral(charges, take, &d)
	}
	return d, decided
}

// newKept returns a store that has records for four accounts, and a charge on each.
func newKept(t *testing.T) (*Store, []limiter.Charge) {
	now := time.Unix(1000, 0)
	s, err := New(Config{Now: func() time.Time { return now }})
	require.NoError(t, err)
	window := limiter.Limit{Algorithm: limiter.FixedWindow, Tokens: 3, Per: time.Hour}
	charges := []limiter.Charge{
		on("a", "alice", "", 1), on("a", "bob", "", 1), on("b", "carol", "", 1), on("b", "alice", "", 1),
	}
	charges[1].Limit = window
	_, err = s.Take(t.Context(), charges)
	require.NoError(t, err)
	return s, charges
}

func TestFastPath_DecidesAccountsThatHaveRecords(t *testing.T) {
	for n := 1; n <= maxFast; n++ {
		s, charges := newKept(t)
		charges = charges[:n]
		for i := range charges {
			charges[i].Receipt = limiter.Receipt{}
		}
		for _, take := range []bool{false, true} {
			d, decided := decideFast(s, charges, take)
			require.True(t, decided, "of %d", n)
			assert.True(t, d.Allowed())
			for _, c := range charges {
				assert.EqualValues(t, 1, c.Result.Remaining)
				place, taken := c.Receipt.Place, c.Receipt.Valid
				assert.Equal(t, take, taken)
				assert.EqualValues(t, ownAccount, place)
			}
		}
		audit(t, s)
	}
}

// The fast path adds a record if the limit is in use already, also over that of an
// account that is full again.
func TestFastPath_AddsRecords(t *testing.T) {
	now := time.Unix(1000, 0)
	s, err := New(Config{Now: func() time.Time { return now }})
	require.NoError(t, err)
	take := func(id int, want bool) {
		t.Helper()
		c := []limiter.Charge{on("a", strconv.Itoa(id), "", 1)}
		before := slices.Clone(c)
		_, decided := decideFast(s, c, true)
		require.Equal(t, want, decided)
		if !decided {
			require.Equal(t, before, c)
			_, err := s.Take(t.Context(), c)
			require.NoError(t, err)
		}
		require.EqualValues(t, 2, c[0].Result.Remaining)
		taken := c[0].Receipt.Valid
		require.True(t, taken)
		require.False(t, c[0].Result.Overflow)
	}
	take(0, false)
	const n = 5000
	for id := 1; id < n; id++ {
		take(id, true)
	}
	audit(t, s)
	require.EqualValues(t, n, s.Stats().Accounts)
	now = now.Add(2 * time.Hour)
	for id := range n / 2 {
		take(n+id, true)
	}
	audit(t, s)
	require.EqualValues(t, n/2, s.Stats().Accounts)
}

// If the fast path does not decide a request, it has changed nothing and holds no lock.
func TestFastPath_DecidesNoOthers(t *testing.T) {
	log := limiter.Limit{Algorithm: limiter.RollingLog, Tokens: 3, Per: time.Hour}
	for _, test := range []struct {
		name   string
		change func(*limiter.Charge)
	}{
		{"an account that is not kept", func(c *limiter.Charge) { c.Key.Route = "new" }},
		{"more tokens", func(c *limiter.Charge) { c.Limit.Tokens++ }},
		{"a longer period", func(c *limiter.Charge) { c.Limit.Per++ }},
		{"a larger burst", func(c *limiter.Charge) { c.Limit.Burst = 5 }},
		{"a window", func(c *limiter.Charge) { c.Limit.Algorithm = limiter.FixedWindow }},
		{"a log", func(c *limiter.Charge) { c.Key.Budget, c.Limit = "log", log }},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, n := range []int{1, 3, maxFast} { // of which the last is on a bucket
				s, charges := newKept(t)
				charges = charges[:n]
				logged := on("log", charges[n-1].Key.Principal.ID, "", 1)
				logged.Limit = log
				_, err := s.Take(t.Context(), []limiter.Charge{logged})
				require.NoError(t, err)
				test.change(&charges[n-1])
				requireNotFast(t, s, charges)
			}
		})
	}
	t.Run("one account twice", func(t *testing.T) {
		for _, twice := range [][2]int{{0, 1}, {0, 3}, {1, 2}, {2, 3}} {
			s, charges := newKept(t)
			charges[twice[1]] = charges[twice[0]]
			requireNotFast(t, s, charges)
		}
	})
}

func requireNotFast(t *testing.T, s *Store, charges []limiter.Charge) {
	t.Helper()
	before := slices.Clone(charges)
	for _, take := range []bool{false, true} {
		d, decided := decideFast(s, charges, take)
		require.False(t, decided)
		require.Zero(t, d)
		require.Equal(t, before, charges)
	}
	for i := range s.shards {
		require.True(t, s.shards[i].mu.TryLock(), "shard %d is locked", i)
		s.shards[i].mu.Unlock()
	}
	for _, c := range charges {
		c.Cost = 0
		alone := []limiter.Charge{c}
		_, err := s.Peek(t.Context(), alone)
		require.NoError(t, err)
		require.GreaterOrEqual(t, alone[0].Result.Remaining, int64(2), "nothing more was taken")
	}
}

// The fast path and the general path answer alike and leave the same accounts.
func TestFastPath_AnswersAsTheGeneralPathDoes(t *testing.T) {
	general := func(s *Store, charges []limiter.Charge) (d limiter.Decision) {
		require.NoError(t, s.run(make([]draw, len(charges)), charges, true, &d))
		return d
	}
	fast := func(s *Store, charges []limiter.Charge) limiter.Decision {
		d, decided := decideFast(s, charges, true)
		require.True(t, decided)
		return d
	}
	const costs = 5 // 0 to 4 of 2 that are left of 3
	for i := range costs * costs * costs {
		for n := 1; n <= maxFast; n++ {
			var want, got answers
			for _, way := range []struct {
				decide  func(*Store, []limiter.Charge) limiter.Decision
				answers *answers
			}{{general, &want}, {fast, &got}} {
				s, charges := newKept(t)
				charges = charges[:n]
				for j, each := range []int{1, costs, costs * costs, 1}[:n] {
					charges[j].Cost = int64(i / each % costs)
				}
				charges[n-1].Shadow = i%2 == 0
				for range 2 {
					d := way.decide(s, charges)
					way.answers.decisions = append(way.answers.decisions, d)
					way.answers.charges = append(way.answers.charges, charges...)
				}
				audit(t, s)
			}
			require.Equal(t, want, got)
		}
	}
}

// answers is the answers to some requests.
type answers struct {
	decisions []limiter.Decision
	charges   []limiter.Charge
}

// Up to four charges do not allocate, whether or not their accounts have records.
func TestStore_AFewChargesDoNotAllocate(t *testing.T) {
	for n := 1; n <= maxFast; n++ {
		s, charges := newKept(t)
		charges = charges[:n]
		var cost int64
		decide := func(call func(context.Context, []limiter.Charge) (limiter.Decision, error)) func() {
			return func() {
				for i := range charges {
					charges[i].Cost = cost
				}
				_, _ = call(context.Background(), charges)
			}
		}
		for _, cost = range []int64{0, 1, 4} {
			assert.Zero(t, testing.AllocsPerRun(10, decide(s.Take)), "Take of %d, cost %d", n, cost)
			assert.Zero(t, testing.AllocsPerRun(10, decide(s.Peek)), "Peek of %d, cost %d", n, cost)
		}
		for i := range charges {
			charges[i].Key.Route = "full"
		}
		assert.Zero(t, testing.AllocsPerRun(10, decide(s.Peek)), "of %d that are full", n)
	}
}

func TestStore_ACostOf0WritesNothing(t *testing.T) {
	now := time.Unix(1000, 0)
	s, err := New(Config{Now: func() time.Time { return now }})
	require.NoError(t, err)
	charges := []limiter.Charge{on("a", "x", "", 1), on("b", "x", "", 1)}
	_, err = s.Take(t.Context(), charges)
	require.NoError(t, err)
	now = now.Add(2 * time.Hour) // full again; the records stay until room is needed
	for n := 1; n <= len(charges); n++ {
		draws := make([]draw, n)
		s.prepare(draws, charges[:n], new(lockSet))
		kept := draws[0].shard.find(draws[0].fingerprint).state
		charges[0].Cost, charges[1].Cost = 0, 0
		_, decided := decideFast(s, charges[:n], true)
		require.True(t, decided)
		require.Equal(t, kept, draws[0].shard.find(draws[0].fingerprint).state)
	}
}

func TestStore_ATakeCopiesNoLog(t *testing.T) {
	s, err := New(Config{})
	require.NoError(t, err)
	charges := []limiter.Charge{on("a", "x", "", 1)}
	charges[0].Limit = limiter.Limit{Algorithm: limiter.RollingLog, Tokens: 10_000, Per: time.Hour}
	take := func() { _, _ = s.Take(context.Background(), charges) }
	for range 1000 {
		take()
	}
	assert.Zero(t, testing.AllocsPerRun(1000, take))
}

// A remembered class may have been dropped, and its number used again. Then the fast path
// must not take the accounts of the other class for full ones of its own.
func TestFastPath_LeavesTheAccountsOfAReusedNumber(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	s := NewSharded(Config{MaxAccounts: 100_000, Now: func() time.Time { return now }}, 1)
	take := func(budget string, l limiter.Limit, id int) limiter.Outcome {
		c := []limiter.Charge{on(budget, strconv.Itoa(id), "", 1)}
		c[0].Limit = l
		d, err := s.Take(t.Context(), c)
		require.NoError(t, err)
		return d.Outcome
	}
	bucket := limiter.PerSecond(1)
	window := limiter.Limit{Algorithm: limiter.FixedWindow, Tokens: 1, Per: 24 * time.Hour}
	s.Capabilities().Plan([]string{"a"}, nil)
	for id := range 20 {
		require.Equal(t, limiter.Allow, take("a", bucket, id))
	}
	now = now.Add(time.Minute)
	require.Zero(t, s.Stats().Accounts)
	s.Capabilities().Plan(nil, []string{"a"})
	require.Empty(t, s.classes.known)
	for id := range 1000 {
		require.Equal(t, limiter.Allow, take("b", window, id))
	}
	for _, c := range s.classes.known {
		require.EqualValues(t, 1, c.number, "it is used again")
	}
	for id := range 1000 {
		require.Equal(t, limiter.Allow, take("a", bucket, id))
	}
	for id := range 1000 {
		require.Equal(t, limiter.Deny, take("b", window, id), "it is spent")
	}
	audit(t, s)
}
