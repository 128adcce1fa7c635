package limiter_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
)

// recorder is an observer that writes down.
type recorder struct {
	mu     sync.Mutex
	events []string
	hook   func()
}

func (r *recorder) add(event string) {
	if r.hook != nil {
		r.hook()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, event)
}

func (r *recorder) Configured(l string, budgets []string) {
	r.add("configured " + l + " " + strings.Join(budgets, ","))
}

func (r *recorder) Decided(e limiter.DecisionEvent) {
	r.add(e.Limiter + " " + e.Budget + " " + e.Verdict.String())
}

func (r *recorder) Answered(e limiter.RequestEvent) {
	r.add(e.Limiter + " " + e.Transport + " " + e.Route + " " + e.Answer.String())
}

func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	events := r.events
	r.events = nil
	return events
}

func TestLimiter_HooksMayCallTheLimiter(t *testing.T) {
	clock, seen := new(manual), new(recorder)
	var l *limiter.Limiter
	depth := 0
	again := func() {
		if depth++; depth == 1 && l != nil {
			_, _ = l.Peek(background, bob, 1)
			_, _ = l.Take(background, bob, 1)
		}
		depth--
	}
	seen.hook = again
	s := storeWithNow(t, func() time.Time { again(); return clock.now() })
	budgets := []limiter.Budget{{Name: "b", Limit: limiter.PerHour(1000),
		LimitFor: func(context.Context, limiter.Caller) limiter.Limit {
			again()
			return limiter.PerHour(1000)
		}}}
	l = limiter.Must(limiter.New(s, budgets, limiter.Config{Observer: seen}))
	for range 10 {
		take(t, l, alice, 1)
	}
	require.NoError(t, l.Reload(budgets))
	d, err := l.Peek(background, alice, 0)
	require.NoError(t, err)
	assert.Less(t, d.Remaining, int64(990))
}

func TestLimiter_ReportsToItsObserver(t *testing.T) {
	seen := new(recorder)
	budgets := []limiter.Budget{{Name: "b", Limit: limiter.PerHour(10)}}
	l := limiter.Must(limiter.New(newStore(t, new(manual)), budgets,
		limiter.Config{Name: "api", Observer: seen}))
	assert.Equal(t, "api", l.Name())
	for _, cost := range []int64{8, 1, 2, 11} {
		take(t, l, alice, cost)
	}
	l.Answered("http", "GET /", limiter.AnswerAllow)
	require.NoError(t, l.Reload(append(budgets, limiter.Budget{Name: "c", Limit: budgets[0].Limit})))
	assert.Equal(t, []string{"configured api b", "api b allow", "api b near_limit", "api b deny",
		"api b never", "api http GET / allow", "configured api b,c"}, seen.take())
}

func TestObserver_LabelsAreTheNamesThatDashboardsKnow(t *testing.T) {
	var verdicts, answers []string
	for _, v := range limiter.Verdicts() {
		verdicts = append(verdicts, v.String())
	}
	for _, a := range limiter.Answers() {
		answers = append(answers, a.String())
	}
	slices.Sort(verdicts)
	slices.Sort(answers)
	assert.Equal(t, []string{"allow", "deny", "near_limit", "never", "shadow_allow",
		"shadow_deny"}, verdicts)
	assert.Equal(t, []string{"allow", "canceled", "deny", "error_closed",
		"error_open", "never", "skipped", "unauthenticated"}, answers)
}
