package keying_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ration-go/ration/internal/lab/certtest"
	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
)

var alice = limiter.Principal{Kind: "user", Tenant: "acme", ID: "alice"}

func TestPrincipalFrom_ReturnsWhomTheAuthenticationNamed(t *testing.T) {
	_, ok := keying.PrincipalFrom(t.Context())
	assert.False(t, ok, "an empty context")

	ctx := keying.WithPrincipal(t.Context(), alice)
	p, ok := keying.PrincipalFrom(ctx)
	assert.True(t, ok)
	assert.Equal(t, alice, p)
	assert.Zero(t, testing.AllocsPerRun(100, func() { keying.PrincipalFrom(ctx) }))
}

func TestWithPrincipal_RefusesNobodyAndReservedKinds(t *testing.T) {
	for name, p := range map[string]limiter.Principal{
		"zero":        {},
		"no-id":       {Kind: "user", Tenant: "acme"},
		"no-kind":     {Tenant: "acme", ID: "alice"},
		"address":     {Kind: keying.KindAddress, ID: "203.0.113.7"},
		"certificate": {Kind: keying.KindCertificate, ID: "CN=alice"},
		"shared":      {Kind: keying.KindShared, ID: "everybody"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := keying.WithPrincipal(keying.WithPrincipal(t.Context(), alice), p)
			got, ok := keying.PrincipalFrom(ctx)
			assert.False(t, ok, "the outer principal must not shine through")
			assert.Zero(t, got)
		})
	}
}

// The service meant a principal, so no other account may pay in its place.
func TestWho_APrincipalThatIsNotValidIsCountedAsNobodyElse(t *testing.T) {
	leaf := certtest.New(t, "CA").Issue(t, x509.Certificate{
		Subject: pkix.Name{CommonName: "alice"}}).Leaf
	origin := keying.Origin{Remote: "203.0.113.7:4711", TLS: &tls.ConnectionState{
		PeerCertificates: []*x509.Certificate{leaf}, VerifiedChains: [][]*x509.Certificate{{leaf}}}}
	for _, absent := range []keying.Absent{keying.Refuse("Bearer"), keying.OrShared(),
		keying.OrAddress(keying.Addresses{})} {
		who := keying.Authenticated(absent).OrCertificate(keying.CertificateSubject)
		for _, invalid := range []limiter.Principal{{}, {Kind: "user", Tenant: "acme"}, {ID: "alice"},
			{Kind: keying.KindAddress, ID: "203.0.113.8"}} {
			p, err := who.Principal(with(alice, invalid), origin)
			assert.ErrorIs(t, err, keying.ErrInvalidPrincipal)
			assert.ErrorIs(t, err, limiter.ErrNobody, "adapters refuse it as nobody")
			assert.Zero(t, p)
		}
		p, err := who.Principal(with(limiter.Principal{}, alice), origin)
		assert.NoError(t, err)
		assert.Equal(t, alice, p, "a later call that is valid counts")
	}
}

func TestWho_CountsTheAuthenticatedElseWhatWasChosen(t *testing.T) {
	origin := keying.Origin{Remote: "203.0.113.7:4711"}
	address := limiter.Principal{
		Kind: keying.KindAddress, Tenant: "203.0.113.0/24", ID: "203.0.113.7",
	}
	shared := limiter.Principal{Kind: keying.KindShared, ID: "everybody"}
	unreadable := keying.Origin{Remote: "@"}
	tests := []struct {
		name   string
		who    keying.Who
		ctx    context.Context
		origin keying.Origin
		want   limiter.Principal
		err    error
	}{
		{"principal", keying.Authenticated(keying.Refuse("Bearer")), with(alice), origin, alice, nil},
		{"principal-not-address", keying.Authenticated(keying.OrAddress(keying.Addresses{})),
			with(alice), origin, alice, nil},
		{"refused", keying.Authenticated(keying.Refuse("Bearer")), with(), origin,
			limiter.Principal{}, limiter.ErrNobody},
		{"refused-an-invalid-principal", keying.Authenticated(keying.Refuse("Bearer")),
			with(address), origin, limiter.Principal{}, limiter.ErrNobody},
		{"by-address-where-nobody", keying.Authenticated(keying.OrAddress(keying.Addresses{})),
			with(), origin, address, nil},
		{"shared-where-nobody", keying.Authenticated(keying.OrShared()), with(), origin, shared, nil},
		{"by-address-always", keying.ByAddress(keying.Addresses{}), with(alice), origin, address, nil},
		{"no-address-refused", keying.ByAddress(keying.Addresses{}), with(), unreadable,
			limiter.Principal{}, limiter.ErrNobody},
		{"no-address-shared", keying.ByAddress(keying.Addresses{Unknown: keying.OrShared()}),
			with(), unreadable, shared, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			assert.NoError(t, tt.who.Validate())
			p, err := tt.who.Principal(tt.ctx, tt.origin)
			assert.ErrorIs(t, err, tt.err)
			assert.Equal(t, tt.want, p)
		})
	}
}

func with(principals ...limiter.Principal) context.Context {
	ctx := context.Background()
	for _, p := range principals {
		ctx = keying.WithPrincipal(ctx, p)
	}
	return ctx
}

// A user may be called like an address; the two never share an account.
func TestWho_AUserNamedLikeAnAddressIsNotTheAddress(t *testing.T) {
	who := keying.Authenticated(keying.OrAddress(keying.Addresses{}))
	origin := keying.Origin{Remote: "127.0.0.1:1"}
	address, err := who.Principal(t.Context(), origin)
	assert.NoError(t, err)
	user, err := who.Principal(with(limiter.Principal{
		Kind: "user", Tenant: address.Tenant, ID: address.ID,
	}), origin)
	assert.NoError(t, err)
	assert.NotEqual(t, address, user)
}

func TestWho_ChallengeIsThatOfTheChoiceThatRefuses(t *testing.T) {
	const challenge = `Bearer realm="api"`
	unknown := keying.Addresses{Unknown: keying.Refuse(challenge)}
	assert.Equal(t, challenge, keying.Authenticated(keying.Refuse(challenge)).Challenge())
	assert.Equal(t, challenge, keying.ByAddress(unknown).Challenge())
	assert.Empty(t, keying.ByAddress(keying.Addresses{}).Challenge())
	assert.Empty(t, keying.Authenticated(keying.OrShared()).Challenge())
}

func TestWho_ValidateNamesWhatIsWrong(t *testing.T) {
	tests := []struct {
		name  string
		who   keying.Who
		field string
	}{
		{"zero", keying.Who{}, "Who"},
		{"no-choice", keying.Authenticated(keying.Absent{}), "Who"},
		{"no-challenge", keying.Authenticated(keying.Refuse("")), "Who.Refuse"},
		{"header-injection", keying.Authenticated(keying.Refuse("Bearer\r\nX: y")), "Who.Refuse"},
		{"trusts-all-of-ipv4", by("0.0.0.0/0", "", 0), "Addresses.Proxies[0]"},
		{"trusts-all-of-ipv6", by("::/0", "", 0), "Addresses.Proxies[0]"},
		{"trusts-half-of-ipv4", by("128.0.0.0/1", "", 0), "Addresses.Proxies[0]"},
		{"trusts-all-of-public-ipv6", by("2000::/3", "", 0), "Addresses.Proxies[0]"},
		{"mapped-prefix", by("::ffff:10.0.0.0/104", "", 0), "Addresses.Proxies[0]"},
		{"zero-prefix", by("", "", 0), "Addresses.Proxies[0]"},
		{"header-without-proxies", keying.ByAddress(keying.Addresses{Header: "X-Real-Ip"}),
			"Addresses.Header"},
		{"header-of-another-form", by("10.0.0.0/8", "forwarded", 0), "Addresses.Header"},
		{"bits-too-few", by("10.0.0.0/8", "", 47), "Addresses.IPv6Bits"},
		{"bits-too-many", by("10.0.0.0/8", "", 129), "Addresses.IPv6Bits"},
		{"bits-negative", by("10.0.0.0/8", "", -1), "Addresses.IPv6Bits"},
		{"address-where-there-is-none", keying.ByAddress(keying.Addresses{
			Unknown: keying.OrAddress(keying.Addresses{}),
		}), "Addresses.Unknown"},
		{"no-name-of-certificates", keying.Authenticated(keying.OrShared()).OrCertificate(0),
			"Who.OrCertificate"},
		{"unknown-name-of-certificates", keying.ByAddress(keying.Addresses{}).OrCertificate(5),
			"Who.OrCertificate"},
		{"no-function-that-verifies", keying.Authenticated(keying.OrShared()).
			OrCertificate(keying.CertificateSubject).VerifiedBy(nil), "Who.VerifiedBy"},
		{"verified-but-not-counted", keying.Authenticated(keying.OrShared()).VerifiedBy(
			func(*tls.ConnectionState) *x509.Certificate { return nil }), "Who.VerifiedBy"},
		{"empty-challenge-for-unknown", keying.ByAddress(keying.Addresses{
			Unknown: keying.Refuse(""),
		}), "Addresses.Unknown"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var config *limiter.ConfigError
			if assert.ErrorAs(t, tt.who.Validate(), &config) {
				assert.Equal(t, tt.field, config.Field)
				assert.NotEmpty(t, config.Reason)
			}
		})
	}
	assert.NoError(t, by("10.0.0.0/8", "X-Real-Ip", 48).Validate())
	assert.NoError(t, by("fc00::/7", "", 0).Validate())
}
