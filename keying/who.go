package keying

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"slices"

	"github.com/ration-go/ration/limiter"
)

// Who says how the caller of a request is identified, and what happens to a caller
// that has no principal. It is immutable and safe for concurrent use. Adapters refuse
// the zero Who, because any default would silently limit all callers as one, or none.
type Who struct {
	authenticated bool
	named         bool            // OrCertificate was called
	certificate   CertificateName // 0: certificates do not count
	hooked        bool            // VerifiedBy was called
	verified      func(*tls.ConnectionState) *x509.Certificate
	absent        Absent
}

// Authenticated counts the principal that the service's authentication put into
// the context with [WithPrincipal]. absent is for callers without one. The limiter
// must be mounted inside the authentication.
func Authenticated(absent Absent) Who { return Who{authenticated: true, absent: absent} }

// ByAddress counts network addresses only. It is for a limiter outside the
// authentication, where failed logins cost something, too.
func ByAddress(a Addresses) Who { return Who{absent: OrAddress(a)} }

// OrCertificate returns a copy of w that counts a verified client certificate if the
// authentication has put no principal into the context. The server must ask for
// certificates and verify them, as with tls.VerifyClientCertIfGiven; a certificate
// that is not verified does not count. If a hook of the service verifies them, use
// [Who.VerifiedBy], too. Behind a proxy that terminates TLS there are no certificates.
func (w Who) OrCertificate(name CertificateName) Who {
	w.certificate = name
	w.named = true
	return w
}

// VerifiedBy returns a copy of w that calls the function to learn which client
// certificate of a connection was verified. Without it, VerifiedChains is used, which
// is empty if the server's tls.Config verifies by VerifyPeerCertificate or
// VerifyConnection, as go-spiffe does. The function is called only for connections
// with a client certificate, by many goroutines. It returns nil if no certificate was
// verified, and must not change the state.
//
//	who := keying.Authenticated(keying.Refuse("Certificate")).
//		OrCertificate(keying.CertificateSPIFFE).
//		VerifiedBy(func(s *tls.ConnectionState) *x509.Certificate {
//			return s.PeerCertificates[0] // the hook refuses all others
//		})
//
// Return a certificate only if the handshake fails without a verified one: anybody
// can make a certificate with any name. Every listener whose requests reach this
// limiter must verify. For a resumed session crypto/tls calls VerifyConnection but
// not VerifyPeerCertificate.
func (w Who) VerifiedBy(verified func(*tls.ConnectionState) *x509.Certificate) Who {
	w.verified = verified
	w.hooked = true
	return w
}

// Absent says what happens to a caller without a principal. Make one by [Refuse],
// [OrAddress] or [OrShared]; the zero value is not valid in a [Who].
type Absent struct {
	challenge string
	addresses *Addresses
	refuse    bool
	shared    bool
}

// Refuse refuses callers without a principal: over HTTP with 401 and the challenge as
// WWW-Authenticate, such as `Bearer realm="api"` (RFC 9110, section 11.6.1), over gRPC
// with UNAUTHENTICATED.
func Refuse(challenge string) Absent { return Absent{refuse: true, challenge: challenge} }

// OrAddress counts callers without a principal by their address. That is a principal
// of another kind, which never shares an account with a user of the same name.
func OrAddress(a Addresses) Absent {
	a.Proxies = slices.Clone(a.Proxies)
	return Absent{addresses: &a}
}

// OrShared lets all callers without a principal share one account. Any of them can
// use it up for all.
func OrShared() Absent { return Absent{shared: true} }

// Validate returns nil, or a *[limiter.ConfigError] that says what is missing or wrong.
func (w Who) Validate() error {
	a := w.absent
	switch {
	case a == Absent{}:
		return wrong("Who", nil, "does not say what happens to a caller "+
			"without a principal: want Authenticated(Refuse(challenge)), "+
			"Authenticated(OrAddress(Addresses{})) or ByAddress(Addresses{})")

	case w.named && (w.certificate == 0 || w.certificate > CertificateSPIFFE):
		return wrong("Who.OrCertificate", uint8(w.certificate),
			"want CertificateSubject, CertificateDNS, CertificateURI or CertificateSPIFFE")

	case w.hooked && (w.verified == nil || !w.named):
		return wrong("Who.VerifiedBy", nil,
			"want a function, and OrCertificate for the name that counts")

	case a.refuse && !printable(a.challenge):
		return wrong("Who.Refuse", a.challenge,
			`want a challenge such as Bearer realm="api"`)

	case a.addresses != nil:
		return a.addresses.Validate()
	}
	return nil
}

// printable reports whether s can be a header value and is not empty.
func printable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return s != ""
}

// Challenge returns the challenge for callers without a principal; empty if there is
// none.
func (w Who) Challenge() string {
	if a := w.absent.addresses; a != nil {
		return a.Unknown.challenge
	}
	return w.absent.challenge
}

// Expects reports whether w counts principals of the service's authentication. If
// a limiter never sees one of them, it is probably mounted outside the authentication.
func (w Who) Expects() bool { return w.authenticated }

// ReadsHeader reports whether addresses are read from a header of trusted proxies.
// If not, an adapter need not set [Origin.Header].
func (w Who) ReadsHeader() bool {
	a := w.absent.addresses
	return a != nil && (a.UnixProxy || len(a.Proxies) > 0)
}

// Header returns the canonical name of the header that addresses are read from if a
// trusted proxy sends it; empty if no proxy is trusted.
func (w Who) Header() string {
	if !w.ReadsHeader() {
		return ""
	}
	return http.CanonicalHeaderKey(w.absent.addresses.header())
}

// Forwarded is for adapters that log misuse. It reports whether the connection of
// a request is that of a trusted proxy, and whether a header states the address of
// a caller: by a trusted proxy one that can be read, by anybody else any text. Both
// are false if w does not count addresses.
func (w Who) Forwarded(ctx context.Context, from Origin) (trusted, stated bool) {
	a := w.absent.addresses
	if a == nil {
		return false, false
	}
	network := from.network(ctx)
	trusted = a.isProxy(&from, network, from.peer(network))
	stated = from.Header != nil && len(from.Header(a.header())) > 0
	if trusted && stated {
		stated = a.find(&from, network).IsValid()
	}
	return trusted, stated
}

// Named returns the principal of the service's authentication, or nil if there is
// none or w does not count them. Do not change it. An adapter calls Named first, and
// makes an [Origin] only for other callers.
func (w Who) Named(ctx context.Context) *limiter.Principal {
	if !w.authenticated {
		return nil
	}
	p, _ := ctx.Value(principalKey{}).(*limiter.Principal)
	return p
}

// Principal returns the principal of a request: that of the authentication, else that
// of the certificate, else the address or the shared one, as w says. If there is none,
// the error is [limiter.ErrNobody]. If the authentication called [WithPrincipal] with
// a principal that is not valid, it is [ErrInvalidPrincipal]. For a certificate or an
// address, Principal allocates a string.
func (w Who) Principal(ctx context.Context, from Origin) (limiter.Principal, error) {
	if w.authenticated {
		switch stated := ctx.Value(principalKey{}).(type) {
		case *limiter.Principal:
			return *stated, nil
		case fault:
			return limiter.Principal{}, ErrInvalidPrincipal
		}
	}
	if p := w.certified(from.TLS); !p.Nobody() {
		return p, nil
	}
	return w.absent.principal(ctx, &from)
}

func (a Absent) principal(ctx context.Context, from *Origin) (limiter.Principal, error) {
	if by := a.addresses; by != nil {
		if p := by.principal(by.find(from, from.network(ctx))); !p.Nobody() {
			return p, nil
		}
		a = by.Unknown
	}
	if a.shared {
		return limiter.Principal{Kind: KindShared, ID: "everybody"}, nil
	}
	return limiter.Principal{}, limiter.ErrNobody
}

// Request is [Who.Principal] for a request of net/http.
func (w Who) Request(r *http.Request) (limiter.Principal, error) {
	if p := w.Named(r.Context()); p != nil {
		return *p, nil
	}
	from := Origin{Remote: r.RemoteAddr, TLS: r.TLS}
	if w.ReadsHeader() {
		from.Header = r.Header.Values // allocates
	}
	return w.Principal(r.Context(), from)
}
