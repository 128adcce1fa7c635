package middleware_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/assert"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/keying/chiroute"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/middleware"
)

// chain is two limiters by address, one behind the other, at one clock.
func chain(
	t *testing.T, outer, inner limiter.Budget, cfg middleware.Config,
) (h http.Handler, move func(time.Duration)) {
	t.Helper()
	outer.Scope, inner.Scope = limiter.ByPrincipal, limiter.ByPrincipal
	first, second := newFixture(t, outer), newFixture(t, inner)
	h = first.middleware(t, byAddress, keying.Pattern, cfg)(
		second.middleware(t, byAddress, keying.Pattern, cfg)(http.NotFoundHandler()))
	return h, func(d time.Duration) {
		first.move(d)
		second.move(d)
	}
}

func TestChain_AllowedAnswersStateTheOneWithFewerLeft(t *testing.T) {
	five := limiter.Limit{Tokens: 5, Per: time.Minute}
	tests := []struct {
		name         string
		outer, inner limiter.Limit
		want         fields
	}{
		{"outer", limiter.PerMinute(2), five, fields{"o", "o", 2, 60, 1, 30, -1}},
		{"inner", five, limiter.PerMinute(2), fields{"i", "i", 2, 60, 1, 30, -1}},
		{"equal", five, five, fields{"o", "o", 5, 60, 4, 12, -1}},
		{"both-empty-outer-for-longer", limiter.PerHour(1), limiter.PerMinute(1),
			fields{"o", "o", 1, 3600, 0, 3600, -1}},
		{"both-empty-inner-for-longer", limiter.PerMinute(1), limiter.PerHour(1),
			fields{"i", "i", 1, 3600, 0, 3600, -1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h, _ := chain(t, limiter.Budget{Name: "o", Limit: tt.outer},
				limiter.Budget{Name: "i", Limit: tt.inner}, middleware.Config{})
			assert.Equal(t, tt.want, read(t, ask(h, "GET", "/").Header))
		})
	}
}

// A looser limit at the root must not write over the refusal of a route.
func TestChain_ARefusalStatesTheBudgetThatRefused(t *testing.T) {
	all, route := newFixture(t, perHour(100)), newFixture(t, limiter.Budget{Name: "route",
		Scope: perRoute, Limit: limiter.PerMinute(2)})
	router := chi.NewRouter()
	routes := chiroute.New(router).Route
	router.Use(all.middleware(t, byAddress, routes, middleware.Config{}))
	router.With(route.middleware(t, byAddress, routes, middleware.Config{})).
		Get("/a", func(http.ResponseWriter, *http.Request) {})
	var got []fields
	for range 3 {
		got = append(got, read(t, ask(router, "GET", "/a").Header))
	}
	assert.Equal(t, []fields{
		{"route", "route", 2, 60, 1, 30, -1},
		{"route", "route", 2, 60, 0, 30, -1},
		{"route", "route", 2, 60, 0, 30, 30},
	}, got)
}

// The refused request was the outer limiter's last: whoever comes back when the
// inner one would let it in is refused by the outer one.
func TestChain_RetryAfterIsTheLongerWait(t *testing.T) {
	h, move := chain(t, limiter.Budget{Name: "o", Limit: limiter.Limit{Tokens: 1, Per: 100 * time.Second,
		Burst: 2}}, limiter.Budget{Name: "i", Limit: limiter.PerSecond(1)}, middleware.Config{})
	assert.Equal(t, 404, ask(h, "GET", "/").StatusCode)
	resp := ask(h, "GET", "/")
	assert.Equal(t, 429, resp.StatusCode)
	assert.Equal(t, fields{"i", "i", 1, 1, 0, 1, 100}, read(t, resp.Header))
	move(100 * time.Second)
	assert.Equal(t, 404, ask(h, "GET", "/").StatusCode)
}

func TestChain_BothChargeForEachTry(t *testing.T) {
	h, _ := chain(t, limiter.Budget{Name: "o", Limit: limiter.PerHour(10)},
		limiter.Budget{Name: "i", Limit: limiter.PerHour(1)}, middleware.Config{})
	for range 10 {
		ask(h, "GET", "/")
	}
	resp := ask(h, "GET", "/")
	assert.Equal(t, fields{"o", "o", 10, 3600, 0, 360, 360}, read(t, resp.Header))
}

func TestChain_ARefusalHidesWhatTheOuterOneStated(t *testing.T) {
	for _, headers := range []middleware.Headers{middleware.Draft11, middleware.XRateLimit} {
		outer, inner := newFixture(t, perHour(9)), newFixture(t, limiter.Budget{Name: "shared",
			Limit: limiter.PerHour(1)})
		cfg := middleware.Config{Headers: headers}
		h := outer.middleware(t, byAddress, keying.Pattern, cfg)(
			inner.middleware(t, byAddress, keying.Pattern, cfg)(http.NotFoundHandler()))
		allowed := ask(h, "GET", "/").Header
		assert.Len(t, append(allowed.Values("RateLimit"), allowed.Values("X-RateLimit-Limit")...), 1)
		refused := ask(h, "GET", "/").Header
		assert.Equal(t, "3600", refused.Get("Retry-After"))
		for _, name := range []string{"RateLimit", "RateLimit-Policy", "X-RateLimit-Limit",
			"X-RateLimit-Remaining", "X-RateLimit-Reset"} {
			assert.Empty(t, refused.Values(name), name)
		}
	}
}

func TestChain_TheXFormSpeaksWithOneVoice(t *testing.T) {
	for _, limits := range [][2]int64{{2, 5}, {5, 2}} {
		h, _ := chain(t, limiter.Budget{Name: "o", Limit: limiter.PerMinute(limits[0])},
			limiter.Budget{Name: "i", Limit: limiter.PerMinute(limits[1])},
			middleware.Config{Headers: middleware.XRateLimit})
		header := ask(h, "GET", "/").Header
		assert.Equal(t, []string{"2"}, header.Values("X-RateLimit-Limit"))
		assert.Equal(t, []string{"1"}, header.Values("X-RateLimit-Remaining"))
	}
}

// Fields that another part of the service has set are not ours to obey.
func TestChain_ForeignFieldsAreReplaced(t *testing.T) {
	for _, foreign := range []string{"", "limit=100, remaining=0, reset=5", `"a";r=x;t=1`, `"a";r=0;t=`} {
		f := newFixture(t, perHour(1))
		limit := f.middleware(t, byAddress, keying.Pattern, middleware.Config{})(http.NotFoundHandler())
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("RateLimit", foreign)
			limit.ServeHTTP(w, r)
		})
		assert.Equal(t, fields{"all", "all", 1, 3600, 0, 3600, -1}, read(t, ask(h, "GET", "/").Header))
		assert.Equal(t, fields{"all", "all", 1, 3600, 0, 3600, 3600}, read(t, ask(h, "GET", "/").Header))
	}
}
