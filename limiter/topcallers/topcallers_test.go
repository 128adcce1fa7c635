package topcallers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
	"github.com/ration-go/ration/limiter/resilient"
	"github.com/ration-go/ration/limiter/topcallers"
)

func newTop(t testing.TB, cfg topcallers.Config) (*topcallers.Top, func(limiter.DecisionEvent)) {
	t.Helper()
	top, err := topcallers.New(cfg)
	require.NoError(t, err)
	decided := top.Observer().Decided
	return top, func(e limiter.DecisionEvent) { decided(context.Background(), e) }
}

// requestOf is an allowed request of a user.
func requestOf(id string) limiter.DecisionEvent {
	return allowed(limiter.Caller{Principal: limiter.Principal{Kind: "user", ID: id}})
}

// refuse makes the event one of a request that the budget has refused.
func refuse(e limiter.DecisionEvent) limiter.DecisionEvent {
	e.Decision.Outcome = limiter.Deny
	e.Charges[0].Result = limiter.Result{Outcome: limiter.Deny, RetryAfter: time.Second}
	return e
}

// within holds a ranking to the promise: all counts are at least the true ones, at most
// their error above them, no error is above N/512, and nobody with more is missing.
func within(t *testing.T, r topcallers.Ranking, truth map[string]int64) {
	t.Helper()
	var n int64
	for _, count := range truth {
		n += count
	}
	require.Equal(t, n, r.Total)
	seen := map[string]bool{}
	for _, c := range r.Callers {
		seen[c.ID] = true
		require.GreaterOrEqual(t, c.Count, truth[c.ID], c.ID)
		require.LessOrEqual(t, c.Count-c.Error, truth[c.ID], c.ID)
		require.LessOrEqual(t, c.Error, n/512, c.ID)
	}
	for id, count := range truth {
		if count > n/512 {
			require.True(t, seen[id], "%s has %d of %d and is missing", id, count, n)
		}
	}
	require.True(t, slices.IsSortedFunc(r.Callers, func(a, b topcallers.Caller) int {
		return int(b.Count - a.Count)
	}))
}

// The streams are a million requests long: two of callers who differ much, one of callers
// who come equally often, one in which each comes once, and one in which those with many
// requests come last, when all cells are taken.
func TestTop_IsWithinItsBoundOnStreamsOfAMillion(t *testing.T) {
	const length = 1_000_000 / slowdown // make test also runs them in full
	last := append(callers(length/2), zipf(1.5, 3, length/2, 300)...)
	cycle := make([]*limiter.Principal, 0, length)
	for all := callers(513); len(cycle) < length; {
		cycle = append(cycle, all...)
	}
	for name, stream := range map[string][]*limiter.Principal{
		"zipf-1.5": zipf(1.5, 1, length, 100_000), "zipf-1.1": zipf(1.1, 2, length, 100_000),
		"cycle": cycle[:length], "once": callers(length), "many-last": last,
	} {
		t.Run(name, func(t *testing.T) {
			top, decided := newTop(t, topcallers.Config{})
			truth := map[string]int64{}
			e := requestOf("")
			for _, p := range stream {
				e.Caller.Principal = *p
				decided(e)
				truth[p.ID]++
			}
			within(t, top.Budgets(512)[0].Requests, truth)
		})
	}
}

// Several goroutines take cells from each other while they are read.
func TestTop_IsWithinItsBoundUnderConcurrency(t *testing.T) {
	top, decided := newTop(t, topcallers.Config{})
	const workers, each = 4, 100_000 / slowdown
	truth := map[string]int64{}
	var all sync.WaitGroup
	for worker := range workers {
		stream := zipf(1.2, int64(worker), each, 20_000)
		for _, p := range stream {
			truth[p.ID]++
		}
		all.Go(func() {
			e := requestOf("")
			for _, p := range stream {
				e.Caller.Principal = *p
				decided(e)
			}
		})
	}
	all.Go(func() {
		for range 50 {
			top.Budgets(10)
		}
	})
	all.Wait()
	within(t, top.Budgets(512)[0].Requests, truth)
}

// One caller and 100,000 requests by many goroutines: nothing is lost.
func TestTop_CountsExactlyUpTo512Callers(t *testing.T) {
	top, decided := newTop(t, topcallers.Config{})
	all := callers(512)
	var workers sync.WaitGroup
	for worker := range 8 {
		workers.Go(func() {
			e := requestOf("")
			for i := range 12_800 {
				e.Caller.Principal = *all[(i+worker)%512]
				decided(e)
			}
		})
	}
	workers.Wait()
	requests := top.Budgets(512)[0].Requests
	assert.EqualValues(t, 8*12_800, requests.Total)
	assert.Len(t, requests.Callers, 512)
	for _, c := range requests.Callers {
		assert.EqualValues(t, 200, c.Count)
		assert.Zero(t, c.Error)
	}
}

func TestTop_RanksEachBudgetByItsOwnResult(t *testing.T) {
	top := limiter.Must(topcallers.New(topcallers.Config{}))
	store := limiter.Must(memstore.New(memstore.Config{Now: func() time.Time { return time.Unix(0, 0) }}))
	l := limiter.Must(limiter.New(store, []limiter.Budget{
		{Name: "user", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(10)},
		{Name: "trial", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(4), Shadow: true},
		{Name: "free", LimitFor: func(context.Context, limiter.Caller) limiter.Limit {
			return limiter.Unlimited
		}, Limit: limiter.PerHour(1)},
	}, limiter.Config{Name: "api", Observer: top.Observer(),
		Gate: func(_ context.Context, c limiter.Caller) limiter.GateResult {
			return limiter.GateResult{Blocked: c.Principal.ID == "mallory"}
		}}))
	take := func(id string, times int) {
		for range times {
			_, err := l.Take(t.Context(), limiter.Caller{Principal: limiter.Principal{Kind: "user", ID: id}}, 1)
			require.NoError(t, err)
		}
	}
	take("alice", 12)
	take("bob", 3)
	take("mallory", 2)
	type row map[string]int64
	got := map[string][3]row{}
	rows := func(r topcallers.Ranking) row {
		counts := row{}
		for _, c := range r.Callers {
			counts[c.ID] = c.Count
		}
		return counts
	}
	for _, b := range top.Budgets(10) {
		assert.Equal(t, "api", b.Limiter)
		got[b.Budget] = [3]row{rows(b.Requests), rows(b.Refusals), rows(b.NearLimit)}
	}
	assert.Equal(t, map[string][3]row{
		"user":  {{"alice": 12, "bob": 3}, {"alice": 2}, {"alice": 2}}, // with 1 and 0 left
		"trial": {{"alice": 12, "bob": 3}, {"alice": 8}, {"alice": 1}},
		"":      {{"mallory": 2}, {"mallory": 2}, {}},
	}, got)
}

func TestTop_CountsWhatAFailurePolicyRefuses(t *testing.T) {
	top, decided := newTop(t, topcallers.Config{})
	e := refuse(requestOf("alice"))
	e.Decision = limiter.Decision{Outcome: limiter.Deny}
	e.Err = &limiter.StoreError{Reason: "timeout", Err: errors.New("x"), Policy: limiter.Closed}
	decided(e)
	e.Decision.Outcome = limiter.Allow
	decided(e)
	budgets := top.Budgets(1)
	require.Len(t, budgets, 1)
	assert.Empty(t, budgets[0].Budget)
	assert.EqualValues(t, 1, budgets[0].Refusals.Total)

	e = refuse(requestOf("alice"))
	e.Err = &limiter.StoreError{Reason: "timeout", Err: errors.New("x"), Policy: limiter.Local}
	decided(e)
	assert.Equal(t, "user", top.Budgets(1)[1].Budget)
}

// unavailable is a store whose server is down.
type unavailable struct{ limiter.Store }

func (unavailable) Take(context.Context, []limiter.Charge) (limiter.Decision, error) {
	return limiter.Decision{}, &limiter.StoreError{Reason: "unavailable", Err: errors.New("down")}
}

// While a store fails, a refusal is that of the budget whose local side has made it, and
// otherwise no budget's; a budget that was not asked has no request.
func TestTop_RanksTheRefusalsOfAnOutage(t *testing.T) {
	memory := func() limiter.Store { return limiter.Must(memstore.New(memstore.Config{})) }
	for _, tt := range []struct {
		policy limiter.FailurePolicy
		cost   int64
		budget string
	}{
		{limiter.Local, 50, "user"}, // more than the limit: never
		{limiter.Local, 6, ""},      // more than the share
		{limiter.Closed, 1, ""},
	} {
		top := limiter.Must(topcallers.New(topcallers.Config{}))
		store := limiter.Must(resilient.New(unavailable{memory()}, memory(),
			resilient.Config{Replicas: func() int { return 2 }}))
		l := limiter.Must(limiter.New(store, []limiter.Budget{
			{Name: "user", Limit: limiter.PerHour(10), OnError: tt.policy},
			{Name: "wide", Limit: limiter.PerHour(100), OnError: tt.policy},
		}, limiter.Config{Observer: top.Observer(), Logger: slog.New(slog.DiscardHandler)}))
		d, _ := l.Take(t.Context(), limiter.Caller{}, tt.cost)
		require.False(t, d.Allowed())
		budgets := top.Budgets(1)
		require.Len(t, budgets, 1)
		assert.Equal(t, tt.budget, budgets[0].Budget)
		assert.EqualValues(t, 1, budgets[0].Requests.Total)
		assert.EqualValues(t, 1, budgets[0].Refusals.Total)
	}
}

func TestTop_EstimatesWorkloads(t *testing.T) {
	for _, labels := range []int{0, 1, 5, 40, 400, 2000, 100_000} {
		top, decided := newTop(t, topcallers.Config{})
		e := requestOf("bot")
		for range 2 {
			for label := range labels {
				e.Caller.Workload = fmt.Sprint("run-", label)
				decided(e)
			}
		}
		e.Caller.Workload = ""
		decided(e)
		got := top.Budgets(1)[0].Requests.Callers[0].Workloads
		if want := min(labels, 3000); want > 2000 {
			assert.Equal(t, want, got)
		} else { // five times the standard error
			assert.InDelta(t, want, got, 2+float64(want)/4, labels)
		}
	}
}

// A window is what the ranking shows; the one before it, too; older ones are gone, and
// with them the budgets. A caller who was in one window only may have been in the other.
func TestTop_ForgetsAfterTwoWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		top, decided := newTop(t, topcallers.Config{Window: time.Minute})
		truth := map[string]int64{}
		for window, s := range []float64{1.3, 1.1} {
			e := requestOf("")
			for _, p := range zipf(s, int64(window), 50_000, 5_000) {
				e.Caller.Principal = *p
				e.Caller.Workload = fmt.Sprint(window)
				decided(e)
				truth[p.ID]++
			}
			within(t, top.Budgets(1024)[0].Requests, truth)
			time.Sleep(time.Minute)
			synctest.Wait()
			within(t, top.Budgets(1024)[0].Requests, func() map[string]int64 {
				if window == 0 {
					return truth
				}
				recent := map[string]int64{}
				for _, p := range zipf(s, int64(window), 50_000, 5_000) {
					recent[p.ID]++
				}
				return recent
			}())
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Empty(t, top.Budgets(1))
		time.Sleep(time.Hour) // no timer runs any more; the next request starts one
		decided(requestOf("alice"))
		assert.Len(t, top.Budgets(1), 1)
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		assert.Empty(t, top.Budgets(1))
	})
}

// Budgets come and go by Reload, and names may be as many as they like: the number that
// is counted is bounded, and there is room again when they are no longer used.
func TestTop_BoundsTheBudgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		top, decided := newTop(t, topcallers.Config{Window: time.Second, MaxBudgets: 3})
		named := func(name string) limiter.DecisionEvent {
			e := requestOf("alice")
			e.Charges[0].Key.Budget, e.Decision.Budget = name, name
			return e
		}
		for i := range 10 {
			decided(named(fmt.Sprint("budget-", i)))
			decided(named("budget-0"))
		}
		assert.Len(t, top.Budgets(1), 3)
		assert.EqualValues(t, 7, top.Uncounted())
		time.Sleep(2 * time.Second)
		synctest.Wait()
		long := strings.Repeat("é", 1<<19)
		for range 5 {
			decided(named(long))
		}
		budgets := top.Budgets(1)
		require.Len(t, budgets, 1)
		assert.LessOrEqual(t, len(budgets[0].Budget), 70)
		assert.EqualValues(t, 5, budgets[0].Requests.Total)
	})
}

// Names that look alike when they are cut, or whose parts are divided otherwise, are
// different callers; none is kept beyond what is shown.
func TestTop_TellsCallersApartAndKeepsLittleOfThem(t *testing.T) {
	top, decided := newTop(t, topcallers.Config{})
	long := strings.Repeat("é", 1<<19)
	principals := []limiter.Principal{
		{Kind: "a", ID: "bc"}, {Kind: "ab", ID: "c"}, {Kind: "a", Tenant: "b", ID: "c"},
		{Kind: "user", ID: long + "1"}, {Kind: "user", ID: long + "2"},
		{Kind: "user", Tenant: long, ID: "x"}, {Kind: "user", ID: "\xff\xfe"}, {},
	}
	for i, p := range principals {
		for range i + 1 {
			decided(allowed(limiter.Caller{Principal: p, Workload: "\xff"}))
		}
	}
	requests := top.Budgets(10)[0].Requests
	require.Len(t, requests.Callers, len(principals))
	for i, c := range requests.Callers {
		assert.EqualValues(t, len(principals)-i, c.Count)
		assert.LessOrEqual(t, len(c.ID), 131)
		assert.LessOrEqual(t, len(c.Tenant), 67)
	}
	assert.Equal(t, strings.Repeat("é", 64)+"…", requests.Callers[3].ID)
}

func TestTop_KeepsNoStringOfARequest(t *testing.T) {
	top, decided := newTop(t, topcallers.Config{})
	body := new([1 << 20]byte)
	copy(body[:], "alice")
	gone := weak.Make(body)
	decided(requestOf(unsafe.String(&body[0], 5)))
	body = nil
	runtime.GC()
	assert.Nil(t, gone.Value())
	assert.Equal(t, "alice", top.Budgets(1)[0].Requests.Callers[0].ID)
}

// A limiter that nobody uses any more is collected, though its observer lives.
func TestTop_HoldsNoLimiter(t *testing.T) {
	top := limiter.Must(topcallers.New(topcallers.Config{}))
	store := limiter.Must(memstore.New(memstore.Config{}))
	l := limiter.Must(limiter.New(store, []limiter.Budget{{Name: "b", Limit: limiter.PerHour(1)}},
		limiter.Config{Observer: top.Observer()}))
	limiter.Must(l.Take(t.Context(), limiter.Caller{}, 1))
	gone := weak.Make(l)
	l = nil
	assert.Eventually(t, func() bool { runtime.GC(); return gone.Value() == nil },
		5*time.Second, time.Millisecond)
	assert.Len(t, top.Budgets(1), 1)
}

func TestTop_ServesJSON(t *testing.T) {
	top, decided := newTop(t, topcallers.Config{})
	for range 3 {
		decided(refuse(requestOf("a\xff<")))
	}
	decided(requestOf("bob"))
	get := func(target string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		top.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
		return w
	}
	w := get("/callers?n=1")
	assert.Equal(t, "application/json", w.Header().Get("Content-Type"))
	assert.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	var budgets []topcallers.Budget
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &budgets))
	assert.Equal(t, top.Budgets(1), budgets)
	assert.Equal(t, "a\uFFFD<", budgets[0].Refusals.Callers[0].ID)

	assert.Equal(t, "[]\n", get("/callers?budget=other").Body.String())
	assert.Equal(t, "[]\n", get("/callers?limiter=other").Body.String())
	assert.Contains(t, get("/callers?limiter=api&budget=user").Body.String(), `"budget": "user"`)
	for _, n := range []string{"0", "-1", "513", "x"} {
		assert.Equal(t, http.StatusBadRequest, get("/callers?n="+n).Code)
	}
}

func TestNew_NamesTheFieldThatIsWrong(t *testing.T) {
	for want, cfg := range map[string]topcallers.Config{
		"topcallers: Config.Window = 1ms: want at least 1s, or 0 for 5m":      {Window: time.Millisecond},
		"topcallers: Config.Window = -1s: want at least 1s, or 0 for 5m":      {Window: -time.Second},
		"topcallers: Config.MaxBudgets = -1: want 1 to 10000, or 0 for 64":    {MaxBudgets: -1},
		"topcallers: Config.MaxBudgets = 10001: want 1 to 10000, or 0 for 64": {MaxBudgets: 10_001},
	} {
		_, err := topcallers.New(cfg)
		var config *limiter.ConfigError
		require.ErrorAs(t, err, &config)
		assert.EqualError(t, err, want)
	}
}

// However callers come and go, requests allocate nothing.
func TestTop_DoesNotAllocate(t *testing.T) {
	_, decided := newTop(t, topcallers.Config{})
	e, all, i := requestOf(""), callers(5000), 0
	for _, p := range all {
		e.Caller.Principal = *p
		decided(e)
	}
	assert.Zero(t, testing.AllocsPerRun(10_000, func() {
		e.Caller.Principal = *all[i%len(all)]
		decided(e)
		i++
	}))
}
