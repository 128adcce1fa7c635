package middleware_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/middleware"
)

// A fate is what becomes of requests of one kind: what the handler does, what the
// client does, how many there are, and what each must have cost at the end.
type fate struct {
	name   string
	n      int
	cost   int64
	handle http.HandlerFunc
	send   func(c *clients, user string)
}

// Of each request 7 is reserved; by its status a success costs 1 and a redirect
// 9, which is more than was reserved; all else keeps the 7.
func byStatus(status int, reserved int64) int64 {
	switch status {
	case http.StatusOK:
		return 1
	case http.StatusSeeOther:
		return 9
	}
	return reserved
}

func answers(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
}

func settles(cost int64) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) {
		if err := middleware.Settle(r.Context(), cost); err != nil {
			panic(err)
		}
	}
}

// waits answers 200 once the caller has gone, which is too late to be believed.
func waits(w http.ResponseWriter, r *http.Request) {
	<-r.Context().Done()
	w.WriteHeader(http.StatusOK)
}

func flushesAndWaits(w http.ResponseWriter, r *http.Request) {
	_, _ = io.WriteString(w, "begun")
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

// readsBody answers 200 where its body is cut off.
func readsBody(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.WriteHeader(http.StatusOK)
}

var fates = []fate{
	{"success", 30_000, 1, answers(200), (*clients).get},
	{"silent", 3_000, 7, noop, (*clients).get},
	{"failure", 30_000, 7, answers(401), (*clients).get},
	{"redirect", 5_000, 9, answers(303), (*clients).get},
	{"settled", 5_000, 4, settles(4), (*clients).get},
	{"settled-above", 5_000, 11, settles(11), (*clients).get},
	{"panic", 3_000, 7, func(http.ResponseWriter, *http.Request) { panic("mistake") }, (*clients).get},
	{"abort", 2_000, 7, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		(*clients).get},
	{"timeout", 2_000, 7, waits, (*clients).get},
	{"hijack", 2_000, 7, takesOver, (*clients).get},
	{"http2-success", 2_000, 1, answers(200), (*clients).get2},
	{"http2-reset", 2_000, 7, waits, (*clients).reset},
	{"http2-reset-during", 2_000, 7, flushesAndWaits, (*clients).resetDuring},
	{"leaves-before", 3_000, 7, waits, func(c *clients, user string) { c.leave(user, "GET", "", "") }},
	{"leaves-in-its-body", 2_000, 7, readsBody, func(c *clients, user string) {
		c.leave(user, "POST", "half of it", "")
	}},
	{"leaves-during", 2_000, 7, flushesAndWaits, func(c *clients, user string) {
		c.leave(user, "GET", "", "begun")
	}},
	{"leaves-after", 3_000, 1, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "done")
	}, func(c *clients, user string) { c.leave(user, "GET", "", "done") }},
}

// clients send the requests, over a socket without ports that could run out.
type clients struct {
	socket string
	http1  *http.Client
	http2  *http.Client
}

func newClients(t *testing.T, h http.Handler) *clients {
	t.Helper()
	dir, err := os.MkdirTemp("", "audit") // t.TempDir is too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c := &clients{socket: filepath.Join(dir, "s")}
	listener, err := net.Listen("unix", c.socket)
	require.NoError(t, err)
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: h, Protocols: protocols, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = server.Serve(listener) }()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", c.socket)
	}
	http1, http2 := new(http.Protocols), new(http.Protocols)
	http1.SetHTTP1(true)
	http2.SetUnencryptedHTTP2(true)
	c.http1 = &http.Client{Transport: &http.Transport{DialContext: dial, Protocols: http1,
		MaxIdleConnsPerHost: 100}, CheckRedirect: noRedirect}
	c.http2 = &http.Client{Transport: &http.Transport{DialContext: dial, Protocols: http2}}
	t.Cleanup(func() {
		c.http1.CloseIdleConnections()
		c.http2.CloseIdleConnections()
		_ = server.Shutdown(context.Background()) // waits for all handlers
	})
	return c
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// do sends a request and reads its answer, if there is one.
func (c *clients) do(ctx context.Context, client *http.Client, user string, began func()) {
	r, err := http.NewRequestWithContext(ctx, "GET", "http://audit/", nil)
	if err != nil {
		panic(err)
	}
	r.Header.Set("X-Test-User", user)
	resp, err := client.Do(r)
	if err != nil {
		return // as many fates end
	}
	began()
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
}

func (c *clients) get(user string)  { c.do(context.Background(), c.http1, user, func() {}) }
func (c *clients) get2(user string) { c.do(context.Background(), c.http2, user, func() {}) }

// reset gives a request up soon after it was sent.
func (c *clients) reset(user string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	c.do(ctx, c.http2, user, func() {})
}

// resetDuring gives a request up while its answer comes.
func (c *clients) resetDuring(user string) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c.do(ctx, c.http2, user, cancel)
}

// leave sends a request, with a body that is announced longer than it is, and
// hangs up once it has read the text.
func (c *clients) leave(user, method, body, text string) {
	conn, err := net.Dial("unix", c.socket)
	if err != nil {
		panic(err)
	}
	defer func() { _ = conn.Close() }()
	length := 0
	if body != "" {
		length = len(body) * 2
	}
	fmt.Fprintf(conn, "%s / HTTP/1.1\r\nHost: audit\r\nX-Test-User: %s\r\n"+
		"Content-Length: %d\r\n\r\n%s", method, user, length, body)
	if text == "" {
		return
	}
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		panic(err)
	}
	_, _ = io.ReadFull(resp.Body, make([]byte, len(text)))
}

// audited serves the fates, and counts the requests that reach their handlers.
func audited(
	limit func(http.Handler) http.Handler,
) (h http.Handler, reached map[string]*atomic.Int64) {
	reached = map[string]*atomic.Int64{}
	handlers := map[string]http.HandlerFunc{}
	for _, f := range fates {
		reached[f.name], handlers[f.name] = new(atomic.Int64), f.handle
	}
	limited := authenticate(limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.Header.Get("X-Test-User")
		reached[name].Add(1)
		handlers[name](w, r)
	})))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Test-User") == "timeout" {
			ctx, cancel := context.WithTimeout(r.Context(), time.Millisecond)
			defer cancel()
			r = r.WithContext(ctx)
		}
		limited.ServeHTTP(w, r)
	}), reached
}

// scale makes the audit shorter where it would take too long.
func scale() int {
	if testing.Short() {
		return 50
	}
	return slowdown
}

// Whatever becomes of a request, its cost is what was reserved, or what the
// service has said once; no token is lost, and none comes back by what a caller
// does.
func TestSettle_TheBooksBalanceWhateverBecomesOfRequests(t *testing.T) {
	goroutines := runtime.NumGoroutine()
	const capacity = 10_000_000
	f := newFixture(t, limiter.Budget{Name: "own", Scope: limiter.ByPrincipal,
		Limit: limiter.PerHour(capacity)}, limiter.Budget{Name: "all", Limit: limiter.PerHour(capacity)})
	f.seen.off = true
	h, reached := audited(f.middleware(t, byUser, keying.Pattern, middleware.Config{
		Cost: seven, Settles: true, ByStatus: byStatus,
	}))
	t.Run("requests", func(t *testing.T) { // whose end waits for all handlers
		c := newClients(t, h)
		work := make(chan fate)
		var workers sync.WaitGroup
		for range 16 {
			workers.Go(func() {
				for f := range work {
					f.send(c, f.name)
				}
			})
		}
		for i := range fates[0].n / scale() { // the kinds are mixed
			for _, f := range fates {
				if i < f.n/scale() {
					work <- f
				}
			}
		}
		close(work)
		workers.Wait()
	})
	var total int64
	for _, fate := range fates {
		n := reached[fate.name].Load()
		assert.Greater(t, n, int64(fate.n/scale()/20), "%s: so many reach their handler", fate.name)
		assert.Equal(t, capacity-n*fate.cost, balances(t, f, fate.name)["own"], fate.name)
		total += n * fate.cost
	}
	assert.Equal(t, capacity-total, balances(t, f, "alice")["all"])
	assert.Eventually(t, func() bool { return runtime.NumGoroutine() <= goroutines+1 }, // its own
		10*time.Second, 10*time.Millisecond, "no goroutine is left behind")
}

// A guesser who never waits for an answer is counted as if it did.
func TestByStatus_AGuesserWhoHangsUpBeforeEach401IsCounted(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"answers-nonetheless": func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			w.WriteHeader(http.StatusUnauthorized)
		},
		"gives-up":      func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"fails-instead": waits, // a success by its status, which nobody has seen
		"aborts": func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			panic(http.ErrAbortHandler)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, limiter.Budget{Name: "guesses", Scope: limiter.ByPrincipal,
				Limit: limiter.PerHour(5)})
			limit := f.middleware(t, byUser, keying.Pattern, middleware.Config{
				ByStatus: func(status int, reserved int64) int64 {
					if status == http.StatusUnauthorized {
						return reserved
					}
					return 0
				},
			})
			var guesses, tries atomic.Int64
			h := limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				guesses.Add(1)
				answer(w, r)
			}))
			attempts := 2000 / scale()
			t.Run("", func(t *testing.T) {
				c := newClients(t, authenticate(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					tries.Add(1)
					h.ServeHTTP(w, r)
				})))
				for range attempts {
					c.leave("guesser", "GET", "", "")
				}
				assert.Eventually(t, func() bool { return tries.Load() == int64(attempts) },
					20*time.Second, time.Millisecond)
			})
			assert.EqualValues(t, 5, guesses.Load())
			assert.EqualValues(t, 5, spent(t, f, "guesser", 5))
		})
	}
}
