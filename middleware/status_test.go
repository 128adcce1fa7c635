package middleware_test

import (
	"bufio"
	"errors"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/middleware"
)

// recoverer answers a panic as most services do.
func recoverer(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if p := recover(); p != nil && p != http.ErrAbortHandler {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

func timeout(next http.Handler) http.Handler {
	return http.TimeoutHandler(next, 20*time.Millisecond, "too late")
}

// sent are handlers, and the status of each that the rule must see.
var sent = []struct {
	name    string
	handler http.HandlerFunc
	status  int  // 0: none is known, and the rule is not asked
	only1   bool // not over HTTP/2
}{
	{"body-only", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("x"))
	}, 200, false},
	{"empty-body", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(nil)
	}, 200, false},
	{"string-only", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "x")
	}, 200, false},
	{"flush-first", func(w http.ResponseWriter, _ *http.Request) {
		w.(http.Flusher).Flush()
	}, 200, false},
	{"flush-by-controller", func(w http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(w).Flush()
	}, 200, false},
	{"copy", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.Copy(w, strings.NewReader("x"))
	}, 200, false},
	{"read-from", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.(io.ReaderFrom).ReadFrom(strings.NewReader("x"))
	}, 200, true},
	{"read-from-nothing", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.(io.ReaderFrom).ReadFrom(strings.NewReader(""))
		w.WriteHeader(404)
	}, 404, true},
	{"explicit", answers(401), 401, false},
	{"twice-the-same", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(401)
		w.WriteHeader(401)
	}, 401, false},
	{"after-1xx", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(103)
		w.WriteHeader(102)
		w.WriteHeader(404)
	}, 404, false},
	{"switching-protocols", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(101)
	}, 101, true},
	{"redirect", http.RedirectHandler("/there", http.StatusSeeOther).ServeHTTP, 303, false},
	{"no-body-allowed", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(204)
		_, err := w.Write([]byte("x"))
		if !errors.Is(err, http.ErrBodyNotAllowed) {
			panic(err)
		}
	}, 204, false},
	{"recovered-inside", recoverer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		panic("mistake")
	})).ServeHTTP, 500, false},
	{"status-that-is-none", recoverer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(1000) // panics, and nothing is sent
	})).ServeHTTP, 500, false},
	{"timeout-inside", timeout(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
	})).ServeHTTP, 503, false},

	{"silent", noop, 0, false},
	{"silent-after-1xx", answers(103), 0, false},
	{"copy-of-nothing", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.Copy(w, strings.NewReader(""))
	}, 0, false},
	{"two-statuses", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(200)
		w.WriteHeader(401)
	}, 0, false},
	{"body-before-a-status", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "x")
		w.WriteHeader(401)
	}, 0, false},
	{"recovered-inside-after-a-status", recoverer(http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(200)
			panic("mistake")
		})).ServeHTTP, 0, false},
	{"panic", func(http.ResponseWriter, *http.Request) { panic("mistake") }, 0, false},
	{"panic-after-status", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(200)
		panic("mistake")
	}, 0, false},
	{"abort", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 0, false},
	{"goexit", func(http.ResponseWriter, *http.Request) { runtime.Goexit() }, 0, true},
	{"hijack", takesOver, 0, true},
	{"hijack-by-controller", func(w http.ResponseWriter, _ *http.Request) {
		hijack(http.NewResponseController(w).Hijack())
	}, 0, true},
	{"hijack-after-101", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(101)
		hijack(w.(http.Hijacker).Hijack())
	}, 0, true},
	{"wrote-too-late", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(200)
		control := http.NewResponseController(w)
		_ = control.SetWriteDeadline(time.Now().Add(-time.Second))
		_, _ = w.Write(make([]byte, 1<<20))
		_ = control.Flush()
	}, 0, true},
}

func takesOver(w http.ResponseWriter, _ *http.Request) { hijack(w.(http.Hijacker).Hijack()) }

// hijack answers by hand and closes the connection.
func hijack(conn net.Conn, rw *bufio.ReadWriter, err error) {
	if err != nil {
		panic(err)
	}
	_, _ = rw.WriteString("HTTP/1.1 401 Unauthorized\r\n" +
		"Content-Length: 0\r\nConnection: close\r\n\r\n")
	_ = rw.Flush()
	_ = conn.Close()
}

// spent returns how many tokens of its budgets a user has spent.
func spent(t *testing.T, f *fixture, user string, capacity int64) int64 {
	t.Helper()
	d, err := f.limiter.Peek(t.Context(), limiter.Caller{
		Principal: limiter.Principal{Kind: "user", ID: user},
	}, 0)
	require.NoError(t, err)
	return capacity - d.Remaining
}

// protocol starts a server without a log.
func protocol(t *testing.T, http2 bool, h http.Handler) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.EnableHTTP2 = http2
	if http2 {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	return server
}

func TestByStatus_SeesTheStatusThatIsSent(t *testing.T) {
	for _, tt := range sent {
		for _, http2 := range []bool{false, true}[:2-btoi(tt.only1)] {
			t.Run(tt.name+map[bool]string{true: "/http2"}[http2], func(t *testing.T) {
				f := newFixture(t, tokens)
				var seen []int
				limit := f.middleware(t, byUser, keying.Pattern, middleware.Config{
					Cost: func(*http.Request) int64 { return 7 },
					ByStatus: func(status int, reserved int64) int64 {
						assert.EqualValues(t, 7, reserved)
						seen = append(seen, status)
						return 2
					},
				})
				server := protocol(t, http2, authenticate(limit(tt.handler)))
				r, err := http.NewRequest("GET", server.URL, nil)
				require.NoError(t, err)
				r.Header.Set("X-Test-User", "alice")
				server.Client().CheckRedirect = func(*http.Request, []*http.Request) error {
					return http.ErrUseLastResponse
				}
				resp, err := server.Client().Do(r)
				if err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
				server.Close() // waits for the handler
				if tt.status == 0 {
					assert.Empty(t, seen)
					assert.EqualValues(t, 7, spent(t, f, "alice", 100))
					return
				}
				require.NoError(t, err)
				assert.Equal(t, tt.status, resp.StatusCode)
				assert.Equal(t, []int{tt.status}, seen)
				assert.EqualValues(t, 2, spent(t, f, "alice", 100))
			})
		}
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestByStatus_WhoeverAnswersFurtherOutLeavesTheStatusUnknown(t *testing.T) {
	for name, outside := range map[string]struct {
		with   func(http.Handler) http.Handler
		status int
	}{
		"recoverer": {recoverer, 500},
		"timeout":   {timeout, 503},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, tokens)
			limit := f.middleware(t, byUser, keying.Pattern, middleware.Config{
				ByStatus: func(int, int64) int64 { return 0 },
			})
			done := make(chan struct{})
			server := protocol(t, false, outside.with(http.HandlerFunc(
				func(w http.ResponseWriter, r *http.Request) {
					defer close(done)
					authenticate(limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if name == "recoverer" {
							panic("mistake")
						}
						<-r.Context().Done()
						w.WriteHeader(200)
					}))).ServeHTTP(w, r)
				})))
			resp, _ := exchange(t, server, "GET", "/", "alice")
			assert.Equal(t, outside.status, resp.StatusCode)
			<-done
			assert.EqualValues(t, 1, spent(t, f, "alice", 100))
		})
	}
}

// everything is a ResponseWriter with all optional interfaces, which notes what
// is called.
type everything struct {
	http.ResponseWriter
	mu    sync.Mutex
	calls []string
}

func (e *everything) call(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls = append(e.calls, name)
}

func (e *everything) Flush() { e.call("Flush") }
func (e *everything) Push(string, *http.PushOptions) error {
	e.call("Push")
	return nil
}

func (e *everything) CloseNotify() <-chan bool {
	e.call("CloseNotify")
	return nil
}

func (e *everything) WriteString(s string) (int, error) {
	e.call("WriteString")
	return len(s), nil
}

func (e *everything) ReadFrom(r io.Reader) (int64, error) {
	e.call("ReadFrom")
	return io.Copy(io.Discard, r)
}
func (e *everything) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	e.call("Hijack")
	return nil, nil, nil
}

// optional returns the optional interfaces of a writer.
func optional(w http.ResponseWriter) map[string]bool {
	has := map[string]bool{}
	_, has["Flusher"] = w.(http.Flusher)
	_, has["FlushError"] = w.(interface{ FlushError() error })
	_, has["Pusher"] = w.(http.Pusher)
	//lint:ignore SA1019 some handlers still use it
	_, has["CloseNotifier"] = w.(http.CloseNotifier)
	_, has["StringWriter"] = w.(io.StringWriter)
	_, has["ReaderFrom"] = w.(io.ReaderFrom)
	_, has["Hijacker"] = w.(http.Hijacker)
	return has
}

// byStatusOf serves one request by a rule that asks for the status, with an
// outermost writer of the test's own.
func byStatusOf(t *testing.T, outer http.ResponseWriter, h http.HandlerFunc) {
	t.Helper()
	limit := newFixture(t, tokens).middleware(t, byUser, keying.Pattern, middleware.Config{
		ByStatus: func(int, int64) int64 { return 0 }})
	authenticate(limit(h)).ServeHTTP(outer, get("/", "alice")())
}

func TestByStatus_KeepsTheOptionalInterfaces(t *testing.T) {
	e := &everything{ResponseWriter: httptest.NewRecorder()}
	for name, inner := range map[string]http.ResponseWriter{
		"none": &discard{http.Header{}},
		"all":  e,
		"flusher": struct {
			http.ResponseWriter
			http.Flusher
		}{e.ResponseWriter, e},
		"http/1.1": struct {
			http.ResponseWriter
			http.Flusher
			http.Hijacker
			io.ReaderFrom
			io.StringWriter
		}{e.ResponseWriter, e, e, e, e},
		"http/2": struct {
			http.ResponseWriter
			http.Flusher
			http.Pusher
			io.StringWriter
		}{e.ResponseWriter, e, e, e},
		"push-and-read-from": struct {
			http.ResponseWriter
			http.Pusher
			io.ReaderFrom
		}{e.ResponseWriter, e, e},
	} {
		ran := false
		byStatusOf(t, inner, func(w http.ResponseWriter, _ *http.Request) {
			ran = true
			assert.NotEqual(t, inner, w)
			assert.Equal(t, optional(inner), optional(w), name)
		})
		assert.True(t, ran)
	}
	byStatusOf(t, e, func(w http.ResponseWriter, _ *http.Request) {
		w.(http.Flusher).Flush()
		_ = w.(http.Pusher).Push("/", nil)
		_, _ = w.(io.StringWriter).WriteString("x")
		_, _ = w.(io.ReaderFrom).ReadFrom(strings.NewReader("x"))
		_, _, _ = w.(http.Hijacker).Hijack()
	})
	assert.Equal(t, []string{"Flush", "Push", "WriteString", "ReadFrom", "Hijack"}, e.calls)
}

// bare hides all that a writer can do, behind Unwrap.
type bare struct{ inner http.ResponseWriter }

func (b bare) Header() http.Header         { return b.inner.Header() }
func (b bare) Write(p []byte) (int, error) { return b.inner.Write(p) }
func (b bare) WriteHeader(status int)      { b.inner.WriteHeader(status) }
func (b bare) Unwrap() http.ResponseWriter { return b.inner }

// What only a ResponseController can do, it can do behind the rule, which does not
// see it: the status is then unknown.
func TestByStatus_DoesNotSeeThroughWritersThatMustBeUnwrapped(t *testing.T) {
	f := newFixture(t, tokens)
	var seen []int
	limit := f.middleware(t, byUser, keying.Pattern, middleware.Config{
		ByStatus: func(status int, _ int64) int64 { seen = append(seen, status); return 0 },
	})
	h := limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.NotContains(t, slices.Collect(maps.Values(optional(w))), true)
		control := http.NewResponseController(w)
		assert.NoError(t, control.SetReadDeadline(time.Now().Add(time.Hour)))
		assert.NoError(t, control.SetWriteDeadline(time.Now().Add(time.Hour)))
		assert.NoError(t, control.EnableFullDuplex())
		if r.URL.Path == "/hijack" {
			hijack(control.Hijack())
			return
		}
		if r.URL.Path == "/status" {
			w.WriteHeader(http.StatusAccepted)
		}
		assert.NoError(t, control.Flush())
	}))
	server := protocol(t, false, authenticate(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(bare{w}, r) })))
	for path, status := range map[string]int{"/flush": 200, "/hijack": 401, "/status": 202} {
		resp, _ := exchange(t, server, "GET", path, "alice")
		assert.Equal(t, status, resp.StatusCode)
	}
	server.Close()
	assert.Equal(t, []int{202}, seen)
	assert.EqualValues(t, 2, spent(t, f, "alice", 100))
}

func TestByStatus_AFlushThatIsNotSupportedSendsNothing(t *testing.T) {
	f := newFixture(t, tokens)
	limit := f.middleware(t, byUser, keying.Pattern, middleware.Config{
		ByStatus: func(status int, _ int64) int64 { return int64(status) / 100 },
	})
	authenticate(limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		assert.ErrorIs(t, http.NewResponseController(w).Flush(), http.ErrNotSupported)
		w.WriteHeader(404)
	}))).ServeHTTP(&discard{http.Header{}}, get("/", "alice")())
	assert.EqualValues(t, 4, spent(t, f, "alice", 100))
}

func TestByStatus_WhatTheServerCannotDoItStillCannot(t *testing.T) {
	f := newFixture(t, tokens)
	limit := f.middleware(t, byUser, keying.Pattern, middleware.Config{
		ByStatus: func(status int, _ int64) int64 { return int64(status) / 100 },
	})
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _, err := http.NewResponseController(w).Hijack()
		assert.ErrorIs(t, err, http.ErrNotSupported)
		w.WriteHeader(404)
	})
	server := protocol(t, true, authenticate(limit(h)))
	resp, _ := exchange(t, server, "GET", "/", "alice")
	assert.Equal(t, 404, resp.StatusCode)
	assert.EqualValues(t, 4, spent(t, f, "alice", 100), "a failed Hijack takes nothing over")
}
