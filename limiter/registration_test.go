package limiter_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
)

// unplans is a memory store that says when budgets leave its plan.
type unplans struct {
	*memstore.Store
	done chan string
}

func (u unplans) Capabilities() limiter.Capabilities {
	can := u.Store.Capabilities()
	plan := can.Plan
	can.Plan = func(add, remove []string) {
		plan(add, remove)
		if len(remove) > 0 {
			u.done <- fmt.Sprint(remove)
		}
	}
	return can
}

func newUnplans(t *testing.T, maxAccounts, limiters int) unplans {
	s, err := memstore.New(memstore.Config{MaxAccounts: maxAccounts})
	require.NoError(t, err)
	return unplans{s, make(chan string, limiters)}
}

// collect runs the garbage collector until n limiters have left the plan.
func (u unplans) collect(t *testing.T, n int) (left []string) {
	t.Helper()
	deadline := time.After(time.Minute)
	for len(left) < n {
		select {
		case budgets := <-u.done:
			left = append(left, budgets)
		case <-deadline:
			require.FailNow(t, "limiters that nothing refers to are still in the plan",
				"%d of %d have left", len(left), n)
		default:
			runtime.GC()
			runtime.Gosched()
		}
	}
	return left
}

func hourly(name string, tokens int64) []limiter.Budget {
	return []limiter.Budget{{Name: name, Scope: limiter.ByPrincipal, Limit: limiter.PerHour(tokens),
		OnError: limiter.Closed}}
}

func takeAs(t *testing.T, l *limiter.Limiter, id string) limiter.Decision {
	t.Helper()
	d, err := l.Take(t.Context(), limiter.Caller{
		Principal: limiter.Principal{Kind: "user", ID: id}}, 1)
	require.NoError(t, err)
	return d
}

// The 200 that nothing refers to any more have no share, those in use keep theirs.
func TestLimiter_HoldsNothingInThePlanOfItsStoreOnceItIsDropped(t *testing.T) {
	const dropped, live, maxAccounts = 200, 3, 100_000
	store := newUnplans(t, maxAccounts, dropped)
	for i := range dropped {
		l, err := limiter.New(store, hourly(fmt.Sprint("dropped-", i), 5), limiter.Config{})
		require.NoError(t, err)
		require.True(t, takeAs(t, l, "alice").Allowed())
	}
	var kept []*limiter.Limiter
	for i := range live {
		l, err := limiter.New(store, hourly(fmt.Sprint("live-", i), 5), limiter.Config{})
		require.NoError(t, err)
		kept = append(kept, l)
	}
	store.collect(t, dropped)
	// A fair share: three quarters of the cap in three, less 256 overflow accounts.
	const share = maxAccounts*3/4/live - 256
	for i := range share {
		takeAs(t, kept[live-1], fmt.Sprint("caller-", i))
	}
	assert.Zero(t, store.Stats().OverflowTakes)
	takeAs(t, kept[live-1], "one more")
	assert.EqualValues(t, 1, store.Stats().OverflowTakes, "the share of the others is theirs")
	runtime.KeepAlive(kept)
}

func TestLimiter_ThatIsDroppedTakesNoShareFromOneWithTheSameBudget(t *testing.T) {
	store := newUnplans(t, 100_000, 3)
	kept, err := limiter.New(store, hourly("api", 5), limiter.Config{})
	require.NoError(t, err)
	beside, err := limiter.New(store, hourly("beside", 5), limiter.Config{})
	require.NoError(t, err)
	func() {
		dropped, err := limiter.New(store, hourly("api", 5), limiter.Config{})
		require.NoError(t, err)
		require.NoError(t, dropped.Reload(append(hourly("api", 5), hourly("more", 5)...)))
		require.Equal(t, "[api]", <-store.done, "what a Reload replaces")
	}()
	require.Equal(t, []string{"[api more]"}, store.collect(t, 1), "what was planned last")
	const share = 100_000*3/4/2 - 256
	for i := range share + 1 {
		takeAs(t, kept, fmt.Sprint("caller-", i))
	}
	assert.EqualValues(t, 1, store.Stats().OverflowTakes, "two budgets share the store")
	runtime.KeepAlive([]any{kept, beside})
}

// sharing makes limiters over one store, and keeps what they log.
type sharing struct {
	t     *testing.T
	store limiter.Store
	log   bytes.Buffer
}

func (s *sharing) open(name string, budgets []limiter.Budget) *limiter.Limiter {
	l, err := limiter.New(s.store, budgets, limiter.Config{Name: name,
		Logger: slog.New(slog.NewTextHandler(&s.log, nil))})
	require.NoError(s.t, err)
	return l
}

// lines returns what was logged since the last call.
func (s *sharing) lines() []string {
	lines := strings.FieldsFunc(s.log.String(), func(r rune) bool { return r == '\n' })
	s.log.Reset()
	return lines
}

func TestNew_LogsABudgetThatTwoLimitersShareUnderDifferentRules(t *testing.T) {
	first := hourly("api", 10)
	for name, change := range map[string]func(*limiter.Budget){
		"a limit":      func(b *limiter.Budget) { b.Limit.Tokens = 20 },
		"a burst":      func(b *limiter.Budget) { b.Limit.Burst = 20 },
		"a period":     func(b *limiter.Budget) { b.Limit.Per = time.Minute },
		"a scope":      func(b *limiter.Budget) { b.Scope |= limiter.ByRoute },
		"an algorithm": func(b *limiter.Budget) { b.Limit.Algorithm = limiter.FixedWindow },
	} {
		t.Run(name, func(t *testing.T) {
			s := &sharing{t: t, store: limiter.Must(memstore.New(memstore.Config{}))}
			second := hourly("api", 10)
			change(&second[0])
			edge, inner := s.open("edge", first), s.open("inner", second)
			lines := s.lines()
			require.Len(t, lines, 1)
			assert.Contains(t, lines[0], "code=budget-shared")
			assert.Contains(t, lines[0], "limiter=inner")
			assert.Contains(t, lines[0], "other_limiter=edge")
			assert.Contains(t, lines[0], "budget=api")
			require.NoError(t, inner.Reload(second))
			require.NoError(t, edge.Reload(first))
			assert.Empty(t, s.lines(), "it is logged once")
			runtime.KeepAlive([]any{edge, inner})
		})
	}
}

func TestNew_IsSilentAboutABudgetThatIsSharedOnPurpose(t *testing.T) {
	s := &sharing{t: t, store: limiter.Must(memstore.New(memstore.Config{}))}
	spelled := hourly("api", 10)
	spelled[0].Limit.Burst = 10 // the default, spelled out
	spelled[0].Routes, spelled[0].Shadow = []string{"GET /"}, true
	other := s.open("other-budget", hourly("more", 20))
	elsewhere := s.open("other-store", hourly("api", 10))
	s2 := &sharing{t: t, store: limiter.Must(memstore.New(memstore.Config{}))}
	apart := s2.open("other-store", hourly("api", 20))
	same := s.open("same", spelled)
	assert.Empty(t, s.lines())
	assert.Empty(t, s2.lines())
	runtime.KeepAlive([]any{other, elsewhere, apart, same})
}

func TestReload_LogsABudgetThatItMakesDiffer(t *testing.T) {
	s := &sharing{t: t, store: limiter.Must(memstore.New(memstore.Config{}))}
	edge, inner := s.open("edge", hourly("api", 10)), s.open("inner", hourly("other", 20))
	require.Error(t, inner.Reload(hourly("api", -1)))
	require.Empty(t, s.lines())
	require.NoError(t, inner.Reload(hourly("api", 20)))
	require.Len(t, s.lines(), 1)
	third := s.open("third", hourly("api", 10))
	lines := s.lines()
	require.Len(t, lines, 1, "of another pair")
	assert.Contains(t, lines[0], "limiter=third")
	assert.Contains(t, lines[0], "other_limiter=inner")
	runtime.KeepAlive([]any{edge, inner, third})
}

func TestNew_IsSilentAboutALimiterThatWasDropped(t *testing.T) {
	store := newUnplans(t, 0, 1)
	s := &sharing{t: t, store: store}
	s.open("dropped", hourly("api", 10))
	store.collect(t, 1)
	s.open("kept", hourly("api", 20))
	assert.Empty(t, s.lines())
}

// slices cannot be compared, and neither can this store.
type incomparable struct {
	limiter.Store
	_ []int
}

func TestNew_TakesAStoreThatCannotBeCompared(t *testing.T) {
	s := &sharing{t: t,
		store: incomparable{Store: limiter.Must(memstore.New(memstore.Config{}))}}
	edge, inner := s.open("edge", hourly("api", 10)), s.open("inner", hourly("api", 20))
	assert.Empty(t, s.lines())
	runtime.KeepAlive([]any{edge, inner})
}

// wrapped hides what the store is.
type wrapped struct{ limiter.Store }

func TestNew_RefusesAStoreThatItsConstructorDidNotMake(t *testing.T) {
	for _, store := range []limiter.Store{&memstore.Store{}, wrapped{&memstore.Store{}}} {
		l, err := limiter.New(store, hourly("api", 10), limiter.Config{})
		assert.Nil(t, l)
		var config *limiter.ConfigError
		require.ErrorAs(t, err, &config)
		assert.Equal(t, "Store", config.Field)
	}
}
