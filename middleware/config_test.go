package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/middleware"
)

func TestNew_NamesTheFieldThatIsWrong(t *testing.T) {
	f := newFixture(t, perHour(1))
	tests := []struct {
		field string
		cfg   middleware.Config
	}{
		{"Config.Headers", middleware.Config{Headers: 9}},
		{"Config.Jitter", middleware.Config{Jitter: -1}},
		{"Config.Jitter", middleware.Config{Jitter: time.Hour + 1}},
	}
	for _, tt := range tests {
		m, err := middleware.New(f.limiter, byUser, keying.Pattern, tt.cfg)
		assert.Nil(t, m)
		var config *limiter.ConfigError
		if assert.ErrorAs(t, err, &config, tt.field) {
			assert.Equal(t, tt.field, config.Field)
		}
	}
	_, err := middleware.New(f.limiter, byUser, keying.Pattern, middleware.Config{Jitter: time.Hour})
	assert.NoError(t, err)
}

func TestNew_RefusesALimiterThatNewDidNotMake(t *testing.T) {
	for _, l := range []*limiter.Limiter{nil, {}} {
		m, err := middleware.New(l, byUser, keying.Pattern, middleware.Config{})
		assert.Nil(t, m)
		var config *limiter.ConfigError
		require.ErrorAs(t, err, &config)
		assert.Equal(t, "Limiter", config.Field)
	}
}

func TestConfig_ASharedBudgetMayAnswer503(t *testing.T) {
	f := newFixture(t, limiter.Budget{Name: "service", Limit: limiter.PerMinute(1),
		Unavailable: true, Public: true})
	var cost int64
	server := serve(t, f.middleware(t, byAddress, keying.Pattern, costs(&cost))(
		http.NotFoundHandler()))
	cost = 1
	exchange(t, server, "GET", "/", "")
	resp, body := exchange(t, server, "GET", "/", "")
	assert.Equal(t, `503 Service Unavailable
Cache-Control: no-store
Content-Type: application/problem+json
Ratelimit: "service";r=0;t=60
Ratelimit-Policy: "service";q=1;w=60
Retry-After: 60

{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",`+
		`"title":"Temporary Reduced Capacity","status":503,"violated-policies":["service"]}
`, golden(resp, body))
	cost = 2
	resp, _ = exchange(t, server, "GET", "/", "")
	assert.Equal(t, 429, resp.StatusCode, "no capacity will ever do for it")
	assert.Equal(t, []string{"http unmatched allow", "http unmatched deny", "http unmatched never"},
		f.seen.take())
}

func TestConfig_DeniedWritesTheAnswer(t *testing.T) {
	tests := []struct {
		name   string
		write  func(w http.ResponseWriter)
		status int
		body   string
	}{
		{"body", func(w http.ResponseWriter) { _, _ = io.WriteString(w, "<p>slow down") }, 429, "<p>slow down"},
		{"nothing", func(http.ResponseWriter) {}, 429, ""},
		{"status", func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusTeapot)
			_, _ = io.WriteString(w, "tea")
		}, 418, "tea"},
		{"informational", func(w http.ResponseWriter) { w.WriteHeader(http.StatusEarlyHints) }, 429, ""},
		{"flush", func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }, 429, ""},
		{"deadline", func(w http.ResponseWriter) {
			if http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Hour)) == nil {
				_, _ = io.WriteString(w, "set")
			}
		}, 429, "set"},
		{"copy", func(w http.ResponseWriter) {
			_, _ = io.Copy(w, bytes.NewReader([]byte("copied")))
		}, 429, "copied"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t, perHour(1))
			server := serve(t, f.middleware(t, byAddress, keying.Pattern, middleware.Config{
				Denied: func(w http.ResponseWriter, _ *http.Request, d limiter.Decision) {
					assert.Equal(t, limiter.Deny, d.Outcome)
					assert.Equal(t, "all", d.Budget)
					assert.Equal(t, "3600", w.Header().Get("Retry-After"))
					assert.Equal(t, "no-store", w.Header().Get("Cache-Control"))
					assert.NotEmpty(t, w.Header().Get("RateLimit"))
					assert.Empty(t, w.Header().Get("Content-Type"))
					tt.write(w)
				},
			})(http.NotFoundHandler()))
			exchange(t, server, "GET", "/", "")
			resp, body := exchange(t, server, "GET", "/", "")
			assert.Equal(t, tt.status, resp.StatusCode)
			assert.Equal(t, tt.body, body)
			assert.Equal(t, "3600", resp.Header.Get("Retry-After"))
		})
	}
}

// Informational answers carry the fields of their own, and only the final one
// those of the refusal.
func TestConfig_OnlyTheFinalAnswerCarriesTheRefusal(t *testing.T) {
	hints := func(w http.ResponseWriter) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusProcessing)
	}
	for _, headers := range []middleware.Headers{middleware.Draft11, middleware.XRateLimit} {
		for _, http2 := range []bool{false, true} {
			f := newFixture(t, perHour(1))
			cfg := middleware.Config{Headers: headers,
				Denied: func(w http.ResponseWriter, _ *http.Request, _ limiter.Decision) { hints(w) },
				Failed: func(w http.ResponseWriter, _ *http.Request, _ error) { hints(w) }}
			h := f.middleware(t, byUser, keying.Pattern, cfg)(http.HandlerFunc(noop))
			server := protocol(t, http2, authenticate(h))
			exchange(t, server, "GET", "/", "alice")
			for user, final := range map[string][]string{
				"alice": {"Cache-Control", "Retry-After"},
				"":      {"Cache-Control", "Www-Authenticate"},
			} {
				var informational []http.Header
				ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
					Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
						informational = append(informational, http.Header(h).Clone())
						return nil
					}})
				r, err := http.NewRequestWithContext(ctx, "GET", server.URL, nil)
				require.NoError(t, err)
				r.Header.Set("X-Test-User", user)
				resp, err := server.Client().Do(r)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				require.Len(t, informational, 2)
				for _, h := range informational {
					assert.Equal(t, http.Header{"Link": {"</style.css>; rel=preload"}}, h)
				}
				for _, name := range final {
					assert.Len(t, resp.Header.Values(name), 1, "%q: %s", user, name)
				}
				if user != "" {
					assert.Len(t, append(resp.Header.Values("RateLimit"),
						resp.Header.Values("X-RateLimit-Remaining")...), 1)
				}
			}
		}
	}
}

// hiding is a ResponseWriter of the service that cannot be unwrapped.
type hiding struct{ http.ResponseWriter }

// unwrapping can be.
type unwrapping struct{ http.ResponseWriter }

func (u unwrapping) Unwrap() http.ResponseWriter { return u.ResponseWriter }

// Deny writes what the middleware would have written, whatever wraps the writer.
func TestDeny_WritesTheDefaultAnswer(t *testing.T) {
	tests := map[string]struct {
		budget limiter.Budget
		who    keying.Who
		cost   int64
	}{
		"deny":        {perHour(1), byUser, 1},
		"never":       {perHour(1), byUser, 2},
		"shared":      {limiter.Budget{Name: "all", Limit: limiter.PerHour(1)}, byUser, 1},
		"unavailable": {limiter.Budget{Name: "all", Limit: limiter.PerHour(1), Unavailable: true}, byUser, 1},
		"mistake":     {perHour(1), byUser, -1},
		"nobody":      {perHour(1), keying.Authenticated(keying.Refuse("Basic")), 1},
	}
	wrappers := map[string]func(http.ResponseWriter) http.ResponseWriter{
		"not-wrapped": func(w http.ResponseWriter) http.ResponseWriter { return w },
		"unwrapping":  func(w http.ResponseWriter) http.ResponseWriter { return unwrapping{w} },
		"hiding":      func(w http.ResponseWriter) http.ResponseWriter { return hiding{w} },
		"both": func(w http.ResponseWriter) http.ResponseWriter {
			return hiding{unwrapping{hiding{w}}}
		},
	}
	answer := func(t *testing.T, f *fixture, who keying.Who, cfg middleware.Config, method, user string) string {
		t.Helper()
		server := serve(t, authenticate(f.middleware(t, who, keying.Pattern, cfg)(http.HandlerFunc(noop))))
		exchange(t, server, method, "/", user)
		resp, body := exchange(t, server, method, "/", user)
		return golden(resp, body)
	}
	for name, tt := range tests {
		for wrapper, wrap := range wrappers {
			for _, method := range []string{"GET", "HEAD"} {
				t.Run(name+"/"+wrapper+"/"+method, func(t *testing.T) {
					user := "alice"
					if name == "nobody" {
						user = ""
					}
					cfg := costs(&tt.cost)
					want := answer(t, newFixture(t, tt.budget), tt.who, cfg, method, user)
					asked := 0
					cfg.Denied = func(w http.ResponseWriter, r *http.Request, _ limiter.Decision) {
						asked++
						middleware.Deny(wrap(w), r)
					}
					cfg.Failed = func(w http.ResponseWriter, r *http.Request, _ error) {
						asked++
						middleware.Deny(wrap(w), r)
					}
					assert.Equal(t, want, answer(t, newFixture(t, tt.budget), tt.who, cfg, method, user))
					assert.Positive(t, asked)
				})
			}
		}
	}
}

func TestDeny_ElsewhereNamesNoBudget(t *testing.T) {
	w := httptest.NewRecorder()
	middleware.Deny(w, httptest.NewRequest("GET", "/", nil))
	assert.Equal(t, 429, w.Code)
	assert.Contains(t, w.Body.String(), `"violated-policies":[]`)
}

// Services that write their own answers may say who was refused.
func TestConfig_DeniedAndFailedFindTheCaller(t *testing.T) {
	down, err := limiter.New(failing{err: errors.New("down")}, []limiter.Budget{{Name: "all",
		Scope: limiter.ByPrincipal, Limit: limiter.PerSecond(1), OnError: limiter.Closed}},
		limiter.Config{})
	require.NoError(t, err)
	alice := limiter.Caller{Principal: limiter.Principal{Kind: "user", ID: "alice"},
		Route: keying.Unmatched}
	for _, tt := range []struct {
		name   string
		l      *limiter.Limiter
		caller bool
		cost   int64
		user   string
		want   limiter.Caller
	}{
		{"denied", newFixture(t, perHour(1)).limiter, true, 1, "alice", alice},
		{"never", newFixture(t, perHour(1)).limiter, true, 2, "alice", alice},
		{"store", down, true, 1, "alice", alice},
		{"mistake", newFixture(t, perHour(1)).limiter, true, -1, "alice", alice},
		{"nobody", newFixture(t, perHour(1)).limiter, true, 1, "", limiter.Caller{}},
		{"not-asked-for", newFixture(t, perHour(1)).limiter, false, 1, "alice", limiter.Caller{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			asked := 0
			find := func(r *http.Request) {
				asked++
				got, ok := keying.CallerFrom(r.Context())
				assert.Equal(t, tt.want, got)
				assert.Equal(t, tt.want != limiter.Caller{}, ok)
				assert.ErrorIs(t, middleware.Settle(r.Context(), 0), limiter.ErrReceipt)
			}
			cfg := costs(&tt.cost)
			cfg.Caller = tt.caller
			cfg.Denied = func(_ http.ResponseWriter, r *http.Request, _ limiter.Decision) { find(r) }
			cfg.Failed = func(_ http.ResponseWriter, r *http.Request, _ error) { find(r) }
			m := limiter.Must(middleware.New(tt.l, byUser, keying.Pattern, cfg))
			h := authenticate(m.Handler(http.HandlerFunc(noop)))
			for range 2 {
				h.ServeHTTP(httptest.NewRecorder(), get("/", tt.user)())
			}
			assert.Positive(t, asked)
		})
	}
}

func TestConfig_DeniedHearsOfNever(t *testing.T) {
	f := newFixture(t, perHour(1))
	cost := int64(2)
	cfg := costs(&cost)
	var outcome limiter.Outcome
	cfg.Denied = func(_ http.ResponseWriter, _ *http.Request, d limiter.Decision) { outcome = d.Outcome }
	resp := ask(f.middleware(t, byAddress, keying.Pattern, cfg)(http.NotFoundHandler()), "GET", "/")
	assert.Equal(t, 429, resp.StatusCode)
	assert.Empty(t, resp.Header.Get("Retry-After"))
	assert.Equal(t, limiter.Never, outcome)
}

func TestConfig_FailedWritesTheAnswer(t *testing.T) {
	secret := errors.New("dial tcp 10.1.2.3:6379")
	down, err := limiter.New(failing{err: secret}, []limiter.Budget{{Name: "all",
		Scope: limiter.ByPrincipal, Limit: limiter.PerSecond(1), OnError: limiter.Closed}},
		limiter.Config{})
	require.NoError(t, err)
	tests := []struct {
		name   string
		l      *limiter.Limiter
		who    keying.Who
		cost   int64
		is     error
		status int
		header string
		want   string
	}{
		{"nobody", newFixture(t, perHour(1)).limiter, byUser, 1, limiter.ErrNobody, 401,
			"Www-Authenticate", challenge},
		{"store", down, byAddress, 1, secret, 503, "Retry-After", "1"},
		{"cost", newFixture(t, perHour(1)).limiter, byAddress, -1, nil, 500, "Retry-After", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := costs(&tt.cost)
			cfg.Failed = func(w http.ResponseWriter, _ *http.Request, err error) {
				if tt.is != nil {
					assert.ErrorIs(t, err, tt.is)
				}
				_, _ = io.WriteString(w, "own words")
			}
			m, err := middleware.New(tt.l, tt.who, keying.Pattern, cfg)
			require.NoError(t, err)
			resp := ask(m.Handler(http.NotFoundHandler()), "GET", "/")
			assert.Equal(t, tt.status, resp.StatusCode)
			assert.Equal(t, tt.want, resp.Header.Get(tt.header))
			assert.Equal(t, "no-store", resp.Header.Get("Cache-Control"))
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			assert.Equal(t, "own words", string(body))
		})
	}
}

func TestConfig_JitterIsNeverBelowTheTrueWait(t *testing.T) {
	f := newFixture(t, limiter.Budget{Name: "all", Scope: limiter.ByPrincipal, Limit: limiter.PerMinute(1)})
	h := f.middleware(t, byAddress, keying.Pattern, middleware.Config{Jitter: 3 * time.Second})(
		http.NotFoundHandler())
	ask(h, "GET", "/")
	seen := map[int64]int{}
	for range 1000 {
		got := read(t, ask(h, "GET", "/").Header)
		assert.EqualValues(t, 60, got.effective)
		seen[got.backoff]++
	}
	for _, backoff := range []int64{61, 62, 63} {
		assert.Greater(t, seen[backoff], 100, seen)
		seen[backoff] = 0
	}
	delete(seen, 60) // one nanosecond in three seconds
	assert.Equal(t, map[int64]int{61: 0, 62: 0, 63: 0}, seen)
}

func TestConfig_JitterIsAddedToTheExactWait(t *testing.T) {
	f := newFixture(t, limiter.Budget{Name: "all", Scope: limiter.ByPrincipal,
		Limit: limiter.Limit{Tokens: 1, Per: time.Second + 1}})
	h := f.middleware(t, byAddress, keying.Pattern, middleware.Config{Jitter: 1})(http.NotFoundHandler())
	ask(h, "GET", "/")
	for range 50 {
		assert.EqualValues(t, 2, read(t, ask(h, "GET", "/").Header).backoff)
	}
}

func TestConfig_FailedIsNotAskedForCallersThatHaveGone(t *testing.T) {
	f := newFixture(t, perHour(1))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := httptest.NewRecorder()
	f.middleware(t, byAddress, keying.Pattern, middleware.Config{
		Failed: func(http.ResponseWriter, *http.Request, error) { t.Error("asked") },
	})(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest("GET", "/", nil).WithContext(ctx))
	assert.Equal(t, 503, w.Code)
}

func TestConfig_BudgetsByRoute(t *testing.T) {
	f := newFixture(t,
		limiter.Budget{Name: "reports", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(1),
			Routes: []string{"GET /reports/{id}"}},
		limiter.Budget{Name: "others", Scope: perRoute, Limit: limiter.PerHour(2),
			Routes: []string{"GET /orders/{id}", "GET /users/{id}"}})
	mux := http.NewServeMux()
	for _, pattern := range []string{"/reports/{id}", "/orders/{id}", "/users/{id}", "/free"} {
		mux.HandleFunc("GET "+pattern, func(http.ResponseWriter, *http.Request) {})
	}
	h := f.middleware(t, byAddress, keying.Mux(mux), middleware.Config{})(mux)
	got := map[string]string{}
	for _, path := range []string{"/reports/1", "/orders/1", "/users/1", "/free"} {
		for range 3 {
			got[path] += " " + strconv.Itoa(ask(h, "GET", path).StatusCode)
		}
	}
	assert.Equal(t, map[string]string{"/reports/1": " 200 429 429", "/orders/1": " 200 200 429",
		"/users/1": " 200 200 429", "/free": " 200 200 200"}, got)
}

// Answers follow a Reload that changes Public and Unavailable.
func TestConfig_PublicAndUnavailableFollowAReload(t *testing.T) {
	service := limiter.Budget{Name: "service", Limit: limiter.PerHour(1)}
	f := newFixture(t, service)
	h := f.middleware(t, byAddress, keying.Pattern, middleware.Config{})(http.NotFoundHandler())
	assert.Empty(t, stated(ask(h, "GET", "/").Header))
	for _, tt := range []struct {
		public, unavailable bool
		status              int
		name                string
	}{
		{false, false, 429, ""}, {true, false, 429, "service"},
		{false, true, 503, ""}, {true, true, 503, "service"},
	} {
		service.Public, service.Unavailable = tt.public, tt.unavailable
		require.NoError(t, f.limiter.Reload([]limiter.Budget{service}))
		resp := ask(h, "GET", "/")
		assert.Equal(t, tt.status, resp.StatusCode)
		assert.Equal(t, tt.name, read(t, resp.Header).name)
		assert.Equal(t, "3600", resp.Header.Get("Retry-After"))
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		assert.Equal(t, tt.public, strings.Contains(string(body), `["service"]`), string(body))
	}
}
