package middleware_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
	"github.com/ration-go/ration/middleware"
)

const challenge = `Bearer realm="api"`

var (
	byUser    = keying.Authenticated(keying.Refuse(challenge))
	byAddress = keying.ByAddress(keying.Addresses{})
	perRoute  = limiter.ByPrincipal | limiter.ByRoute
)

// fixture is a limiter over one budget, at an instant that only move moves.
type fixture struct {
	limiter *limiter.Limiter
	seen    *seen
	elapsed atomic.Int64
}

func newFixture(t *testing.T, budgets ...limiter.Budget) *fixture {
	t.Helper()
	f := &fixture{seen: &seen{}}
	store, err := memstore.New(memstore.Config{Now: func() time.Time {
		return time.Unix(1_700_000_000, f.elapsed.Load())
	}})
	require.NoError(t, err)
	f.limiter, err = limiter.New(store, budgets, limiter.Config{Observer: f.seen.observer()})
	require.NoError(t, err)
	return f
}

func (f *fixture) move(d time.Duration) { f.elapsed.Add(int64(d)) }

func (f *fixture) middleware(
	t *testing.T, who keying.Who, route keying.Route, cfg middleware.Config,
) func(http.Handler) http.Handler {
	t.Helper()
	m, err := middleware.New(f.limiter, who, route, cfg)
	require.NoError(t, err)
	return m.Handler
}

// seen is an observer that remembers requests as "transport route answer".
type seen struct {
	mu      sync.Mutex
	answers []string
	off     bool
}

// observer returns s as an observer whose decisions balances can read.
func (s *seen) observer() limiter.Observer {
	return readsBalances.And(limiter.Observer{Answered: func(e limiter.RequestEvent) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.off {
			s.answers = append(s.answers, e.Transport+" "+e.Route+" "+e.Outcome)
		}
	}})
}

type balancesKey struct{}

// readsBalances writes what is left in each budget into the map that the context
// of a Take carries.
var readsBalances = limiter.Observer{Decided: func(ctx context.Context, e limiter.DecisionEvent) {
	if left, ok := ctx.Value(balancesKey{}).(map[string]int64); ok {
		for _, c := range e.Charges {
			left[c.Key.Budget] = c.Result.Remaining
		}
	}
}}

// balances returns what a user has left of each budget. It costs one request.
func balances(t *testing.T, f *fixture, user string) map[string]int64 {
	t.Helper()
	left := map[string]int64{}
	_, err := f.limiter.Take(context.WithValue(t.Context(), balancesKey{}, left),
		limiter.Caller{Principal: limiter.Principal{Kind: "user", ID: user}}, 0)
	require.NoError(t, err)
	require.NotEmpty(t, left, "the limiter has the observer readsBalances")
	return left
}

// take returns what was seen since the last take.
func (s *seen) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	answers := s.answers
	s.answers = nil
	return answers
}

// authenticate believes the header X-Test-User, as only a test may.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user := r.Header.Get("X-Test-User"); user != "" {
			r = r.WithContext(keying.WithPrincipal(r.Context(),
				limiter.Principal{Kind: "user", ID: user}))
		}
		next.ServeHTTP(w, r)
	})
}

// exchange sends one request over a real socket.
func exchange(
	t *testing.T, server *httptest.Server, method, path, user string,
) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequest(method, server.URL+path, nil)
	require.NoError(t, err)
	if user != "" {
		r.Header.Set("X-Test-User", user)
	}
	resp, err := server.Client().Do(r)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(body)
}

// leavesNoGoroutine fails the test if there are more goroutines at its end than now.
func leavesNoGoroutine(t *testing.T) {
	t.Helper()
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		assert.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+1 }, // its own
			10*time.Second, time.Millisecond, "goroutines are left")
	})
}

func serve(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	leavesNoGoroutine(t)
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server
}

// golden is the whole answer apart from Date and Content-Length.
func golden(resp *http.Response, body string) string {
	h := resp.Header.Clone()
	h.Del("Date")
	h.Del("Content-Length")
	var b strings.Builder
	b.WriteString(resp.Status + "\n")
	_ = h.Write(&b)
	return strings.ReplaceAll(b.String(), "\r\n", "\n") + "\n" + body
}
