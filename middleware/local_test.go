package middleware_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
	"github.com/ration-go/ration/limiter/resilient"
	"github.com/ration-go/ration/limiter/storekit"
	"github.com/ration-go/ration/middleware"
)

// A denial by this process's share is a denial: 429 with the name of the budget, and
// without a state, which would be that of the share.
func TestMiddleware_ALocalDenialIsADenial(t *testing.T) {
	down := failing{err: &limiter.StoreError{Reason: storekit.Unavailable, Err: errors.New("down")}}
	store := limiter.Must(resilient.New(down, limiter.Must(memstore.New(memstore.Config{})),
		resilient.Config{Replicas: func() int { return 10 }}))
	f := &fixture{seen: &seen{}}
	f.limiter = limiter.Must(limiter.New(store, []limiter.Budget{{
		Name: "orders", Scope: perRoute, Limit: limiter.PerHour(10), OnError: limiter.Local,
	}}, limiter.Config{Observer: f.seen.observer()}))
	ask := func(cfg middleware.Config) (*http.Response, string) {
		cfg.Failed = func(http.ResponseWriter, *http.Request, error) { t.Error("the service can decide") }
		return exchange(t, serve(t, f.middleware(t, byAddress, keying.Pattern, cfg)(
			http.NotFoundHandler())), "GET", "/", "")
	}
	resp, _ := ask(middleware.Config{})
	assert.Equal(t, 404, resp.StatusCode)
	assert.Empty(t, resp.Header["Ratelimit"])
	resp, body := ask(middleware.Config{})
	assert.Equal(t, `429 Too Many Requests
Cache-Control: no-store
Content-Type: application/problem+json
Retry-After: 360

{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",`+
		`"title":"Quota Exceeded","status":429,"violated-policies":["orders"]}
`, golden(resp, body))

	var denied int
	ask(middleware.Config{Denied: func(http.ResponseWriter, *http.Request, limiter.Decision) { denied++ }})
	assert.Equal(t, 1, denied)
	local := "http unmatched error_local"
	assert.Equal(t, []string{local, local, local}, f.seen.take())
}
