package keying_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
)

// servedAt is the context of a request that a server of net/http got on a
// connection with that local end.
func servedAt(local net.Addr) context.Context {
	return context.WithValue(context.Background(), http.LocalAddrContextKey, local)
}

func TestOrigin_TextIsReadOnlyOnNetworksWithIPAddresses(t *testing.T) {
	tcp, unix := &net.TCPAddr{}, &net.UnixAddr{Name: "s", Net: "unix"}
	for _, tt := range []struct {
		name    string
		ctx     context.Context
		network string
		want    error
	}{
		{"tcp", servedAt(tcp), "", nil},
		{"udp, as in HTTP/3", servedAt(&net.UDPAddr{}), "", nil},
		{"not known, as in FastCGI", t.Context(), "", nil},
		{"unix", servedAt(unix), "", limiter.ErrNobody},
		{"unix without its network", servedAt(&net.UnixAddr{}), "", limiter.ErrNobody},
		{"a pipe", servedAt(pipe{}), "", limiter.ErrNobody},
		{"stated", t.Context(), "unix", limiter.ErrNobody},
		{"stated over what the context says", servedAt(unix), "tcp", nil},
	} {
		for _, remote := range []string{"203.0.113.7", "203.0.113.7:80", "[2001:db8::1]:80",
			"::ffff:203.0.113.7", "64:ff9b::203.0.113.7", "fe80::1%eth0", "127.0.0.1:80"} {
			who := keying.ByAddress(keying.Addresses{Proxies: loopback})
			_, err := who.Principal(tt.ctx, keying.Origin{Remote: remote, Network: tt.network,
				Header: forged.Values})
			assert.ErrorIs(t, err, tt.want, "%s: %s", tt.name, remote)
		}
	}
}

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// pipe is an address whose network has no name.
type pipe struct{ net.Addr }

func (pipe) Network() string { return "" }

// An address that the transport has as such, such as from the PROXY protocol, is
// not the client's to choose, whatever carries the connection.
func TestOrigin_AnAddressCountsOnEveryNetwork(t *testing.T) {
	for _, from := range []keying.Addresses{{}, {UnixProxy: true}} {
		p, err := keying.ByAddress(from).Principal(t.Context(), keying.Origin{
			Addr: netip.MustParseAddr("203.0.113.7"), Network: "unix", Header: forged.Values})
		require.NoError(t, err)
		assert.Equal(t, "203.0.113.7", p.ID)
	}
}

func TestAddresses_UnixProxyTrustsTheSocketAndNothingElse(t *testing.T) {
	from := keying.Addresses{UnixProxy: true}
	named := from
	named.Proxies, named.Header = loopback, "X-Real-IP"
	unix, tcp := servedAt(&net.UnixAddr{Name: "s", Net: "unix"}), servedAt(&net.TCPAddr{})
	for _, tt := range []struct {
		name   string
		from   keying.Addresses
		ctx    context.Context
		remote string
		header http.Header
		want   string // empty: nobody
	}{
		{"the socket", from, unix, "@", forwarded("198.51.100.9"), "198.51.100.9"},
		{"the socket, from the right", from, unix, "", forwarded("1.1.1.1, 198.51.100.9"),
			"198.51.100.9"},
		{"the socket, by another name", from, unix, "203.0.113.7:80", forwarded("198.51.100.9"),
			"198.51.100.9"},
		{"the socket, and a proxy behind it", named, unix, "@",
			http.Header{"X-Real-Ip": {"198.51.100.9, 127.0.0.1"}}, "198.51.100.9"},
		{"the socket, without a header", from, unix, "203.0.113.7:80", http.Header{}, ""},
		{"the socket, and garbage", from, unix, "@", forwarded("198.51.100.9, unix:"), ""},
		{"TCP", from, tcp, "203.0.113.7:80", forwarded("198.51.100.9"), "203.0.113.7"},
		{"TCP without an address", from, tcp, "@", forwarded("198.51.100.9"), ""},
		{"another network", from, servedAt(pipe{}), "@", forwarded("198.51.100.9"), ""},
		{"not known", from, t.Context(), "@", forwarded("198.51.100.9"), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest("GET", "/", nil).WithContext(tt.ctx)
			r.RemoteAddr, r.Header = tt.remote, tt.header
			who := keying.ByAddress(tt.from)
			require.NoError(t, who.Validate())
			assert.True(t, who.ReadsHeader())
			p, err := who.Request(r)
			if tt.want == "" {
				assert.ErrorIs(t, err, limiter.ErrNobody)
			}
			assert.Equal(t, tt.want, p.ID)
		})
	}
}

func forwarded(line string) http.Header { return http.Header{"X-Forwarded-For": {line}} }
