package keying_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
)

// by trusts one proxy prefix, or an invalid one for "".
func by(prefix, header string, bits int) keying.Who {
	var p netip.Prefix
	if prefix != "" {
		p = netip.MustParsePrefix(prefix)
	}
	return keying.ByAddress(keying.Addresses{
		Proxies: []netip.Prefix{p}, Header: header, IPv6Bits: bits,
	})
}

func TestByAddress_NamesTheConnection(t *testing.T) {
	tests := []struct {
		name, remote string
		id, tenant   string // empty: nobody
	}{
		{"ipv4", "203.0.113.7:4711", "203.0.113.7", "203.0.113.0/24"},
		{"ipv4-another-port", "203.0.113.7:4712", "203.0.113.7", "203.0.113.0/24"},
		{"ipv4-without-port", "203.0.113.7", "203.0.113.7", "203.0.113.0/24"},
		{"mapped", "[::ffff:203.0.113.7]:4711", "203.0.113.7", "203.0.113.0/24"},
		{"mapped-hexadecimal", "[::ffff:cb00:7107]:4711", "203.0.113.7", "203.0.113.0/24"},
		{"nat64", "[64:ff9b::cb00:7107]:4711", "203.0.113.7", "203.0.113.0/24"},
		{"ipv6", "[2001:db8:1:2:3:4:5:6]:4711", "2001:db8:1:2::/64", "2001:db8:1::/48"},
		{"ipv6-same-network", "[2001:db8:1:2:ffff::1]:1", "2001:db8:1:2::/64", "2001:db8:1::/48"},
		{"ipv6-next-network", "[2001:db8:1:3::1]:1", "2001:db8:1:3::/64", "2001:db8:1::/48"},
		{"ipv6-loopback", "[::1]:5000", "::/64", "::/48"},
		{"zone", "[fe80::1%eth0]:4711", "fe80::/64", "fe80::/48"},
		{"mapped-with-zone", "[::ffff:203.0.113.7%eth0]:1", "203.0.113.7", "203.0.113.0/24"},
		// Nobody: the required choice applies.
		{"unix-socket", "@", "", ""},
		{"empty", "", "", ""},
		{"name", "example.com:80", "", ""},
		{"leading-zero", "203.0.113.07:1", "", ""},
		{"garbage", "203.0.113.7:4711:1", "", ""},
		{"invalid-utf8", "\xff\xfe", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := keying.ByAddress(keying.Addresses{}).Principal(t.Context(),
				keying.Origin{Remote: tt.remote, Header: forged.Values})
			if tt.id == "" {
				assert.ErrorIs(t, err, limiter.ErrNobody)
				assert.Zero(t, p)
				return
			}
			assert.NoError(t, err)
			assert.Equal(t, limiter.Principal{
				Kind: keying.KindAddress, Tenant: tt.tenant, ID: tt.id,
			}, p)
		})
	}
}

// forged is what a caller may send; nothing of it counts without proxies.
var forged = http.Header{
	"X-Forwarded-For": {"198.51.100.1"}, "X-Real-Ip": {"198.51.100.2"},
	"True-Client-Ip": {"198.51.100.3"}, "Forwarded": {"for=198.51.100.4"},
	"Cf-Connecting-Ip": {"198.51.100.5"},
}

func TestByAddress_BelievesTrustedProxiesOnly(t *testing.T) {
	const proxy = "10.0.0.1:80"
	tests := []struct {
		name, remote string
		lines        []string
		id           string // empty: nobody
	}{
		{"one-hop", proxy, []string{"198.51.100.9"}, "198.51.100.9"},
		{"invented-hop-on-the-left", proxy, []string{"1.1.1.1, 198.51.100.9"}, "198.51.100.9"},
		{"several-lines", proxy, []string{"1.1.1.1", "198.51.100.9"}, "198.51.100.9"},
		{"several-lines-and-hops", proxy, []string{"1.1.1.1, 2.2.2.2", "198.51.100.9, 10.9.9.9"},
			"198.51.100.9"},
		{"chain-of-proxies", proxy, []string{"1.1.1.1,198.51.100.9 ,\t10.0.0.3, 10.0.0.2"},
			"198.51.100.9"},
		{"proxies-on-a-line-of-their-own", proxy, []string{"198.51.100.9", "10.0.0.3", "10.0.0.2"},
			"198.51.100.9"},
		{"with-port", proxy, []string{"198.51.100.9:5000"}, "198.51.100.9"},
		{"ipv6-with-port", proxy, []string{"[2001:db8::9]:5000"}, "2001:db8::/64"},
		{"ipv6", proxy, []string{"2001:db8::9"}, "2001:db8::/64"},
		{"mapped", proxy, []string{"::ffff:198.51.100.9"}, "198.51.100.9"},
		{"mapped-proxy", "[::ffff:10.0.0.1]:80", []string{"198.51.100.9"}, "198.51.100.9"},
		{"mapped-proxy-in-the-chain", proxy, []string{"198.51.100.9, ::ffff:10.0.0.3"},
			"198.51.100.9"},
		{"only-proxies", proxy, []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		{"no-header", proxy, nil, "10.0.0.1"},
		{"caller-is-no-proxy", "203.0.113.7:80", []string{"198.51.100.9"}, "203.0.113.7"},
		// A hop that cannot be read: nothing left of it is believed.
		{"garbage-on-the-right", proxy, []string{"198.51.100.9, garbage"}, ""},
		{"garbage-before-proxies", proxy, []string{"198.51.100.9, unknown, 10.0.0.2"}, ""},
		{"garbage-on-the-left-is-not-read", proxy, []string{"garbage, 198.51.100.9"}, "198.51.100.9"},
		{"empty-hop", proxy, []string{"198.51.100.9, "}, ""},
		{"empty-line", proxy, []string{"198.51.100.9", ""}, ""},
		{"forwarded-syntax", proxy, []string{"for=198.51.100.9"}, ""},
		{"unix-socket", "@", []string{"198.51.100.9"}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := forged.Clone()
			h["X-Forwarded-For"] = tt.lines
			p, err := by("10.0.0.0/8", "", 0).Principal(t.Context(),
				keying.Origin{Remote: tt.remote, Header: h.Values})
			if tt.id == "" {
				assert.ErrorIs(t, err, limiter.ErrNobody)
				return
			}
			assert.NoError(t, err)
			assert.Equal(t, tt.id, p.ID)
		})
	}
}

func TestByAddress_ReadsTheHeaderThatWasNamed(t *testing.T) {
	h := forged.Clone()
	origin := keying.Origin{Remote: "10.0.0.1:80", Header: h.Values}
	p, err := by("10.0.0.0/8", "x-real-ip", 0).Principal(t.Context(), origin)
	assert.NoError(t, err)
	assert.Equal(t, "198.51.100.2", p.ID)
}

func TestByAddress_ZonesNeitherHideAProxyNorSplitACaller(t *testing.T) {
	p, err := by("fe80::/10", "", 128).Principal(t.Context(), keying.Origin{
		Remote: "[fe80::1%eth0]:80", Header: http.Header{
			"X-Forwarded-For": {"2001:db8::9%chosen, fe80::2%eth1"},
		}.Values,
	})
	assert.NoError(t, err)
	assert.Equal(t, "2001:db8::9", p.ID)
}

func TestByAddress_GroupsIPv6AsSet(t *testing.T) {
	for bits, id := range map[int]string{
		48: "2001:db8:1::/48", 56: "2001:db8:1::/56", 64: "2001:db8:1:2::/64",
		128: "2001:db8:1:2:3:4:5:6",
	} {
		who := keying.ByAddress(keying.Addresses{IPv6Bits: bits})
		p, err := who.Principal(t.Context(), keying.Origin{Remote: "[2001:db8:1:2:3:4:5:6]:1"})
		assert.NoError(t, err)
		assert.Equal(t, id, p.ID, bits)
		assert.Equal(t, "2001:db8:1::/48", p.Tenant)
	}
}

func TestByAddress_KeepsTheProxiesThatItWasGiven(t *testing.T) {
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	who := keying.ByAddress(keying.Addresses{Proxies: proxies})
	proxies[0] = netip.MustParsePrefix("203.0.113.0/24")
	p, err := who.Principal(t.Context(), keying.Origin{
		Remote: "203.0.113.7:1", Header: forged.Values,
	})
	assert.NoError(t, err)
	assert.Equal(t, "203.0.113.7", p.ID)
}

func TestByAddress_HasNoneOverAUnixSocket(t *testing.T) {
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	require.NoError(t, err)
	errs := make(chan error, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(
		func(_ http.ResponseWriter, r *http.Request) {
			_, err := keying.ByAddress(keying.Addresses{}).Principal(r.Context(),
				keying.Origin{Remote: r.RemoteAddr, Header: r.Header.Values})
			errs <- err
		}))
	require.NoError(t, server.Listener.Close())
	server.Listener = listener
	server.Start()
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", listener.Addr().String())
		},
		DisableKeepAlives: true,
	}}
	resp, err := client.Get("http://unix/")
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.ErrorIs(t, <-errs, limiter.ErrNobody)
}

func TestAddresses_HeaderIsAName(t *testing.T) {
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	for _, header := range []string{"X-Forwarded-For ", "X Real IP", "X-Forwarded-For:", "Host", "host"} {
		err := keying.Addresses{Proxies: proxies, Header: header}.Validate()
		var config *limiter.ConfigError
		require.ErrorAs(t, err, &config, header)
		assert.Equal(t, "Addresses.Header", config.Field)
		assert.Equal(t, header, config.Value)
	}
	assert.NoError(t, keying.Addresses{Proxies: proxies, Header: "CF-Connecting-IP"}.Validate())
}

func TestOrigin_AnAddressNeedsNoText(t *testing.T) {
	who := keying.ByAddress(keying.Addresses{IPv6Bits: 128,
		Proxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	behind := func(string) []string { return []string{"198.51.100.1"} }
	for _, tt := range []struct{ addr, want string }{
		{"203.0.113.7", "203.0.113.7"},
		{"::ffff:203.0.113.7", "203.0.113.7"},
		{"64:ff9b::203.0.113.7", "203.0.113.7"},
		{"fe80::1%eth0", "fe80::1"},
		{"::ffff:10.0.0.1", "198.51.100.1"},
	} {
		p, err := who.Principal(t.Context(), keying.Origin{Addr: netip.MustParseAddr(tt.addr),
			Remote: "192.0.2.9:1", Header: behind})
		require.NoError(t, err)
		assert.Equal(t, tt.want, p.ID, tt.addr)
	}
}
