package middleware_test

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/keying/chiroute"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/middleware"
)

// loopback is the caller by address of all requests over the sockets of tests.
var loopback = limiter.Caller{Principal: limiter.Principal{
	Kind: keying.KindAddress, Tenant: "127.0.0.0/24", ID: "127.0.0.1"}}

// routed builds a service with "GET /me" and "POST /me" behind limit and inside.
type routed func(
	t *testing.T, limit func(keying.Route) func(http.Handler) http.Handler,
	inside func(http.Handler) http.Handler,
) http.Handler

var builders = map[string]routed{
	"chi": func(
		_ *testing.T, limit func(keying.Route) func(http.Handler) http.Handler,
		inside func(http.Handler) http.Handler,
	) http.Handler {
		router := chi.NewRouter()
		router.Use(limit(chiroute.New(router).Route), inside)
		router.Get("/me", noop)
		router.Post("/me", noop)
		return router
	},
	"mux": func(
		_ *testing.T, limit func(keying.Route) func(http.Handler) http.Handler,
		inside func(http.Handler) http.Handler,
	) http.Handler {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /me", noop)
		mux.HandleFunc("POST /me", noop)
		return limit(keying.Mux(mux))(inside(mux))
	},
}

// A preflight with credentials is a guess like any other request: the
// authentication behind the limiter checks them.
func TestPreflight_IsChargedInFrontOfTheAuthentication(t *testing.T) {
	for name, build := range builders {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, perHour(5))
			f.seen.off = true
			var checked atomic.Int64
			h := build(t, func(route keying.Route) func(http.Handler) http.Handler {
				return f.middleware(t, byAddress, route, middleware.Config{})
			}, func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if _, _, ok := r.BasicAuth(); ok {
						checked.Add(1)
					}
					next.ServeHTTP(w, r)
				})
			})
			server := serve(t, h)
			var group sync.WaitGroup
			for worker := range 10 {
				group.Go(func() {
					for i := range 500 {
						r, err := http.NewRequest("OPTIONS", server.URL+"/me", nil)
						if !assert.NoError(t, err) {
							return
						}
						r.Header.Set("Origin", "https://app.example.com")
						r.Header.Set("Access-Control-Request-Method", "GET")
						r.SetBasicAuth("alice", fmt.Sprint("guess", worker, i))
						resp, err := server.Client().Do(r)
						if !assert.NoError(t, err) {
							return
						}
						_, _ = io.Copy(io.Discard, resp.Body)
						_ = resp.Body.Close()
					}
				})
			}
			group.Wait()
			assert.EqualValues(t, 5, checked.Load(), "of 5,000 passwords")
		})
	}
}

// odd are requests that callers write to get something for nothing. Those that
// net/http answers by itself reach neither the limiter nor what is behind it.
var odd = []struct {
	name, start string
	headers     string // without the line end of the last
	answered    bool   // by net/http itself
}{
	{"plain", "GET /me HTTP/1.1", "Host: a", false},
	{"head", "HEAD /me HTTP/1.1", "Host: a", false},
	{"post", "POST /me HTTP/1.1", "Host: a\r\nContent-Length: 0", false},
	{"method-that-no-route-has", "DELETE /me HTTP/1.1", "Host: a", false},
	{"method-in-lower-case", "get /me HTTP/1.1", "Host: a", false},
	{"method-of-the-finders", "? /me HTTP/1.1", "Host: a", true},
	{"method-that-is-a-token", "!#$%&'*+-.^_`|~ /me HTTP/1.1", "Host: a", false},
	{"method-that-is-none", "G(T /me HTTP/1.1", "Host: a", true},
	{"trace", "TRACE /me HTTP/1.1", "Host: a\r\nMax-Forwards: 0", false},
	{"connect-to-a-path", "CONNECT /me HTTP/1.1", "Host: a", false},
	{"connect-to-a-host", "CONNECT a:443 HTTP/1.1", "Host: a:443", false},
	{"options", "OPTIONS /me HTTP/1.1", "Host: a", false},
	{"options-for-the-server", "OPTIONS * HTTP/1.1", "Host: a", true},
	{"get-of-the-server", "GET * HTTP/1.1", "Host: a", false},
	{"search-of-the-server", "M-SEARCH * HTTP/1.1", "Host: a", false},
	{"preface-of-http2", "PRI * HTTP/2.0", "", false},

	{"preflight", "OPTIONS /me HTTP/1.1",
		"Host: a\r\nOrigin: https://b\r\nAccess-Control-Request-Method: GET", false},
	{"preflight-for-options", "OPTIONS /me HTTP/1.1",
		"Host: a\r\nOrigin: https://b\r\nAccess-Control-Request-Method: OPTIONS", false},
	{"preflight-for-no-route", "OPTIONS /none HTTP/1.1",
		"Host: a\r\nOrigin: https://b\r\nAccess-Control-Request-Method: GET", false},
	{"preflight-for-a-private-network", "OPTIONS /me HTTP/1.1",
		"Host: a\r\nOrigin: null\r\nAccess-Control-Request-Method: PUT\r\n" +
			"Access-Control-Request-Private-Network: true", false},
	{"preflight-by-get", "GET /me HTTP/1.1",
		"Host: a\r\nOrigin: https://b\r\nAccess-Control-Request-Method: GET", false},
	{"overridden-method", "POST /me HTTP/1.1",
		"Host: a\r\nContent-Length: 0\r\nX-HTTP-Method-Override: OPTIONS", false},
	{"overridden-path", "GET /me HTTP/1.1",
		"Host: a\r\nX-Original-URL: /healthz\r\nX-Rewrite-URL: /healthz", false},

	{"no-route", "GET /none HTTP/1.1", "Host: a", false},
	{"health", "GET /healthz HTTP/1.1", "Host: a\r\nUser-Agent: kube-probe/1.33", false},
	{"double-slash", "GET //me HTTP/1.1", "Host: a", false},
	{"dots", "GET /x/../me HTTP/1.1", "Host: a", false},
	{"trailing-slash", "GET /me/ HTTP/1.1", "Host: a", false},
	{"encoded", "GET /%6De HTTP/1.1", "Host: a", false},
	{"encoded-slash", "GET /%2Fme HTTP/1.1", "Host: a", false},
	{"query", "GET /me?skip=1&cost=0 HTTP/1.1", "Host: a", false},
	{"absolute", "GET http://b/me HTTP/1.1", "Host: a", false},
	{"absolute-without-a-path", "GET http://b HTTP/1.1", "Host: a", false},
	{"no-path", "GET  HTTP/1.1", "Host: a", true},
	{"bad-escape", "GET /%zz HTTP/1.1", "Host: a", true},

	{"upgrade-to-http2", "GET /me HTTP/1.1", "Host: a\r\nConnection: Upgrade, HTTP2-Settings\r\n" +
		"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__", false},
	{"websocket", "GET /me HTTP/1.1", "Host: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", false},
	{"expects-continue", "POST /me HTTP/1.1",
		"Host: a\r\nContent-Length: 9\r\nExpect: 100-continue", false},
	{"expects-something-else", "GET /me HTTP/1.1", "Host: a\r\nExpect: nothing", true},
	{"trailers", "GET /me HTTP/1.1", "Host: a\r\nTE: trailers\r\nTrailer: Cost", false},

	{"grpc", "POST /me HTTP/1.1", "Host: a\r\nContent-Length: 0\r\n" +
		"Content-Type: application/grpc+proto\r\nGrpc-Timeout: 0n", false},
	{"grpc-web", "POST /me HTTP/1.1", "Host: a\r\nContent-Length: 0\r\n" +
		"Content-Type: application/grpc-web-text\r\nX-Grpc-Web: 1", false},
	{"connect-streaming", "POST /me HTTP/1.1", "Host: a\r\nContent-Length: 0\r\n" +
		"Content-Type: application/connect+proto\r\nConnect-Protocol-Version: 1", false},
	{"connect-unary", "GET /me?connect=v1&encoding=json&message=%7B%7D HTTP/1.1",
		"Host: a\r\nConnect-Timeout-Ms: 0", false},

	{"workload-that-is-listed", "GET /me HTTP/1.1", "Host: a\r\nX-Workload: batch", false},
	{"workload-that-is-invented", "GET /me HTTP/1.1", "Host: a\r\nX-Workload: ~0", false},
	{"another-address", "GET /me HTTP/1.1", "Host: a\r\nX-Forwarded-For: 203.0.113.7\r\n" +
		"X-Real-IP: 203.0.113.7\r\nForwarded: for=203.0.113.7\r\nTrue-Client-IP: 203.0.113.7", false},
	{"another-user", "GET /me HTTP/1.1",
		"Host: a\r\nAuthorization: Bearer other\r\nX-User-Id: root\r\nCookie: session=other", false},
	{"limit-of-its-own", "GET /me HTTP/1.1",
		"Host: a\r\nRateLimit: \"all\";r=9\r\nX-RateLimit-Limit: 1000000\r\nRetry-After: 0", false},
	{"conditional", "GET /me HTTP/1.1",
		"Host: a\r\nIf-None-Match: *\r\nIf-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT", false},
	{"cached", "GET /me HTTP/1.1", "Host: a\r\nCache-Control: only-if-cached\r\nPragma: no-cache", false},
	{"prefetch", "GET /me HTTP/1.1", "Host: a\r\nSec-Purpose: prefetch;prerender\r\nX-Moz: prefetch", false},
	{"range-of-nothing", "GET /me HTTP/1.1", "Host: a\r\nRange: bytes=9-0", false},

	{"http1.0", "GET /me HTTP/1.0", "Accept: */*", false},
	{"http1.2", "GET /me HTTP/1.2", "Host: a", false},
	{"http2-by-name", "GET /me HTTP/2.0", "Host: a", true},
	{"http0.9", "GET /me", "Host: a", true},
	{"no-host", "GET /me HTTP/1.1", "Accept: */*", true},
	{"two-hosts", "GET /me HTTP/1.1", "Host: a\r\nHost: b", true},
	{"two-lengths", "POST /me HTTP/1.1", "Host: a\r\nContent-Length: 0\r\nContent-Length: 1", true},
	{"length-and-chunks", "POST /me HTTP/1.1",
		"Host: a\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0", false},
	{"unknown-coding", "POST /me HTTP/1.1", "Host: a\r\nTransfer-Encoding: gzip", true},
	{"space-in-a-name", "GET /me HTTP/1.1", "Host: a\r\nX Y: z", true},
}

// gate counts the requests that come to the limiter, and those that leave it.
type gate struct{ entered, passed atomic.Int64 }

func (g *gate) around(limited http.Handler) http.Handler { return counts(&g.entered, limited) }
func (g *gate) inside(next http.Handler) http.Handler    { return counts(&g.passed, next) }

func counts(n *atomic.Int64, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.Add(1)
		next.ServeHTTP(w, r)
	})
}

// configured are the settings under which each request must cost a token.
var configured = map[string]middleware.Config{
	"plain":     {},
	"settles":   {Settles: true, Caller: true},
	"by-status": {ByStatus: func(_ int, reserved int64) int64 { return reserved }},
	"workloads": {Workloads: keying.Workloads{Header: "X-Workload", Listed: []string{"batch"}}},
	"skips":     {Skip: func(r *http.Request) bool { return r.URL.Path == "/internal" }},
}

func TestNothingACallerWritesMakesARequestFree(t *testing.T) {
	const capacity = 1_000_000
	for router, build := range builders {
		for config, cfg := range configured {
			t.Run(router+"/"+config, func(t *testing.T) {
				f := newFixture(t, perHour(capacity))
				g := &gate{}
				server := httptest.NewUnstartedServer(g.around(build(t,
					func(route keying.Route) func(http.Handler) http.Handler {
						return f.middleware(t, byAddress, route, cfg)
					}, g.inside)))
				server.Config.ErrorLog = log.New(io.Discard, "", 0)
				server.Start()
				defer server.Close()
				for _, request := range odd {
					entered, passed, left := g.entered.Load(), g.passed.Load(), remaining(t, f)
					sendRaw(t, server, request.start+"\r\n"+request.headers)
					entered, passed = g.entered.Load()-entered, g.passed.Load()-passed
					want := int64(1)
					if request.answered {
						want = 0
					}
					assert.Equal(t, want, entered, "%s: comes to the limiter", request.name)
					assert.Equal(t, want, left-remaining(t, f), "%s: costs", request.name)
					assert.LessOrEqual(t, passed, want, "%s: passes the limiter", request.name)
				}
			})
		}
	}
}

// The same over HTTP/2, and without TLS.
func TestNothingACallerWritesMakesARequestFree_HTTP2(t *testing.T) {
	const capacity = 1_000_000
	for name, build := range builders {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, perHour(capacity))
			g := &gate{}
			protocols := new(http.Protocols)
			protocols.SetUnencryptedHTTP2(true)
			server := httptest.NewUnstartedServer(g.around(build(t,
				func(route keying.Route) func(http.Handler) http.Handler {
					return f.middleware(t, byAddress, route, middleware.Config{})
				}, g.inside)))
			server.Config.Protocols = protocols
			server.Start()
			defer server.Close()
			client := &http.Client{Transport: &http.Transport{Protocols: protocols},
				CheckRedirect: noRedirect}
			defer client.CloseIdleConnections()
			reached := 0
			for _, request := range odd {
				method, rest, _ := strings.Cut(request.start, " ")
				path, _, _ := strings.Cut(rest, " ")
				r, err := http.NewRequest(method, server.URL+"/"+strings.TrimPrefix(path, "/"), nil)
				if err != nil {
					continue // no client of HTTP/2 writes it
				}
				for line := range strings.SplitSeq(request.headers, "\r\n") {
					name, value, _ := strings.Cut(line, ": ")
					if hop := name == "Connection" || name == "Upgrade" || name == "Transfer-Encoding" ||
						name == "Content-Length" || name == "Trailer"; !hop && value != "" {
						r.Header.Add(name, value)
					}
				}
				entered, passed, left := g.entered.Load(), g.passed.Load(), remaining(t, f)
				resp, err := client.Do(r)
				if err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
					reached++
				}
				entered, passed = g.entered.Load()-entered, g.passed.Load()-passed
				assert.Equal(t, entered, left-remaining(t, f), "%s: costs", request.name)
				assert.LessOrEqual(t, passed, entered, "%s: passes the limiter", request.name)
			}
			assert.Greater(t, reached, len(odd)/2)
			assert.Greater(t, g.passed.Load(), int64(len(odd)/2))
		})
	}
}

// Two requests in one packet are two requests.
func TestNothingACallerWritesMakesARequestFree_Pipelined(t *testing.T) {
	f := newFixture(t, perHour(3))
	server := serve(t, f.middleware(t, byAddress, keying.Pattern, middleware.Config{})(
		http.HandlerFunc(noop)))
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = io.WriteString(conn, strings.Repeat("OPTIONS /me HTTP/1.1\r\nHost: a\r\n\r\n", 5))
	require.NoError(t, err)
	in := bufio.NewReader(conn)
	var statuses []int
	for range 5 {
		resp, err := http.ReadResponse(in, nil)
		require.NoError(t, err)
		_, _ = io.Copy(io.Discard, resp.Body)
		statuses = append(statuses, resp.StatusCode)
	}
	assert.Equal(t, []int{200, 200, 200, 429, 429}, statuses)
}

// remaining returns what the address of the tests has left.
func remaining(t *testing.T, f *fixture) int64 {
	t.Helper()
	d, err := f.limiter.Peek(t.Context(), loopback, 0)
	require.NoError(t, err)
	return d.Remaining
}

// sendRaw sends a request without a body, and waits for the begin of an answer
// or for the end of the connection.
func sendRaw(t *testing.T, server *httptest.Server, request string) {
	t.Helper()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	_, err = io.WriteString(conn, strings.TrimSuffix(request, "\r\n")+"\r\n\r\n")
	require.NoError(t, err)
	in := bufio.NewReader(conn)
	_, err = in.ReadString('\n')
	require.NoError(t, err, "%q is answered", request)
}
