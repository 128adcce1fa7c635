package middleware_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/middleware"
)

// fields is what an answer states, as a structured-fields parser reads it. What
// is not stated is -1.
type fields struct {
	name, policy             string
	quota, window            int64
	left, effective, backoff int64
}

func read(t *testing.T, h http.Header) fields {
	t.Helper()
	f := fields{quota: -1, window: -1, left: -1, effective: -1, backoff: -1}
	parameter := func(item httpsfv.Item, key string) int64 {
		if value, ok := item.Params.Get(key); ok {
			return value.(int64)
		}
		return -1
	}
	one := func(name string) (httpsfv.Item, bool) {
		if len(h.Values(name)) == 0 {
			return httpsfv.Item{}, false
		}
		require.Len(t, h.Values(name), 1, name)
		list, err := httpsfv.UnmarshalList(h.Values(name))
		require.NoError(t, err, h.Values(name))
		require.Len(t, list, 1)
		return list[0].(httpsfv.Item), true
	}
	if item, ok := one("RateLimit"); ok {
		f.name = item.Value.(string)
		f.left, f.effective = parameter(item, "r"), parameter(item, "t")
	}
	if item, ok := one("RateLimit-Policy"); ok {
		f.policy = item.Value.(string)
		f.quota, f.window = parameter(item, "q"), parameter(item, "w")
	}
	if values := h.Values("Retry-After"); len(values) > 0 {
		require.Len(t, values, 1)
		var err error
		f.backoff, err = strconv.ParseInt(values[0], 10, 64)
		require.NoError(t, err)
	}
	return f
}

// ask sends one request to h, as it is, and returns the recorded answer.
func ask(h http.Handler, method, path string) *http.Response {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w.Result()
}

// costs makes a config whose requests cost what *cost says.
func costs(cost *int64) middleware.Config {
	return middleware.Config{Cost: func(*http.Request) int64 { return *cost }}
}

func TestHeaders_SayWhatIsLeftAndForHowLong(t *testing.T) {
	type step struct {
		after time.Duration
		cost  int64
		want  string // status r t q w Retry-After
	}
	tests := []struct {
		name  string
		limit limiter.Limit
		steps []step
	}{
		{"one-at-a-time", limiter.Limit{Tokens: 10, Per: time.Minute, Burst: 1}, []step{
			{0, 1, "404 r=0 t=6 q=1 w=6 after -1"},
			{time.Second / 2, 1, "429 r=0 t=6 q=1 w=6 after 6"},
			{6 * time.Second, 1, "404 r=0 t=6 q=1 w=6 after -1"},
		}},
		{"the-wait-is-not-the-window", limiter.Limit{Tokens: 10, Per: time.Minute, Burst: 10}, []step{
			{0, 10, "404 r=0 t=6 q=10 w=60 after -1"},
			{2 * time.Second, 1, "429 r=0 t=4 q=10 w=60 after 4"},
		}},
		{"the-wait-is-for-one-not-for-all", limiter.Limit{Tokens: 1, Per: time.Second, Burst: 5}, []step{
			{0, 5, "404 r=0 t=1 q=5 w=5 after -1"},
			{0, 1, "429 r=0 t=1 q=5 w=5 after 1"},
		}},
		{"cost-of-the-capacity-and-above", limiter.Limit{Tokens: 1, Per: time.Second, Burst: 5}, []step{
			{0, 6, "429 r=5 t=-1 q=5 w=5 after -1"},
			{0, 5, "404 r=0 t=1 q=5 w=5 after -1"},
			{time.Second, 5, "429 r=1 t=4 q=5 w=5 after 4"},
			{4 * time.Second, 5, "404 r=0 t=1 q=5 w=5 after -1"},
		}},
		{"full", limiter.PerSecond(5), []step{{0, 0, "404 r=5 t=-1 q=5 w=1 after -1"}}},
		{"sub-second", limiter.Limit{Tokens: 1000, Per: time.Millisecond}, []step{
			{0, 1000, "404 r=0 t=1 q=1000 w=1 after -1"},
			{0, 1, "429 r=0 t=1 q=1000 w=1 after 1"},
		}},
		{"a-nanosecond-more", limiter.Limit{Tokens: 1, Per: time.Second + 1, Burst: 2}, []step{
			{0, 2, "404 r=0 t=2 q=2 w=3 after -1"},
			{time.Second, 1, "429 r=0 t=1 q=2 w=3 after 1"},
			{1, 1, "404 r=0 t=2 q=2 w=3 after -1"},
		}},
		// The first instant is 20 s before the end of a minute.
		{"fixed-window", limiter.Limit{Algorithm: limiter.FixedWindow, Tokens: 2, Per: time.Minute},
			[]step{
				{0, 1, "404 r=1 t=40 q=2 w=60 after -1"},
				{10 * time.Second, 1, "404 r=0 t=30 q=2 w=60 after -1"},
				{time.Second, 1, "429 r=0 t=29 q=2 w=60 after 29"},
			}},
		{"rolling-log", limiter.Limit{Algorithm: limiter.RollingLog, Tokens: 2, Per: time.Minute},
			[]step{
				{0, 1, "404 r=1 t=60 q=2 w=60 after -1"},
				{15 * time.Second, 1, "404 r=0 t=60 q=2 w=60 after -1"},
				{time.Second, 1, "429 r=0 t=44 q=2 w=60 after 44"},
			}},
		{"beyond-an-integer", limiter.Limit{Tokens: 1 << 60, Per: time.Second}, []step{
			{0, 1, "404 r=999999999999999 t=1 q=999999999999999 w=1 after -1"},
		}},
		{"100-years", limiter.Limit{Tokens: 1, Per: 876_600 * time.Hour}, []step{
			{0, 1, "404 r=0 t=2147483647 q=1 w=2147483647 after -1"},
			{0, 1, "429 r=0 t=2147483647 q=1 w=2147483647 after 2147483647"},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t, limiter.Budget{Name: "own", Scope: limiter.ByPrincipal, Limit: tt.limit})
			var cost int64
			h := f.middleware(t, byAddress, keying.Pattern, costs(&cost))(http.NotFoundHandler())
			for i, s := range tt.steps {
				f.move(s.after)
				cost = s.cost
				resp := ask(h, "GET", "/")
				got := read(t, resp.Header)
				assert.Equal(t, s.want, fmt.Sprintf("%d r=%d t=%d q=%d w=%d after %d", resp.StatusCode,
					got.left, got.effective, got.quota, got.window, got.backoff), i)
				assert.Equal(t, "own", got.name)
				assert.Equal(t, "own", got.policy)
			}
		})
	}
}

// Whatever the limit and the traffic, one answer never contradicts itself, and a
// caller that waits what it was told is let in.
func TestHeaders_AreConsistentOnEveryAnswer(t *testing.T) {
	random := rand.New(rand.NewPCG(6, 11))
	for range 500 {
		limit := limiter.Limit{Tokens: 1 + random.Int64N(50),
			Per: time.Duration(1 + random.Int64N(int64(time.Hour)))}
		switch random.IntN(3) {
		case 0:
			limit.Burst = 1 + random.Int64N(50)
		case 1:
			limit.Algorithm = limiter.Algorithm(random.IntN(3))
		}
		f := newFixture(t, limiter.Budget{Name: "own", Scope: limiter.ByPrincipal, Limit: limit})
		var cost int64
		h := f.middleware(t, byAddress, keying.Pattern, costs(&cost))(http.NotFoundHandler())
		for range 20 {
			cost = random.Int64N(limit.Capacity()+2) / (1 + random.Int64N(10))
			resp := ask(h, "GET", "/")
			got := read(t, resp.Header)
			require.Equal(t, limit.Capacity(), got.quota)
			require.GreaterOrEqual(t, got.window, int64(1))
			require.GreaterOrEqual(t, got.left, int64(0))
			require.LessOrEqual(t, got.left, got.quota)
			require.NotZero(t, got.effective, "t is at least 1 or not there")
			require.LessOrEqual(t, got.effective, got.window, limit)
			switch {
			case got.backoff > 0:
				require.Equal(t, 429, resp.StatusCode)
				require.Less(t, got.left, cost)
				require.Equal(t, got.backoff, got.effective)
				f.move(time.Duration(got.backoff) * time.Second)
				require.Equal(t, 404, ask(h, "GET", "/").StatusCode, "%v, %d", limit, cost)
			case resp.StatusCode == 404 && got.left == 0 && limit.Algorithm != limiter.RollingLog:
				if cost = 1; random.IntN(2) == 0 {
					f.move(time.Duration(got.effective) * time.Second)
					require.Equal(t, 404, ask(h, "GET", "/").StatusCode, "%v after r=0 and t", limit)
				}
			}
			f.move(time.Duration(random.Int64N(int64(limit.Per))))
		}
	}
}

// Within t no more than r can be used, and t is not longer than it must be.
func TestHeaders_TheEffectiveWindowEndsWithTheNextToken(t *testing.T) {
	random := rand.New(rand.NewPCG(6, 12))
	for range 500 {
		limit := limiter.Limit{Tokens: 1 + random.Int64N(1000), Burst: 1 + random.Int64N(1000),
			Per: time.Duration(1 + random.Int64N(int64(time.Hour)))}
		f := newFixture(t, limiter.Budget{Name: "own", Scope: limiter.ByPrincipal, Limit: limit})
		cost := 1 + random.Int64N(limit.Burst)
		h := f.middleware(t, byAddress, keying.Pattern, costs(&cost))(http.NotFoundHandler())
		got := read(t, ask(h, "GET", "/").Header)
		caller := limiter.Caller{Principal: limiter.Principal{
			Kind: keying.KindAddress, Tenant: "192.0.2.0/24", ID: "192.0.2.1"}}
		f.move(time.Duration(got.effective)*time.Second - time.Second)
		d, err := f.limiter.Peek(context.Background(), caller, got.left+1)
		require.NoError(t, err)
		require.True(t, got.effective == 1 || !d.Allowed(), "%v: t=%d", limit, got.effective)
		f.move(time.Second)
		d, err = f.limiter.Peek(context.Background(), caller, got.left+1)
		require.NoError(t, err)
		require.True(t, d.Allowed(), "%v: t=%d", limit, got.effective)
	}
}

func TestHeaders_XRateLimitCountsSecondsUntilTheAccountIsFull(t *testing.T) {
	f := newFixture(t, limiter.Budget{Name: "own", Scope: limiter.ByPrincipal,
		Limit: limiter.Limit{Tokens: 1, Per: time.Second, Burst: 6}})
	cost := int64(0)
	cfg := costs(&cost)
	cfg.Headers = middleware.XRateLimit
	h := f.middleware(t, byAddress, keying.Pattern, cfg)(http.NotFoundHandler())
	for _, tt := range []struct {
		cost                    int64
		limit, remaining, reset string
		after                   string
	}{
		{0, "6", "6", "0", ""}, {6, "6", "0", "6", ""}, {1, "6", "0", "6", "1"}, {7, "6", "0", "6", ""},
	} {
		cost = tt.cost
		header := ask(h, "GET", "/").Header
		assert.Equal(t, []string{tt.limit}, header.Values("X-RateLimit-Limit"), tt)
		assert.Equal(t, []string{tt.remaining}, header.Values("X-RateLimit-Remaining"), tt)
		assert.Equal(t, []string{tt.reset}, header.Values("X-RateLimit-Reset"), tt)
		assert.Equal(t, tt.after, header.Get("Retry-After"), tt)
		assert.Empty(t, header.Values("RateLimit"))
		assert.Empty(t, header.Values("RateLimit-Policy"))
	}
}

func TestHeaders_OffLeavesRetryAfter(t *testing.T) {
	f := newFixture(t, perHour(1))
	h := f.middleware(t, byAddress, keying.Pattern, middleware.Config{Headers: middleware.Off})(
		http.NotFoundHandler())
	assert.NotContains(t, fmt.Sprint(ask(h, "GET", "/").Header), "Ratelimit")
	header := ask(h, "GET", "/").Header
	assert.NotContains(t, fmt.Sprint(header), "Ratelimit")
	assert.Equal(t, "3600", header.Get("Retry-After"))
}

func TestHeaders_TellOnlyOfTheCallersOwnAndOfPublicBudgets(t *testing.T) {
	public := func(b limiter.Budget) limiter.Budget { b.Public = true; return b }
	all := limiter.Budget{Name: "all", Limit: limiter.PerMinute(2)}
	user := limiter.Budget{Name: "user", Scope: limiter.ByPrincipal, Limit: limiter.PerMinute(4)}
	tenant := limiter.Budget{Name: "tenant", Scope: limiter.ByTenant, Limit: limiter.PerMinute(4)}
	shadow := limiter.Budget{Name: "shadow", Scope: limiter.ByPrincipal, Limit: limiter.PerMinute(1),
		Shadow: true}
	tests := []struct {
		name    string
		budgets []limiter.Budget
		want    []string // by request
	}{
		{"shared", []limiter.Budget{all}, []string{"", "", ""}},
		{"public", []limiter.Budget{public(all)}, []string{"all", "all", "all"}},
		// The tenant of an address is its network, which is others, too.
		{"network", []limiter.Budget{tenant}, []string{"", "", "", "", ""}},
		{"public-network", []limiter.Budget{public(tenant)}, []string{"tenant"}},
		// The shared one decides; allowed callers hear of their own, and those
		// that are refused hear nothing that they could mistake for the reason.
		{"both", []limiter.Budget{all, user}, []string{"user", "user", ""}},
		{"both-public", []limiter.Budget{public(all), user}, []string{"all", "all", "all"}},
		{"shadow", []limiter.Budget{shadow, user}, []string{"user", "user"}},
		{"only-shadow", []limiter.Budget{shadow}, []string{"", ""}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t, tt.budgets...)
			h := f.middleware(t, byAddress, keying.Pattern, middleware.Config{})(http.NotFoundHandler())
			for i, want := range tt.want {
				got := read(t, ask(h, "GET", "/").Header)
				assert.Equal(t, want, got.name, i)
				assert.Equal(t, want, got.policy, i)
			}
		})
	}
}

func TestHeaders_OfEquallyEmptyBudgetsStateTheOneThatLastsLonger(t *testing.T) {
	f := newFixture(t,
		limiter.Budget{Name: "a", Scope: limiter.ByPrincipal, Limit: limiter.PerSecond(1)},
		limiter.Budget{Name: "b", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(1)},
		limiter.Budget{Name: "c", Scope: limiter.ByPrincipal, Limit: limiter.PerMinute(1)})
	h := f.middleware(t, byAddress, keying.Pattern, middleware.Config{})(http.NotFoundHandler())
	got := read(t, ask(h, "GET", "/").Header)
	assert.Equal(t, fields{"b", "b", 1, 3600, 0, 3600, -1}, got)
}

func TestHeaders_TellOfTheBudgetWithTheSmallerPartLeft(t *testing.T) {
	for _, unit := range []int64{10, 1 << 58} { // small, and with products of more than 64 bits
		f := newFixture(t,
			limiter.Budget{Name: "a", Scope: limiter.ByPrincipal, Limit: limiter.PerSecond(6 * unit)},
			limiter.Budget{Name: "b", Scope: limiter.ByPrincipal, Limit: limiter.PerSecond(2 * unit)},
			limiter.Budget{Name: "c", Scope: limiter.ByPrincipal, Limit: limiter.PerSecond(4 * unit)})
		h := f.middleware(t, byAddress, keying.Pattern, costs(&unit))(http.NotFoundHandler())
		assert.Equal(t, "b", read(t, ask(h, "GET", "/").Header).name)
	}
}

func TestHeaders_FollowTheCallersPlan(t *testing.T) {
	plans := map[string]limiter.Limit{"free": limiter.PerMinute(2), "none": limiter.Blocked,
		"paid": limiter.PerMinute(100), "staff": limiter.Unlimited}
	f := newFixture(t, limiter.Budget{Name: "plan", Scope: limiter.ByPrincipal,
		Limit: limiter.PerMinute(1),
		LimitFor: func(_ context.Context, c limiter.Caller) limiter.Limit {
			return plans[c.Principal.ID]
		}})
	h := authenticate(f.middleware(t, byUser, keying.Pattern, middleware.Config{})(
		http.NotFoundHandler()))
	for range 2 { // the second time from what is remembered
		for user, want := range map[string]int64{"free": 2, "none": 0, "paid": 100, "staff": -1} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, get("/", user)())
			assert.Equal(t, want, read(t, w.Header()).quota, user)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, get("/", "none")())
	assert.Equal(t, fields{"plan", "plan", 0, -1, 0, -1, -1}, read(t, w.Header()))
	assert.Contains(t, w.Body.String(), `"detail":"The limit allows this caller nothing."`)
}

func TestHeaders_ManyPlansAreStatedAlike(t *testing.T) {
	f := newFixture(t, limiter.Budget{Name: "plan", Scope: limiter.ByPrincipal,
		Limit: limiter.PerMinute(1),
		LimitFor: func(_ context.Context, c limiter.Caller) limiter.Limit {
			n, _ := strconv.ParseInt(c.Principal.ID, 10, 64)
			return limiter.PerMinute(n)
		}})
	h := authenticate(f.middleware(t, byUser, keying.Pattern, middleware.Config{})(
		http.NotFoundHandler()))
	for range 2 {
		for n := int64(2); n < 600; n++ {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, get("/", strconv.FormatInt(n, 10))())
			require.Equal(t, n, read(t, w.Header()).quota)
		}
	}
}

// Handlers own the header map; what they do to it must not reach other answers.
func TestHeaders_AHandlerMayChangeThem(t *testing.T) {
	f := newFixture(t, perHour(100))
	h := f.middleware(t, byAddress, keying.Pattern, middleware.Config{})(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/vandal" {
				w.Header()["Ratelimit-Policy"][0] = "vandal"
				w.Header().Add("RateLimit", "vandal")
			}
			if r.URL.Path == "/remove" {
				w.Header().Del("RateLimit")
			}
		}))
	ask(h, "GET", "/vandal")
	assert.Empty(t, ask(h, "GET", "/remove").Header.Values("RateLimit"))
	assert.Equal(t, fields{"all", "all", 100, 3600, 97, 36, -1}, func() fields {
		f := read(t, ask(h, "GET", "/").Header)
		f.effective = 36 // the 97th comes in up to 36 s
		return f
	}())
}
