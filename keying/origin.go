package keying

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// Origin is where a request came from, as its transport states it. The zero value of
// each field is usable.
type Origin struct {
	// Remote is the address of the connection, with or without a port.
	Remote string
	// Addr is the same address, if the transport has it in parsed form. If it is the
	// zero Addr, Remote is parsed.
	Addr netip.Addr
	// Network is the network of the connection, as net.Addr.Network returns it. On
	// a network other than TCP and UDP, such as "unix", the client may choose the
	// text in Remote, so Remote is not read. If Network is empty, it is taken from
	// net/http's LocalAddrContextKey in the request's context. If that is absent,
	// as in FastCGI and in tests, Remote is read.
	Network string
	// Header returns all lines of a header, in order. Nil means no headers.
	Header func(name string) []string
	// TLS is the state of the connection; nil if it is not encrypted.
	TLS *tls.ConnectionState
}

// network returns the network of the connection, or "" if it is not known.
func (o *Origin) network(ctx context.Context) string {
	if o.Network != "" {
		return o.Network
	}
	if local, ok := ctx.Value(http.LocalAddrContextKey).(net.Addr); ok {
		return NetworkOf(local)
	}
	return ""
}

// NetworkOf returns the network of an address for [Origin.Network]: that of
// addr.Network, or "unknown" if that is empty.
func NetworkOf(addr net.Addr) string {
	switch addr.(type) {
	case nil:
		return "unknown"
	case *net.UnixAddr:
		return "unix" // also if its Net was not set
	}
	return cmp.Or(addr.Network(), "unknown")
}

// hasAddresses reports whether remote addresses of a network are IP addresses, which
// clients cannot choose.
func hasAddresses(network string) bool {
	return network == "" || strings.HasPrefix(network, "tcp") || strings.HasPrefix(network, "udp")
}

// isUnix reports whether the network is that of unix sockets.
func isUnix(network string) bool { return strings.HasPrefix(network, "unix") }

// peer returns the address at the other end of the connection, or the zero Addr.
func (o *Origin) peer(network string) netip.Addr {
	switch {
	case o.Addr.IsValid():
		return canonical(o.Addr)
	case hasAddresses(network):
		return parseHop(o.Remote)
	default:
		return netip.Addr{}
	}
}
