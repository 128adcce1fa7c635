package middleware_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
	"github.com/ration-go/ration/middleware"
)

// serveUnix serves h on the unix socket "s" of a new working directory, so that
// clients can bind their ends to file names without a path.
func serveUnix(t *testing.T, h http.Handler) {
	t.Helper()
	dir, err := os.MkdirTemp("", "unix")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	t.Chdir(dir)
	listener, err := net.Listen("unix", "s")
	require.NoError(t, err)
	server := &http.Server{Handler: h, Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
}

// getFrom sends a request from a client whose end of the socket has the name, ""
// for none, and returns the status.
func getFrom(name string, http2 bool, forwarded string) (int, error) {
	dialer := &net.Dialer{}
	if name != "" {
		dialer.LocalAddr = &net.UnixAddr{Name: name, Net: "unix"}
		defer func() { _ = os.Remove(name) }()
	}
	transport := &http.Transport{Protocols: new(http.Protocols),
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", "s")
		}}
	transport.Protocols.SetHTTP1(!http2)
	transport.Protocols.SetUnencryptedHTTP2(http2)
	defer transport.CloseIdleConnections()
	r, err := http.NewRequest("GET", "http://unix/", nil)
	if err != nil {
		return 0, err
	}
	if forwarded != "" {
		r.Header.Set("X-Forwarded-For", forwarded)
	}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// socketName is the n-th of many names of a client's socket that read like an
// address, each another one.
func socketName(n int) string {
	// Names that begin with @ are the machine's: other processes must not have them.
	ip := netip.AddrFrom4([4]byte{byte(1 + os.Getpid()%200), byte(n >> 16), byte(n >> 8), byte(n)})
	return fmt.Sprintf([...]string{
		"%s", "%s:4711", "::ffff:%s", "[::ffff:%s]:4711", "64:ff9b::%s", "[2001:db8::%s]:80",
		"fe80::%s%%eth0", "[%s]", "@%s", "@%s:4711",
	}[n%10], ip)
}

// believing believes a proxy at 127.0.0.1, whose name a socket can have, too.
func believing(unknown keying.Absent) keying.Addresses {
	return keying.Addresses{Unknown: unknown,
		Proxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
}

// storeOf returns a limiter of 10 requests an hour for each caller, and its store.
func storeOf(t *testing.T) (*limiter.Limiter, *memstore.Store) {
	t.Helper()
	store := limiter.Must(memstore.New(memstore.Config{}))
	l, err := limiter.New(store, []limiter.Budget{perHour(10)}, limiter.Config{})
	require.NoError(t, err)
	return l, store
}

// Each request is judged by a limiter of each choice.
func TestMiddleware_TheNameOfAUnixSocketIsNoAddress(t *testing.T) {
	const clients = 10_000
	choices := []struct {
		unknown  keying.Absent
		want     map[int]int // statuses
		accounts int64
		store    *memstore.Store
		handler  http.Handler
		got      map[int]int
	}{
		{unknown: keying.Refuse(challenge), want: map[int]int{401: clients}},
		{unknown: keying.Absent{}, want: map[int]int{403: clients}},
		{unknown: keying.OrShared(), want: map[int]int{200: 10, 429: clients - 10}, accounts: 1},
	}
	for i := range choices {
		c := &choices[i]
		l, store := storeOf(t)
		c.store, c.got = store, map[int]int{}
		c.handler = limiter.Must(middleware.New(l, keying.ByAddress(believing(c.unknown)),
			keying.Pattern, middleware.Config{})).Handler(http.HandlerFunc(noop))
	}
	var mu sync.Mutex
	serveUnix(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range choices {
			w := httptest.NewRecorder()
			c.handler.ServeHTTP(w, r)
			c.got[w.Code]++
		}
	}))
	var workers sync.WaitGroup
	for first := range 4 {
		workers.Go(func() {
			for n := first; n < clients; n += 4 {
				_, err := getFrom(socketName(n), n%11 == 0, "")
				assert.NoError(t, err)
			}
		})
	}
	workers.Wait()
	mu.Lock()
	defer mu.Unlock()
	for _, c := range choices {
		assert.Equal(t, c.want, c.got)
		assert.Equal(t, c.accounts, c.store.Stats().Accounts)
	}
}

func TestMiddleware_TheNameOfAUnixSocketIsNoProxy(t *testing.T) {
	l, store := storeOf(t)
	m := limiter.Must(middleware.New(l, keying.ByAddress(believing(keying.Absent{})),
		keying.Pattern, middleware.Config{}))
	serveUnix(t, m.Handler(http.HandlerFunc(noop)))
	for n, name := range []string{"127.0.0.1", "127.0.0.1:80", "::ffff:127.0.0.1", "@127.0.0.1", ""} {
		status, err := getFrom(name, n%2 == 1, fmt.Sprintf("203.0.113.%d", n))
		require.NoError(t, err)
		assert.Equal(t, 403, status, name)
	}
	assert.Zero(t, store.Stats().Accounts)
}

// With UnixProxy, what connects over the socket is a proxy whatever its name is.
func TestMiddleware_AProxyOnAUnixSocketCanBeTrusted(t *testing.T) {
	l, store := storeOf(t)
	from := believing(keying.Absent{})
	from.UnixProxy = true
	m := limiter.Must(middleware.New(l, keying.ByAddress(from), keying.Pattern, middleware.Config{}))
	serveUnix(t, m.Handler(http.HandlerFunc(noop)))
	got := map[int]int{}
	for n := range 20 { // the left is the caller's own word
		status, err := getFrom(socketName(n), n%2 == 1, fmt.Sprintf("198.51.100.%d, 203.0.113.7", n))
		require.NoError(t, err)
		got[status]++
	}
	assert.Equal(t, map[int]int{200: 10, 429: 10}, got)
	for forwarded, want := range map[string]int{"203.0.113.8": 200, "": 403,
		"203.0.113.9, unknown": 403} {
		status, err := getFrom("203.0.113.9", false, forwarded)
		require.NoError(t, err)
		assert.Equal(t, want, status, forwarded)
	}
	assert.EqualValues(t, 2, store.Stats().Accounts)
}
