package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
	"github.com/ration-go/ration/middleware"
)

// Thirty clients that come at once, to ten a second, need 50 attempts at the least.
func TestJitter_SpreadsClientsThatAreRefusedTogether(t *testing.T) {
	most := map[string]int{}
	for _, c := range append(forms, call{"GET", "/", nil, ""}) {
		for range 100 {
			synctest.Test(t, func(t *testing.T) {
				attempts := comeTogether(t, c)
				most[c.protocol] = max(most[c.protocol], attempts)
				assert.LessOrEqual(t, attempts, 60, c.protocol)
			})
		}
	}
	t.Log("attempts, at most: ", most)
}

// comeTogether lets 30 clients call at once, and each again as it is told until it is let
// in. It returns how often they have called.
func comeTogether(t *testing.T, c call) (attempts int) {
	store := limiter.Must(memstore.New(memstore.Config{}))
	l := limiter.Must(limiter.New(store, []limiter.Budget{{Name: "all",
		Limit: limiter.PerSecond(10)}}, limiter.Config{}))
	h := limiter.Must(middleware.New(l, byAddress, keying.Pattern,
		middleware.Config{Jitter: 3 * time.Second})).Handler(http.NotFoundHandler())
	var mu sync.Mutex
	var clients sync.WaitGroup
	for range 30 {
		clients.Go(func() {
			for {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, c.request(2))
				mu.Lock()
				attempts++
				mu.Unlock()
				if w.Code == http.StatusNotFound {
					return
				}
				time.Sleep(told(t, c, w))
			}
		})
	}
	clients.Wait()
	return attempts
}

// told returns the wait that a refusal states to a client.
func told(t *testing.T, c call, w *httptest.ResponseRecorder) time.Duration {
	t.Helper()
	stated, unit := w.Header().Get("Retry-After"), time.Second
	if c.protocol == "grpc" {
		stated, unit = w.Header().Get("Grpc-Retry-Pushback-Ms"), time.Millisecond
	}
	n, err := strconv.Atoi(stated)
	assert.NoError(t, err)
	return time.Duration(n) * unit
}

// RetryInfo, pushback and Retry-After state one wait, which is long enough for an outer
// limiter whose account is empty. Calls of gRPC have no state of it.
func TestRPC_TheWaitCoversAnOuterLimiter(t *testing.T) {
	outer := limiter.Budget{Name: "outer", Scope: limiter.ByPrincipal,
		Limit: limiter.Limit{Tokens: 1, Per: 20 * time.Second, Burst: 2}}
	inner := limiter.Budget{Name: "inner", Scope: limiter.ByPrincipal, Limit: limiter.PerSecond(1)}
	for _, c := range forms[1:] {
		t.Run(c.protocol, func(t *testing.T) {
			h := newFixture(t, outer).middleware(t, byAddress, keying.Pattern, middleware.Config{})(
				newFixture(t, inner).middleware(t, byAddress, keying.Pattern, middleware.Config{})(
					http.NotFoundHandler()))
			h.ServeHTTP(httptest.NewRecorder(), c.request(2))
			w := httptest.NewRecorder()
			h.ServeHTTP(w, c.request(2))
			got := readRefusal(t, c.protocol, w)
			assert.Equal(t, "20", w.Header().Get("Retry-After"))
			assert.Equal(t, 20*time.Second,
				got.details[0].(*errdetails.RetryInfo).GetRetryDelay().AsDuration())
			assert.Equal(t, "rate limit exceeded; retry in 20s", got.message)
			if strings.HasPrefix(c.protocol, "grpc") {
				assert.Equal(t, "20000", got.pushback)
			}
		})
	}
}
