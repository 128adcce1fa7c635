package middleware_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
	"github.com/ration-go/ration/middleware"
)

// gated is a fixture whose limiter has a gate, and how often that was called.
func gated(t *testing.T, result limiter.GateResult) (f *fixture, asked *int) {
	t.Helper()
	f, asked = &fixture{seen: &seen{}}, new(int)
	var err error
	f.limiter, err = limiter.New(limiter.Must(memstore.New(memstore.Config{})),
		[]limiter.Budget{tokens}, limiter.Config{Observer: f.seen.observer(),
			Gate: func(_ context.Context, c limiter.Caller) limiter.GateResult {
				assert.Equal(t, limiter.Caller{Principal: limiter.Principal{Kind: "user", ID: "alice"},
					Route: keying.Unmatched}, c)
				*asked++
				return result
			}})
	require.NoError(t, err)
	return f, asked
}

func TestGate_DecidesBeforeAnyBudget(t *testing.T) {
	for name, tt := range map[string]struct {
		result  limiter.GateResult
		status  int
		retry   string
		outcome string
		left    string
	}{
		"budgets":       {limiter.GateResult{}, 200, "", "allow", `"tokens";r=99;t=36`},
		"exempt":        {limiter.GateResult{Exempt: true}, 200, "", "skipped", ""},
		"blocked":       {limiter.GateResult{Blocked: true}, 429, "", "never", ""},
		"blocked-until": {limiter.GateResult{Blocked: true, RetryAfter: 90 * time.Second}, 429, "90", "deny", ""},
	} {
		for _, cfg := range []middleware.Config{{}, {Settles: true, Caller: true}, {ByStatus: byStatus}} {
			f, asked := gated(t, tt.result)
			limit := f.middleware(t, byUser, keying.Pattern, cfg)
			w := send1(authenticate(limit(limit(answers(http.StatusOK)))))
			assert.Equal(t, tt.status, w.Code, name)
			assert.Equal(t, tt.retry, w.Header().Get("Retry-After"), name)
			assert.Equal(t, tt.left, w.Header().Get("RateLimit"), name)
			assert.Equal(t, []string{"http unmatched " + tt.outcome}, f.seen.take(), name)
			assert.Equal(t, 1, *asked, "%s: asked once a request", name)
			if tt.status == 429 {
				assert.Contains(t, w.Body.String(), `"violated-policies":[]`)
			}
		}
	}
}
