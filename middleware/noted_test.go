package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
	"github.com/ration-go/ration/middleware"
)

// recording records the status until the body comes, as gin's writer does.
type recording struct {
	http.ResponseWriter
	status int
	wrote  bool
}

func (w *recording) WriteHeader(status int) { w.status = status }
func (w *recording) Written() bool          { return w.wrote }

func (w *recording) send() {
	if !w.wrote {
		w.wrote = true
		w.ResponseWriter.WriteHeader(w.status)
	}
}

func (w *recording) Write(p []byte) (int, error) {
	w.send()
	return w.ResponseWriter.Write(p)
}

type wrapping struct{ http.ResponseWriter }

func (w wrapping) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// A wrapper around a writer that only records, or another limiter in the chain,
// must not make a recorded status look sent.
func TestByStatus_ARecordedStatusBehindAWrapperIsNotSent(t *testing.T) {
	onlyFailures := func(status int, reserved int64) int64 {
		if status == http.StatusOK {
			return 0
		}
		return reserved
	}
	limit := func(next http.Handler) http.Handler {
		store := limiter.Must(memstore.New(memstore.Config{}))
		l := limiter.Must(limiter.New(store, []limiter.Budget{{Name: "logins",
			Limit: limiter.PerHour(5)}}, limiter.Config{}))
		return limiter.Must(middleware.New(l, keying.ByAddress(keying.Addresses{}), keying.Pattern,
			middleware.Config{ByStatus: onlyFailures})).Handler(next)
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	for name, h := range map[string]http.Handler{
		"one limiter": limit(handler), "two limiters": limit(limit(handler)),
	} {
		served := 0
		for range 20 {
			w := &recording{ResponseWriter: httptest.NewRecorder(), status: http.StatusOK}
			h.ServeHTTP(wrapping{w}, httptest.NewRequest(http.MethodGet, "/", nil))
			if w.status != http.StatusTooManyRequests {
				served++
				w.status = http.StatusUnauthorized
			}
			w.send()
		}
		assert.Equal(t, 5, served, name)
	}
}

// net/http sends a content type under any spelling of its name.
func TestByStatus_AnRPCIsKnownByAnySpellingOfItsHeader(t *testing.T) {
	store := limiter.Must(memstore.New(memstore.Config{}))
	l := limiter.Must(limiter.New(store, []limiter.Budget{{Name: "logins",
		Limit: limiter.PerHour(5)}}, limiter.Config{}))
	h := limiter.Must(middleware.New(l, keying.ByAddress(keying.Addresses{}), keying.Pattern,
		middleware.Config{ByStatus: func(int, int64) int64 { return 0 }})).Handler(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["content-type"] = []string{"application/connect+proto"}
			w.WriteHeader(http.StatusOK)
		}))
	served := 0
	for range 20 {
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil)); w.Code == http.StatusOK {
			served++
		}
	}
	assert.Equal(t, 5, served)
}
