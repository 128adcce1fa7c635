package keying_test

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
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
