package middleware_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/middleware"
)

// onlyFailures gives successes back.
func onlyFailures(status int, reserved int64) int64 {
	if status < http.StatusBadRequest {
		return 0
	}
	return reserved
}

// The shapes of frameworks around middleware of net/http. Each serves a login
// whose password is wrong: check counts it, and the layer outside the middleware
// answers 401.
var frameworks = map[string]func(
	limit func(http.Handler) http.Handler, check func(),
) http.Handler{
	// As echo.WrapMiddleware does: the handler's error passes the middleware in a
	// variable, and the error handler outside writes the answer.
	"returned-error": func(limit func(http.Handler) http.Handler, check func()) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var err error
			limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				check()
				err = errors.New("wrong password")
			})).ServeHTTP(w, r)
			if err != nil {
				http.Error(w, err.Error(), http.StatusUnauthorized)
			}
		})
	},
	// As echo does with an error handler in the middleware: it writes to the writer
	// that the middleware made, after the middleware has returned.
	"late-writer": func(limit func(http.Handler) http.Handler, check func()) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var inner http.ResponseWriter
			limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				check()
				inner = w
			})).ServeHTTP(w, r)
			if inner == nil {
				return // refused by the limiter
			}
			http.Error(inner, "wrong password", http.StatusUnauthorized)
		})
	},
	// As adaptors for fiber do: the middleware runs around a handler that only
	// remembers that it ran, and the real one runs afterwards.
	"afterwards": func(limit func(http.Handler) http.Handler, check func()) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next := false
			limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				next = true
			})).ServeHTTP(w, r)
			if next {
				check()
				w.WriteHeader(http.StatusUnauthorized)
			}
		})
	},
	// As gin does: the handler writes to gin's own writer and not to the one that
	// the middleware made.
	"past-the-writer": func(limit func(http.Handler) http.Handler, check func()) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			outer := w
			limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				check()
				outer.WriteHeader(http.StatusUnauthorized)
			})).ServeHTTP(w, r)
		})
	},
	// As gin's writer does: a status is only noted until the body comes, and a
	// later one takes its place.
	"noted-status": func(limit func(http.Handler) http.Handler, check func()) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			noted := &noting{ResponseWriter: w}
			limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				check()
				w.WriteHeader(http.StatusOK)
			})).ServeHTTP(noted, r)
			if !noted.Written() && noted.status == http.StatusOK {
				noted.WriteHeader(http.StatusUnauthorized)
			}
			noted.WriteHeaderNow()
		})
	},
	"noted-status-twice": func(limit func(http.Handler) http.Handler, check func()) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			noted := &noting{ResponseWriter: w}
			limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				check()
				w.WriteHeader(http.StatusOK)
				w.WriteHeader(http.StatusUnauthorized)
				_, _ = io.WriteString(w, "wrong password")
			})).ServeHTTP(noted, r)
			noted.WriteHeaderNow()
		})
	},
}

// noting is a ResponseWriter that sends the last status, with the body.
type noting struct {
	http.ResponseWriter
	status  int
	written bool
}

func (n *noting) Written() bool          { return n.written }
func (n *noting) WriteHeader(status int) { n.status = status }

func (n *noting) Write(p []byte) (int, error) {
	n.WriteHeaderNow()
	return n.ResponseWriter.Write(p)
}

func (n *noting) WriteHeaderNow() {
	if !n.written && n.status != 0 {
		n.ResponseWriter.WriteHeader(n.status)
	}
	n.written = true
}

func TestByStatus_AnErrorWrittenFurtherOutIsNoSuccess(t *testing.T) {
	for name, build := range frameworks {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/http2=%t", name, http2), func(t *testing.T) {
				l, log := logged(t, perHour(5))
				m := limiter.Must(middleware.New(l, byAddress, keying.Pattern,
					middleware.Config{ByStatus: onlyFailures}))
				checked := 0
				server := protocol(t, http2, build(m.Handler, func() { checked++ }))
				statuses := map[int]int{}
				for range 100 {
					resp, _ := exchange(t, server, "POST", "/login", "")
					statuses[resp.StatusCode]++
				}
				server.Close()
				assert.Equal(t, 5, checked, "of 100 wrong passwords")
				assert.Equal(t, map[int]int{401: 5, 429: 95}, statuses)
				assert.Equal(t, []string{"status-unknown"}, codes(log))
				assert.Contains(t, log.String(), "route=unmatched")
			})
		}
	}
}

// With writers that only note the status, one that was sent is known.
func TestByStatus_AStatusSentByAWriterThatNotesItIsKnown(t *testing.T) {
	f := newFixture(t, tokens)
	limit := f.middleware(t, byUser, keying.Pattern, middleware.Config{ByStatus: onlyFailures})
	authenticate(limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "done")
	}))).ServeHTTP(&noting{ResponseWriter: httptest.NewRecorder()}, get("/", "alice")())
	assert.Zero(t, spent(t, f, "alice", 100))
}

// What the service has settled itself needs no status, and what a caller brings
// about is no mistake of the service.
func TestByStatus_LogsNoUnknownStatusThatIsInOrder(t *testing.T) {
	left, leave := context.WithCancel(t.Context())
	for name, tt := range map[string]struct {
		ctx     context.Context
		handler http.HandlerFunc
	}{
		"settled":     {t.Context(), settles(3)},
		"caller-gone": {left, func(http.ResponseWriter, *http.Request) { leave() }},
		"panic":       {t.Context(), func(http.ResponseWriter, *http.Request) { panic("mistake") }},
		"rpc":         {t.Context(), typed("application/grpc", 200)},
		"status":      {t.Context(), answers(204)},
		"taken-over":  {t.Context(), takesOver},
		"empty-body":  {t.Context(), func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(nil) }},
	} {
		t.Run(name, func(t *testing.T) {
			l, log := logged(t, tokens)
			m := limiter.Must(middleware.New(l, keying.Authenticated(keying.OrShared()), keying.Pattern,
				middleware.Config{Settles: true, ByStatus: onlyFailures}))
			server := protocol(t, false, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				m.Handler(tt.handler).ServeHTTP(w, r.WithContext(tt.ctx))
			}))
			resp, err := server.Client().Get(server.URL)
			if err == nil {
				require.NoError(t, resp.Body.Close())
			}
			server.Close()
			assert.Empty(t, codes(log))
		})
	}
}

// typed answers with a content type.
func typed(contentType string, status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		w.Header().Del("Content-Type") // is sent already
	}
}

func TestByStatus_AnRPCWithStatus200KeepsItsCost(t *testing.T) {
	for _, tt := range []struct {
		contentType string
		status      int
		spent       int64
	}{
		{"application/grpc", 200, 7},
		{"application/grpc+proto", 200, 7},
		{"application/grpc;charset=utf-8", 200, 7},
		{"Application/GRPC", 200, 7},
		{"application/grpc-web", 200, 7},
		{"application/grpc-web+proto", 200, 7},
		{"application/grpc-web-text+proto", 200, 7},
		{"application/connect+proto", 200, 7},
		{"application/connect+json", 200, 7},
		// Unary calls of Connect have real statuses, and so have errors in front of a
		// protocol.
		{"application/proto", 200, 0},
		{"application/json", 200, 0},
		{"application/json", 401, 7},
		{"application/grpc", 204, 0},
		{"application/grpc", 415, 7},
		{"", 200, 0},
	} {
		f := newFixture(t, tokens)
		limit := f.middleware(t, byUser, keying.Pattern,
			middleware.Config{Cost: seven, ByStatus: onlyFailures})
		r := httptest.NewRequest("POST", "/pkg.Service/Method", nil)
		// What the request says of itself is the caller's to choose.
		r.Header.Set("Content-Type", "application/grpc")
		r.Header.Set("X-Test-User", "alice")
		authenticate(limit(typed(tt.contentType, tt.status))).ServeHTTP(httptest.NewRecorder(), r)
		assert.Equal(t, tt.spent, spent(t, f, "alice", 100), "%s %d", tt.contentType, tt.status)
	}
}

// A stream of Connect states its failure in the last envelope of a 200.
func TestByStatus_WrongPasswordsOverConnectAreNoSuccesses(t *testing.T) {
	f := newFixture(t, perHour(5))
	checked := 0
	server := serve(t, f.middleware(t, byAddress, keying.Pattern, middleware.Config{
		ByStatus: onlyFailures,
	})(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		checked++
		w.Header().Set("Content-Type", "application/connect+proto")
		const end = `{"error":{"code":"unauthenticated"}}`
		_, _ = w.Write(append(binary.BigEndian.AppendUint32([]byte{2}, uint32(len(end))), end...))
	})))
	for range 100 {
		exchange(t, server, "POST", "/auth.Logins/Stream", "")
	}
	server.Close()
	assert.Equal(t, 5, checked, "of 100 wrong passwords")
}
