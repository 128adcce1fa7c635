package limiter_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ration-go/ration/limiter"
)

// An outage is told of at once and then once a minute, whatever the policy.
func TestLimiter_TellsOfAStoreThatFails(t *testing.T) {
	for _, policy := range []limiter.FailurePolicy{limiter.Open, limiter.Closed} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			store := &fallible{can: true}
			store.err = errors.New("connection refused")
			l := limiter.Must(limiter.New(store, []limiter.Budget{
				{Name: "a", Limit: limiter.PerHour(5), OnError: policy},
			}, limiter.Config{Name: "api", Logger: slog.New(slog.NewTextHandler(&log, nil))}))
			ask := func(n int) string {
				log.Reset()
				for range n {
					_, _ = l.Take(t.Context(), limiter.Caller{}, 1)
				}
				return log.String()
			}
			first := ask(3)
			assert.Equal(t, 1, strings.Count(first, "\n"), first)
			for _, part := range []string{"code=store-failed", "limiter=api", "failures=1",
				`error="limiter: store other: connection refused"`} {
				assert.Contains(t, first, part)
			}
			time.Sleep(time.Minute - 1)
			assert.Empty(t, ask(4))
			time.Sleep(time.Nanosecond)
			assert.Contains(t, ask(1), "failures=7")
			store.err = nil
			time.Sleep(time.Hour)
			assert.Empty(t, ask(1))
		})
	}
}
