package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
	"github.com/ration-go/ration/middleware"
)

// stated returns the fields that state what is left.
func stated(h http.Header) []string {
	var found []string
	for _, name := range []string{"RateLimit", "RateLimit-Policy", "X-RateLimit-Limit",
		"X-RateLimit-Remaining", "X-RateLimit-Reset"} {
		if h.Get(name) != "" {
			found = append(found, name)
		}
	}
	return found
}

// as sends a request of a user; with no name, of an unauthenticated caller.
func as(h http.Handler, p limiter.Principal) *http.Response {
	r := httptest.NewRequest("GET", "/", nil)
	if p != (limiter.Principal{}) {
		r = r.WithContext(keying.WithPrincipal(r.Context(), p))
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

var bothForms = []middleware.Headers{middleware.Draft11, middleware.XRateLimit}

func TestHeaders_DoNotShowTheAccountOfAllUnauthenticatedCallers(t *testing.T) {
	for _, form := range bothForms {
		for _, settles := range []bool{false, true} {
			f := newFixture(t, limiter.Budget{Name: "user", Scope: limiter.ByPrincipal,
				Limit: limiter.PerHour(2)})
			h := f.middleware(t, keying.Authenticated(keying.OrShared()), keying.Pattern,
				middleware.Config{Headers: form, Settles: settles})(http.NotFoundHandler())
			for _, status := range []int{404, 404, 429} {
				resp := as(h, limiter.Principal{})
				require.Equal(t, status, resp.StatusCode)
				assert.Empty(t, stated(resp.Header))
				assert.Equal(t, status == 429, resp.Header.Get("Retry-After") != "")
			}
			assert.NotEmpty(t, stated(as(h, limiter.Principal{Kind: "user", ID: "alice"}).Header))
		}
	}
}

func TestHeaders_ShowTheAccountOfACallersTenant(t *testing.T) {
	f := newFixture(t, limiter.Budget{Name: "tenant", Scope: limiter.ByTenant,
		Limit: limiter.PerHour(1)})
	h := f.middleware(t, byUser, keying.Pattern, middleware.Config{})(http.NotFoundHandler())
	for _, status := range []int{404, 429} {
		resp := as(h, limiter.Principal{Kind: "user", Tenant: "acme", ID: "alice"})
		require.Equal(t, status, resp.StatusCode)
		assert.EqualValues(t, 0, read(t, resp.Header).left)
	}
}

func TestHeaders_DoNotShowAnOverflowAccount(t *testing.T) {
	for _, form := range bothForms {
		for _, settles := range []bool{false, true} {
			store, err := memstore.New(memstore.Config{MaxAccounts: 1})
			require.NoError(t, err)
			l, err := limiter.New(store, []limiter.Budget{{Name: "user", Scope: limiter.ByPrincipal,
				Limit: limiter.PerHour(2)}}, limiter.Config{})
			require.NoError(t, err)
			m, err := middleware.New(l, byUser, keying.Pattern,
				middleware.Config{Headers: form, Settles: settles})
			require.NoError(t, err)
			h := m.Handler(http.NotFoundHandler())
			alice := limiter.Principal{Kind: "user", ID: "alice"}
			for _, status := range []int{404, 404, 429} {
				resp := as(h, alice)
				require.Equal(t, status, resp.StatusCode)
				assert.NotEmpty(t, stated(resp.Header), "she has an account of her own")
			}
			// The others share one.
			for i, id := range []string{"bob", "carol", "dave"} {
				resp := as(h, limiter.Principal{Kind: "user", ID: id})
				require.Equal(t, []int{404, 404, 429}[i], resp.StatusCode)
				assert.Empty(t, stated(resp.Header))
				assert.Equal(t, i == 2, resp.Header.Get("Retry-After") != "")
			}
			require.Positive(t, store.Stats().OverflowTakes)
		}
	}
}

// One account is the caller's own, the other is not: the answer shows the first
// unless the second refuses.
func TestHeaders_ShowTheCallersOwnOfSeveralAccounts(t *testing.T) {
	f := newFixture(t,
		limiter.Budget{Name: "network", Scope: limiter.ByTenant, Limit: limiter.PerHour(2)},
		limiter.Budget{Name: "address", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(9)})
	h := f.middleware(t, byAddress, keying.Pattern, middleware.Config{})(http.NotFoundHandler())
	for _, want := range []string{"address", "address", ""} {
		assert.Equal(t, want, read(t, ask(h, "GET", "/").Header).name)
	}
}
