package limiter_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ration-go/ration/limiter"
)

// outage is a limiter whose store can be made to fail, and what it logs.
type outage struct {
	*limiter.Limiter
	store *fallible
	log   bytes.Buffer
}

func newOutage(policy limiter.FailurePolicy) *outage {
	o := &outage{store: &fallible{can: true}}
	o.Limiter = limiter.Must(limiter.New(o.store, []limiter.Budget{
		{Name: "a", Limit: limiter.PerHour(5), OnError: policy},
	}, limiter.Config{Name: "api", Logger: slog.New(slog.NewTextHandler(&o.log, nil))}))
	return o
}

// ask makes n requests, and returns what is logged.
func (o *outage) ask(ctx context.Context, n int) string {
	o.log.Reset()
	for range n {
		_, _ = o.Take(ctx, limiter.Caller{}, 1)
	}
	return o.log.String()
}

// An outage is logged at once and then once a minute, whatever the policy.
func TestLimiter_LogsThatTheStoreFails(t *testing.T) {
	for _, policy := range []limiter.FailurePolicy{limiter.Open, limiter.Closed} {
		synctest.Test(t, func(t *testing.T) {
			o := newOutage(policy)
			o.store.err = errors.New("connection refused")
			first := o.ask(t.Context(), 3)
			assert.Equal(t, 1, strings.Count(first, "\n"), first)
			for _, part := range []string{"level=WARN", "code=store-failed", "limiter=api", "failures=1",
				`error="limiter: store other: connection refused"`} {
				assert.Contains(t, first, part)
			}
			time.Sleep(time.Minute - 1)
			assert.Empty(t, o.ask(t.Context(), 4))
			time.Sleep(time.Nanosecond)
			assert.Contains(t, o.ask(t.Context(), 1), "failures=8")
		})
	}
}

// Each incident has a line at its beginning and one at its end: a stall of two
// seconds, two seconds that are fine, and an outage of 70 seconds.
func TestLimiter_LogsTheEndOfEachIncident(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutage(limiter.Open)
		during := func(d time.Duration) (lines []string) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				for line := range strings.Lines(o.ask(t.Context(), 1)) {
					_, after, _ := strings.Cut(line, "code=")
					code, _, _ := strings.Cut(after, " ")
					_, after, _ = strings.Cut(line, "failures=")
					lines = append(lines, code+" "+strings.TrimSpace(after))
				}
			}
			return lines
		}
		assert.Empty(t, during(time.Second))
		o.store.err = errors.New("no answer")
		assert.Equal(t, []string{"store-failed 1"}, during(2*time.Second))
		o.store.err = nil
		assert.Equal(t, []string{"store-recovered 20 lasted=1.9s local=0 open=20 closed=0"}, during(2*time.Second))
		o.store.err = errors.New("connection refused")
		assert.Equal(t, []string{"store-failed 1", "store-failed 601"}, during(70*time.Second))
		o.store.err = nil
		assert.Equal(t, []string{"store-recovered 700 lasted=1m9.9s local=0 open=700 closed=0"}, during(time.Minute))
		o.store.err = errors.New("again")
		assert.Equal(t, []string{"store-failed 1"}, during(time.Second))
	})
}

// Answers in between do not end an incident: a store that fails now and then is one.
func TestLimiter_AStoreThatFailsNowAndThenIsOneIncident(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutage(limiter.Open)
		var logged strings.Builder
		for i := range 300 { // for 30 s
			o.store.err = nil
			if i%5 == 0 {
				o.store.err = errors.New("no answer")
			}
			logged.WriteString(o.ask(t.Context(), 1))
			time.Sleep(100 * time.Millisecond)
		}
		assert.Equal(t, 1, strings.Count(logged.String(), "\n"), logged.String())
		o.store.err = nil
		time.Sleep(time.Second)
		assert.Contains(t, o.ask(t.Context(), 1), "failures=60 lasted=29.5s")
		assert.Empty(t, o.ask(t.Context(), 1))
	})
}
