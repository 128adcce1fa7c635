// Package attacker_test sends whatever a caller can send, over real sockets, at
// services that are limited as the documentation says, and counts what gets
// through.
package attacker_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
)

// attacker is one caller, from one address.
type attacker struct {
	rand    *rand.Rand
	token   string // empty: no credentials
	service *service
	clients []client
}

// client is a way to reach the service.
type client struct {
	*http.Client
	base string
}

func newAttacker(t *testing.T, s *service, token string) *attacker {
	t.Helper()
	transport := func(configure func(*http.Transport)) *http.Client {
		tr := &http.Transport{}
		configure(tr)
		t.Cleanup(tr.CloseIdleConnections)
		return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // each hop is a request of its own choice
		}}
	}
	plain, encrypted := "http://"+s.plain, "https://"+s.tls
	return &attacker{rand.New(rand.NewPCG(1, 2)), token, s, []client{
		{transport(func(*http.Transport) {}), plain},
		{transport(func(tr *http.Transport) { tr.DisableKeepAlives = true }), plain}, // another port
		{transport(func(tr *http.Transport) { tr.TLSClientConfig = s.roots.TLSClientConfig.Clone() }),
			encrypted},
		{transport(func(tr *http.Transport) { // HTTP/2
			tr.TLSClientConfig = s.roots.TLSClientConfig.Clone()
			tr.ForceAttemptHTTP2 = true
		}), encrypted},
		{transport(func(tr *http.Transport) { // HTTP/2 without TLS
			tr.Protocols = new(http.Protocols)
			tr.Protocols.SetUnencryptedHTTP2(true)
		}), plain},
	}}
}

func pick[T any](a *attacker, from []T) T { return from[a.rand.IntN(len(from))] }

var (
	paths = []string{"/orders/%d", "/items/%d", "/orders/%d/", "//orders/%d", "/./orders/%d",
		"/x/../orders/%d", "/ORDERS/%d", "/%%6Frders/%d", "/orders%%2F%d", "/orders/a%%2F%d",
		"/orders/%d;x=1", "/orders/%d%%00", "/tree", "/tree/", "/tree/%d/../%d", "/tree//%d",
		"/v1/orders/%d", "/v1/v1/orders/%d", "/v1//items/%d", "/none/%d", "/", "/%d", "/items/%d/",
		"/hosts/api/%d", "/hosts//api/%d", "/hosts/admin/%d", "/hosts/admin/x%d", "/hosts"}
	// likely paths reach handlers.
	likely = []string{"/orders/%d", "/items/%d", "/v1/orders/%d", "/v1/items/%d", "/tree/%d",
		"/hosts/api/%d", "/hosts/admin/%d"}
	methods = []string{"GET", "POST", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE",
		"get", "Get", "BREW"}
	hosts = []string{"", "api.example.com", "API.EXAMPLE.COM", "api.example.com:8443",
		"admin.example.com", "admin.example.com:1", "api.example.com.", "other.example.com", "127.0.0.1"}
	// headers are what services have taken for an identity, an address, a route or
	// another connection.
	headers = []string{"Authorization", "X-Api-Key", "X-User-Id", "X-Auth-Request-User", "X-Tenant",
		"X-Forwarded-For", "X-Real-Ip", "True-Client-Ip", "Forwarded", "Cf-Connecting-Ip",
		"X-Client-Ip", "X-Forwarded-Host", "X-Original-Url", "X-Rewrite-Url", "X-Http-Method-Override",
		"X-Workload", "Cookie", "User-Agent", "Origin", "Access-Control-Request-Method", "Upgrade",
		"Http2-Settings", "Content-Type", "Referer", "Accept", "X-Request-Id", "Traceparent", "Via"}
	values = []string{"alice", "bob", "127.0.0.2", "203.0.113.%d", "for=203.0.113.%d", "/orders/%d",
		"GET", "DELETE", "OPTIONS", "?", "h2c", "AAMAAABkAAQAAP__", "application/grpc", "label-%d", "%d",
		"203.0.113.%d, 198.51.100.%d", "2001:db8::%d", "https://example.com", "a=%d; session=bob"}
)

// fill puts numbers in the place of "%d", and "%%" is a percent sign.
func (a *attacker) fill(format string) string {
	for strings.Contains(format, "%d") {
		format = strings.Replace(format, "%d", fmt.Sprint(a.rand.IntN(100)), 1)
	}
	return strings.ReplaceAll(format, "%%", "%")
}

// send sends one request, about which only the token is not random.
func (a *attacker) send(t *testing.T) {
	t.Helper()
	if a.rand.IntN(20) == 0 {
		a.sendRaw(t)
		return
	}
	c := pick(a, a.clients)
	target := c.base + a.fill(pick(a, pick(a, [][]string{paths, likely})))
	if a.rand.IntN(2) == 0 {
		target += a.fill("?api_key=%d&user=bob")
	}
	r, err := http.NewRequest(pick(a, methods), target, nil)
	require.NoError(t, err)
	r.Host = pick(a, hosts)
	if a.token != "" {
		r.Header.Set("Authorization", "Bearer "+a.token)
	}
	for range a.rand.IntN(6) {
		r.Header.Add(pick(a, headers), a.fill(pick(a, values)))
	}
	if a.rand.IntN(8) == 0 {
		r.Header.Set("Origin", "https://example.com")
		r.Header.Set("Access-Control-Request-Method", pick(a, methods))
		r.Method = "OPTIONS"
	}
	resp, err := c.Do(r)
	if err != nil {
		return // refused by a client or server of net/http: nobody was reached
	}
	require.NoError(t, resp.Body.Close())
}

// sendRaw sends what no client would.
func (a *attacker) sendRaw(t *testing.T) {
	t.Helper()
	token := ""
	if a.token != "" {
		token = "Authorization: Bearer " + a.token + "\r\n"
	}
	conn, err := net.Dial("tcp", a.service.plain)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = fmt.Fprintf(conn, a.fill(pick(a, []string{
		"CONNECT /orders/%d HTTP/1.1\r\nHost: a\r\n",
		"CONNECT /tree HTTP/1.1\r\nHost: a\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: a\r\n",
		"GET http://api.example.com/orders/%d HTTP/1.1\r\nHost: admin.example.com\r\n",
		"GET /orders/%d HTTP/1.0\r\n",
		"? /orders/%d HTTP/1.1\r\nHost: a\r\n",
		"GET /orders/%d HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\n" +
			"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n",
	}))+"%s\r\n", token)
	require.NoError(t, err)
	if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
		_ = resp.Body.Close()
	}
}

// callers attack in turn; neither may move the balance of the other, nor bob's.
var callers = []struct {
	name, token string
	principal   limiter.Principal
	others      []limiter.Principal
	workloads   int64 // accounts that labels can make
}{
	{"authenticated", "alices-token", alice, []limiter.Principal{bob, loopback}, slots + 1},
	{"without-credentials", "", loopback, []limiter.Principal{bob, alice}, 1},
}

// attack sends n requests of one caller.
func attack(t *testing.T, s *service, token string, n int) {
	t.Helper()
	a := newAttacker(t, s, token)
	for range n {
		a.send(t)
	}
}

// untouched asserts that accounts of the principals are full.
func (s *service) untouched(t *testing.T, principals []limiter.Principal) {
	t.Helper()
	for _, p := range principals {
		for _, route := range append(muxPatterns, "unmatched") {
			d, err := s.limiter.Peek(t.Context(), limiter.Caller{Principal: p, Route: route}, 0)
			require.NoError(t, err)
			assert.Zero(t, d.ResetAfter, "%v on %s", p, route)
		}
	}
}

func TestAttacker_GetsNoMoreThanTheBudget(t *testing.T) {
	for _, layout := range layouts {
		for _, caller := range callers {
			t.Run(layout.name+"/"+caller.name, func(t *testing.T) {
				s := start(t, layout, total, ample)
				attack(t, s, caller.token, 200)
				reached := 0
				for _, n := range s.reached {
					reached += n
				}
				assert.LessOrEqual(t, reached, total)
				assert.Positive(t, reached, "the rest was spent on what no handler serves")
				d, err := s.limiter.Peek(t.Context(), limiter.Caller{Principal: caller.principal}, 1)
				require.NoError(t, err)
				assert.Equal(t, limiter.Deny, d.Outcome, "the attacker's own account is used up")
				assert.LessOrEqual(t, s.store.Stats().Accounts, 1+int64(layout.routes)+1+caller.workloads)
				s.untouched(t, caller.others)
			})
		}
	}
}

func TestAttacker_GetsNoMoreThanTheBudgetOfEachRoute(t *testing.T) {
	for _, layout := range layouts {
		for _, caller := range callers {
			t.Run(layout.name+"/"+caller.name, func(t *testing.T) {
				s := start(t, layout, ample, perRoute)
				attack(t, s, caller.token, 400)
				assert.Len(t, s.reached, layout.routes, "every handler was reached")
				for route, n := range s.reached {
					if layout.by {
						assert.LessOrEqual(t, n, perRoute, route)
					}
				}
				// One for all requests, one for each route and for those without, and the
				// workloads.
				assert.LessOrEqual(t, s.store.Stats().Accounts, 1+int64(layout.routes)+1+caller.workloads)
				assert.Zero(t, s.store.Stats().OverflowTakes)
				s.untouched(t, caller.others)
			})
		}
	}
}

// With a rewriter inside, what is charged for one route may be served on another:
// the budget of all routes holds, those of routes do not, and the log says so.
func TestRewriterInside_IsTold(t *testing.T) {
	for _, layout := range layouts {
		s := start(t, layout, ample, ample)
		resp, err := http.Get("http://" + s.plain + "/v1/orders/7")
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, !layout.by, strings.Contains(s.log.String(), "code=route-rewritten"), layout.name)
	}
}
