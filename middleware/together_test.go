package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

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
