package keying

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/ration-go/ration/limiter"
)

// Addresses says how a network address becomes a principal of the kind
// "address". An IPv4 address counts by itself, an IPv6 address by its /64, since each
// subscriber owns at least a /64. The tenant is the wider network: IPv4 /24, IPv6 /48.
//
// The zero value uses the remote address of the connection only, which no caller can
// forge. A connection of a network without IP addresses has no address: the client
// chooses the name of a unix socket, even if it looks like an address.
type Addresses struct {
	// Proxies are the networks of the proxies in front of this service. If the
	// connection comes from one of them, the caller is the right-most address in
	// the Header lines that is not a proxy's. If that hop is not readable, the caller
	// has no address. Everything left of it may be forged by the caller and is not
	// read. Nil trusts no header.
	Proxies []netip.Prefix
	// UnixProxy trusts every connection over a unix socket as a proxy's. The caller is
	// then read from Header as for Proxies, and has no address if no line states one.
	// Every process that may connect to the socket can then state any address, so set
	// the file permissions of the socket for the proxy alone. An abstract socket (its
	// name begins with "@") has no permissions: do not use UnixProxy with one.
	// Connections over TCP are not affected.
	UnixProxy bool
	// Header is the header that the proxies append to. Empty means X-Forwarded-For.
	Header string
	// IPv6Bits is the prefix length of the network that counts as one caller: 48 to
	// 128; 0 means 64.
	IPv6Bits int
	// Unknown is for callers without a readable address, such as those of a unix
	// socket: Refuse or OrShared. The zero value refuses them without a challenge:
	// over HTTP with 403, since a 401 must state a challenge, and over gRPC with
	// UNAUTHENTICATED, since gRPC has no challenges. (Package middleware answers a
	// gRPC call by its HTTP status: PERMISSION_DENIED for 403.)
	Unknown Absent
}

// Validate returns nil or a *[limiter.ConfigError].
func (a Addresses) Validate() error {
	for i, p := range a.Proxies {
		field := fmt.Sprintf("Addresses.Proxies[%d]", i)
		switch {
		case !p.IsValid():
			return wrong(field, p, "want a prefix such as 10.0.0.0/8")
		case p.Addr().Is4In6():
			return wrong(field, p, "want it as an IPv4 prefix")
		case p.Addr().Is4() && p.Bits() < 8, p.Bits() < 7: // 10.0.0.0/8 and fc00::/7 are private
			return wrong(field, p, "trusts many networks, whose callers could then choose their "+
				"address: want the proxies' own network")

		}
	}
	switch {
	case a.IPv6Bits != 0 && (a.IPv6Bits < 48 || a.IPv6Bits > 128):
		return wrong("Addresses.IPv6Bits", a.IPv6Bits,
			"want 48 to 128, or 0 for 64")

	case a.Header != "" && len(a.Proxies) == 0 && !a.UnixProxy:
		return wrong("Addresses.Header", a.Header,
			"anybody can send it: want Proxies to be trusted, or UnixProxy")

	case a.Header != "" && !token(a.Header), strings.EqualFold(a.Header, "Host"):
		return wrong("Addresses.Header", a.Header,
			"want the name of a header such as X-Forwarded-For")

	case strings.EqualFold(a.Header, "Forwarded"):
		return wrong("Addresses.Header", a.Header,
			"holds more than addresses: want a header such as X-Forwarded-For")

	case a.Unknown.refuse && !printable(a.Unknown.challenge):
		return wrong("Addresses.Unknown", a.Unknown.challenge,
			`want a challenge such as Bearer realm="api", or the zero Unknown for none`)

	case a.Unknown.addresses != nil:
		return wrong("Addresses.Unknown", nil,
			"these callers have no address to count by: want Refuse or OrShared")

	}
	return nil
}

// header returns the name of the header that the proxies append to.
func (a *Addresses) header() string {
	if a.Header == "" {
		return "X-Forwarded-For"
	}
	return a.Header
}

// find returns the address of the caller, or the zero Addr. It reads the header
// only if the connection is that of a trusted proxy.
func (a *Addresses) find(from *Origin, network string) netip.Addr {
	peer := from.peer(network)
	if from.Header == nil || !a.isProxy(from, network, peer) {
		return peer
	}
	hops := from.Header(a.header())
	for i := len(hops) - 1; i >= 0; i-- {
		for rest := hops[i]; ; {
			cut := strings.LastIndexByte(rest, ',')
			hop := parseHop(strings.Trim(rest[cut+1:], " \t"))
			if !a.trusts(hop) {
				return hop
			}
			if peer = hop; cut < 0 {
				break
			}
			rest = rest[:cut]
		}
	}
	return peer
}

// isProxy reports whether the connection from peer is that of a trusted proxy.
func (a *Addresses) isProxy(from *Origin, network string, peer netip.Addr) bool {
	return a.trusts(peer) || a.UnixProxy && isUnix(network) && !from.Addr.IsValid()
}

// trusts reports whether addr is in Proxies; the zero Addr is not.
func (a *Addresses) trusts(addr netip.Addr) bool {
	for _, p := range a.Proxies {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// nat64 is the well-known prefix of RFC 6052, whose addresses embed IPv4 addresses.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// parseHop returns the canonical form of an address with or without a port, or the
// zero Addr if the text is not an address.
func parseHop(text string) netip.Addr {
	var addr netip.Addr
	if inner, ok := strings.CutSuffix(text, "]"); ok && strings.HasPrefix(inner, "[") {
		addr, _ = netip.ParseAddr(inner[1:])
		if addr.Is4() {
			addr = netip.Addr{}
		}
	} else if strings.HasPrefix(text, "[") || strings.Count(text, ":") == 1 {
		port, _ := netip.ParseAddrPort(text)
		addr = port.Addr()
	} else {
		addr, _ = netip.ParseAddr(text)
	}
	return canonical(addr)
}

// canonical returns the address without a zone, and as IPv4 if it embeds IPv4.
func canonical(addr netip.Addr) netip.Addr {
	addr = addr.WithZone("").Unmap()
	if nat64.Contains(addr) {
		bytes := addr.As16()
		// RFC 6052, section 3.1: the prefix must not embed a private address, such as
		// that of a proxy.
		if inner := netip.AddrFrom4([4]byte(bytes[12:])); inner.IsGlobalUnicast() && !inner.IsPrivate() {
			return inner
		}
	}
	return addr
}

// token reports whether s can be the name of a header (RFC 9110, section 5.6.2).
func token(s string) bool {
	return strings.IndexFunc(s, func(c rune) bool {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		return !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
	}) < 0
}

// principal returns the principal of an address; the zero Principal for the zero
// Addr.
func (a *Addresses) principal(addr netip.Addr) limiter.Principal {
	if !addr.IsValid() {
		return limiter.Principal{}
	}
	wide, narrow := 24, 32
	if addr.Is6() {
		wide, narrow = 48, a.IPv6Bits
		if narrow == 0 {
			narrow = 64
		}
	}
	var buffer [96]byte
	text := appendPrefix(buffer[:0], addr, wide)
	cut := len(text)
	both := string(appendPrefix(text, addr, narrow)) // in one allocation
	return limiter.Principal{Kind: KindAddress, Tenant: both[:cut], ID: both[cut:]}
}

func appendPrefix(text []byte, addr netip.Addr, bits int) []byte {
	if bits == addr.BitLen() {
		return addr.AppendTo(text)
	}
	p, err := addr.Prefix(bits)
	if err != nil {
		return text
	}
	return p.AppendTo(text)
}
