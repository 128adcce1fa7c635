package keying_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
	"github.com/ration-go/ration/middleware"
)

func ExampleAuthenticated() {
	who := keying.Authenticated(keying.Refuse(`Bearer realm="api"`))

	// In the service's authentication, once it knows who calls:
	ctx := keying.WithPrincipal(context.Background(),
		limiter.Principal{Kind: "user", Tenant: "acme", ID: "alice"})

	p, err := who.Principal(ctx, keying.Origin{Remote: "203.0.113.7:4711"})
	fmt.Println(p.Kind, p.Tenant, p.ID, err)

	_, err = who.Principal(context.Background(), keying.Origin{Remote: "203.0.113.7:4711"})
	fmt.Println(err)
	// Output:
	// user acme alice <nil>
	// limiter: a principal is required and the caller has none
}

func ExampleByAddress() {
	who := keying.ByAddress(keying.Addresses{
		Proxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
	})
	lines := func(string) []string { return []string{"198.51.100.9, 2001:db8:1:2:3::4, 10.0.0.2"} }

	p, _ := who.Principal(context.Background(), keying.Origin{Remote: "10.0.0.1:80", Header: lines})
	fmt.Println(p.ID, "of", p.Tenant)
	p, _ = who.Principal(context.Background(), keying.Origin{Remote: "203.0.113.7:80", Header: lines})
	fmt.Println(p.ID, "of", p.Tenant)
	// Output:
	// 2001:db8:1:2::/64 of 2001:db8:1::/48
	// 203.0.113.7 of 203.0.113.0/24
}

func ExampleWho_OrCertificate() {
	// The principal of the authentication, else that of a client certificate which
	// the TLS handshake has verified, else 401.
	who := keying.Authenticated(keying.Refuse(`Bearer realm="api"`)).
		OrCertificate(keying.CertificateSPIFFE)
	fmt.Println(who.Validate())
	// Output: <nil>
}

func ExampleWorkloads_Folding() {
	folding := limiter.Must(keying.Workloads{
		Header: "X-Workload", Listed: []string{"web", "batch"}, Slots: 4,
	}.Folding())
	for _, label := range []string{"web", "batch", "invented-1", "invented-2", "invented-9"} {
		fmt.Println(label, "->", folding.Fold(label))
	}
	// Output:
	// web -> web
	// batch -> batch
	// invented-1 -> ~2
	// invented-2 -> ~3
	// invented-9 -> ~2
}

// A handler charges the items of a batch to the caller whom the middleware has
// charged for the request.
func ExampleCallerFrom() {
	store := limiter.Must(memstore.New(memstore.Config{}))
	requests := limiter.Must(limiter.New(store, []limiter.Budget{{
		Name: "requests", Scope: limiter.ByPrincipal, Limit: limiter.PerMinute(100),
	}}, limiter.Config{Name: "requests"}))
	items := limiter.Must(limiter.New(store, []limiter.Budget{{
		Name: "items", Scope: limiter.ByPrincipal, Limit: limiter.PerMinute(1000),
	}}, limiter.Config{Name: "items"}))

	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		caller, ok := keying.CallerFrom(r.Context())
		fmt.Println(caller.Principal.ID, ok)
		d, err := items.Take(r.Context(), caller, 400)
		fmt.Println(d.Outcome, d.Remaining, err)
	})
	limit := limiter.Must(middleware.New(requests, keying.ByAddress(keying.Addresses{}),
		keying.Pattern, middleware.Config{Caller: true}))
	r := httptest.NewRequest("POST", "/batch", nil)
	limit.Handler(handler).ServeHTTP(httptest.NewRecorder(), r)
	// Output:
	// 192.0.2.1 true
	// allow 600 <nil>
}
