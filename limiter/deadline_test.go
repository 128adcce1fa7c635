package limiter_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/storekit"
)

// The caller's own deadline is no failure of the store: no policy answers, whatever
// the store says of it, before or after the context has ended (R14).
func TestLimiter_TheCallersOwnDeadlineNeverBringsThePolicyAbout(t *testing.T) {
	storeError := &limiter.StoreError{Reason: storekit.Timeout, Err: context.DeadlineExceeded}
	const none, anHourAway, passed, leaves = 0, 1, 2, 3 // deadlines of callers, and one that leaves
	for name, test := range map[string]struct {
		caller int
		err    error // of the store
		want   error // nil: a failure of the store
	}{
		"foreseen":                   {anHourAway, storekit.ErrDeadline, context.DeadlineExceeded},
		"foreseen-and-wrapped":       {anHourAway, fmt.Errorf("no: %w", storekit.ErrDeadline), context.DeadlineExceeded},
		"a-deadline-of-the-store's":  {anHourAway, context.DeadlineExceeded, nil},
		"a-dial-that-times-out":      {anHourAway, os.ErrDeadlineExceeded, nil},
		"a-cancelled-caller":         {leaves, context.Canceled, context.Canceled},
		"with-an-error-of-the-store": {leaves, storeError, context.Canceled},
		"with-another-error":         {leaves, errors.New("broken"), context.Canceled},
		"passed":                     {passed, storeError, context.DeadlineExceeded},
		"the-store's-own":            {anHourAway, storeError, nil},
		"no-deadline-of-the-caller":  {none, context.DeadlineExceeded, nil},
		"another-error":              {anHourAway, errors.New("broken"), nil},
	} {
		for _, policy := range []limiter.FailurePolicy{limiter.Open, limiter.Closed} {
			t.Run(fmt.Sprintf("%s/%v", name, policy), func(t *testing.T) {
				store := &hooked{}
				store.err = test.err
				ctx := func() context.Context {
					ctx, cancel := context.WithCancel(t.Context())
					switch store.before = func() {}; test.caller {
					case anHourAway:
						ctx, cancel = context.WithTimeout(t.Context(), time.Hour)
					case passed:
						ctx, cancel = context.WithTimeout(t.Context(), 0)
					case leaves:
						store.before = cancel
					}
					t.Cleanup(cancel)
					return ctx
				}
				l := limiter.Must(limiter.New(store, []limiter.Budget{
					{Name: "a", Limit: limiter.PerHour(5), OnError: policy}},
					limiter.Config{Logger: slog.New(slog.DiscardHandler)}))
				check := func(d limiter.Decision, err error) {
					t.Helper()
					_, failed := errors.AsType[*limiter.StoreError](err)
					assert.Equal(t, test.want == nil, failed, "%v", err)
					if test.want != nil {
						require.ErrorIs(t, err, test.want)
						assert.Zero(t, d, "no answer of a policy")
					}
				}
				check(l.Take(ctx(), limiter.Caller{}, 1))
				check(l.Peek(ctx(), limiter.Caller{}, 1))
				r, err := l.Reserve(ctx(), limiter.Caller{}, 1)
				if test.want != nil {
					require.ErrorIs(t, err, test.want)
					assert.Zero(t, r.Decision)
				}
			})
		}
	}
}

// hooked is a failing store that calls a function first.
type hooked struct {
	failing
	before func()
}

func (h *hooked) Take(ctx context.Context, c []limiter.Charge) (limiter.Decision, error) {
	h.before()
	return h.failing.Take(ctx, c)
}

func (h *hooked) Peek(ctx context.Context, c []limiter.Charge) (limiter.Decision, error) {
	h.before()
	return h.failing.Peek(ctx, c)
}

func TestLimiter_SaysOnceThatDeadlinesOfCallersEndBeforeTheStoreAnswers(t *testing.T) {
	var log bytes.Buffer
	store := &failing{err: storekit.ErrDeadline}
	l := limiter.Must(limiter.New(store, []limiter.Budget{
		{Name: "a", Limit: limiter.PerHour(5), OnError: limiter.Closed}},
		limiter.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}))
	ctx, stop := context.WithTimeout(t.Context(), time.Hour)
	defer stop()
	for range 3 {
		_, err := l.Take(ctx, limiter.Caller{}, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	assert.Equal(t, 1, strings.Count(log.String(), "code=deadline-first"), log.String())
	assert.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
}
