package keying_test

import (
	"context"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
)

func TestWho_HeaderIsTheOneThatAddressesAreReadFrom(t *testing.T) {
	for _, tt := range []struct {
		who  keying.Who
		want string
	}{
		{keying.Authenticated(keying.Refuse("Bearer")), ""},
		{keying.ByAddress(keying.Addresses{}), ""},
		{keying.ByAddress(keying.Addresses{Proxies: loopback}), "X-Forwarded-For"},
		{keying.Authenticated(keying.OrAddress(keying.Addresses{UnixProxy: true,
			Header: "x-real-ip"})), "X-Real-Ip"},
	} {
		assert.Equal(t, tt.want, tt.who.Header())
	}
}

func TestWho_ForwardedSaysWhetherAProxyIsTrustedAndReadable(t *testing.T) {
	unix := servedAt(&net.UnixAddr{Name: "s", Net: "unix"})
	none := keying.ByAddress(keying.Addresses{})
	proxies := keying.ByAddress(keying.Addresses{Proxies: loopback, UnixProxy: true})
	for _, tt := range []struct {
		name            string
		who             keying.Who
		ctx             context.Context
		remote          string
		header          http.Header
		trusted, stated bool
	}{
		{"nothing trusted", none, t.Context(), "127.0.0.1:1", forwarded("198.51.100.9"), false, true},
		{"nothing trusted, garbage", none, t.Context(), "127.0.0.1:1", forwarded("?"), false, true},
		{"direct", none, t.Context(), "127.0.0.1:1", http.Header{}, false, false},
		{"no header at all", none, t.Context(), "127.0.0.1:1", nil, false, false},
		{"another remote", proxies, t.Context(), "203.0.113.7:1", forwarded("198.51.100.9"), false, true},
		{"trusted", proxies, t.Context(), "127.0.0.1:1", forwarded("?, 198.51.100.9"), true, true},
		{"trusted, all hops", proxies, t.Context(), "127.0.0.1:1", forwarded("127.0.0.2"), true, true},
		{"trusted, garbage", proxies, t.Context(), "127.0.0.1:1", forwarded("198.51.100.9, ?"), true, false},
		{"trusted, silent", proxies, t.Context(), "127.0.0.1:1", http.Header{}, true, false},
		{"trusted socket", proxies, unix, "@", forwarded("198.51.100.9"), true, true},
		{"trusted socket, silent", proxies, unix, "@", http.Header{}, true, false},
		{"principals alone", keying.Authenticated(keying.Refuse("Bearer")), t.Context(), "127.0.0.1:1",
			forwarded("198.51.100.9"), false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			from := keying.Origin{Remote: tt.remote}
			if tt.header != nil {
				from.Header = tt.header.Values
			}
			trusted, stated := tt.who.Forwarded(tt.ctx, from)
			assert.Equal(t, tt.trusted, trusted, "trusted")
			assert.Equal(t, tt.stated, stated, "stated")
		})
	}
}

func TestWho_MisuseSaysWhichPartOfAPrincipalIsWrong(t *testing.T) {
	who := keying.Authenticated(keying.OrShared())
	for want, p := range map[string]limiter.Principal{
		"with an empty Kind and an empty ID,":   {Tenant: "acme"},
		"with an empty Kind,":                   {ID: "alice"},
		"with an empty ID,":                     {Kind: "user"},
		`with the reserved Kind "certificate",`: {Kind: keying.KindCertificate, ID: "alice"},
	} {
		ctx := with(p)
		_, ok := keying.PrincipalFrom(ctx)
		assert.False(t, ok)
		_, err := who.Principal(ctx, keying.Origin{})
		assert.ErrorIs(t, err, keying.ErrInvalidPrincipal)
		code, message := who.Misuse(ctx, keying.Origin{}, err)
		assert.Equal(t, "principal-invalid", code)
		assert.Contains(t, message, want)
		assert.NotContains(t, message, "alice")
	}
}

func TestWithCaller_IsFoundByCallerFrom(t *testing.T) {
	alice := limiter.Caller{Principal: limiter.Principal{Kind: "user", ID: "alice"}, Route: "GET /"}
	got, ok := keying.CallerFrom(keying.WithCaller(t.Context(), alice))
	assert.True(t, ok)
	assert.Equal(t, alice, got)
	_, ok = keying.CallerFrom(keying.WithCaller(t.Context(), limiter.Caller{Route: "GET /"}))
	assert.False(t, ok, "no principal")
}
