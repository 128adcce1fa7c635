package keying_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
)

// Whatever a caller writes in front of the hop that the trusted proxy has added, the
// address is that hop; and without it, what the caller writes names no one whom the
// proxy has not named.
func FuzzXForwardedFor(f *testing.F) {
	for _, seed := range []string{"", "203.0.113.7", "1.2.3.4, 5.6.7.8", "[2001:db8::1]:443", "unknown",
		"127.0.0.1", "10.0.0.1,10.0.0.2", ",,,", "::ffff:1.2.3.4", "64:ff9b::1.2.3.4", "fe80::1%eth0",
		"\x00", "1.2.3.4\n5.6.7.8", strings.Repeat("1.2.3.4,", 100)} {
		f.Add(seed)
	}
	who := keying.ByAddress(keying.Addresses{
		Proxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		Unknown: keying.OrShared(),
	})
	require.NoError(f, who.Validate())
	principal := func(t *testing.T, lines ...string) limiter.Principal {
		p, err := who.Principal(t.Context(), keying.Origin{Remote: "10.0.0.9:1234",
			Header: func(string) []string { return lines }})
		require.NoError(t, err)
		return p
	}
	f.Fuzz(func(t *testing.T, forged string) {
		want := principal(t, "198.51.100.1")
		require.Equal(t, "198.51.100.1", want.ID)
		assert.Equal(t, want, principal(t, forged+", 198.51.100.1"), "in one line")
		assert.Equal(t, want, principal(t, forged, "198.51.100.1"), "in a line before")

		p := principal(t, forged)
		require.False(t, p.Nobody())
		if p.Kind == keying.KindAddress {
			_, err := netip.ParseAddr(strings.Split(p.ID, "/")[0])
			assert.NoError(t, err, "the address %q is one", p.ID)
		}
	})
}
