package keying

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"slices"

	"github.com/ration-go/ration/limiter"
)

// Who says whom a limiter counts: the required answer to "who is calling?" and
// "what if nobody is?". It is immutable and safe for concurrent use. The zero
// Who is refused by the adapters, because a default would quietly limit all as
// one, or nobody.
type Who struct {
	authenticated bool
	named         bool            // OrCertificate was called
	certificate   CertificateName // 0: certificates name nobody
	hooked        bool            // VerifiedBy was called
	verified      func(*tls.ConnectionState) *x509.Certificate
	absent        Absent
}

// Authenticated counts the principal that the service's authentication put into
// the context with [WithPrincipal]; absent is for callers without one. The
// limiter must be mounted inside, that is after, the authentication.
func Authenticated(absent Absent) Who { return Who{authenticated: true, absent: absent} }

// ByAddress counts network addresses only, for a limiter in front of the
// authentication: failed logins cost something there, too.
func ByAddress(a Addresses) Who { return Who{absent: OrAddress(a)} }

// OrCertificate returns w that counts a verified client certificate before it
// falls back on what happens to callers without a principal; the principal that
// the authentication named comes first. The server has to ask for certificates
// and to verify them, as with tls.VerifyClientCertIfGiven: one that is not
// verified names nobody. If a hook of the service verifies them, use
// [Who.VerifiedBy], too. Behind a proxy that ends TLS there is none.
func (w Who) OrCertificate(name CertificateName) Who {
	w.certificate = name
	w.named = true
	return w
}

// VerifiedBy returns w that asks the function which client certificate of a
// connection was verified, in place of VerifiedChains, which is empty if the
// server's tls.Config verifies by VerifyPeerCertificate or VerifyConnection, as
// go-spiffe does. The function is called only for connections with a client
// certificate, by many goroutines; nil means that none was verified. It must not
// change the state.
//
//	who := keying.Authenticated(keying.Refuse("Certificate")).
//		OrCertificate(keying.CertificateSPIFFE).
//		VerifiedBy(func(s *tls.ConnectionState) *x509.Certificate {
//			return s.PeerCertificates[0] // the hook refuses all others
//		})
//
// Answer a certificate only if the handshake fails without a verified one: anybody
// can make a certificate with any name. Every listener whose requests reach this
// limiter must verify. For a resumed session crypto/tls calls VerifyConnection but
// not VerifyPeerCertificate.
func (w Who) VerifiedBy(verified func(*tls.ConnectionState) *x509.Certificate) Who {
	w.verified = verified
	w.hooked = true
	return w
}

// Absent is what happens to a caller without a principal. The zero value is not
// a choice.
type Absent struct {
	refuse    bool
	challenge string
	shared    bool
	addresses *Addresses
}

// Refuse turns callers without a principal away: 401 with the challenge as
// WWW-Authenticate, such as `Bearer realm="api"` (RFC 9110, section 11.6.1), or
// UNAUTHENTICATED.
func Refuse(challenge string) Absent { return Absent{refuse: true, challenge: challenge} }

// OrAddress counts callers without a principal by their address: a principal of
// another kind, which never shares an account with a user of that name.
func OrAddress(a Addresses) Absent {
	a.Proxies = slices.Clone(a.Proxies)
	return Absent{addresses: &a}
}

// OrShared lets all callers without a principal draw on one account together:
// any one of them can use it up for all.
func OrShared() Absent { return Absent{shared: true} }

// Validate returns nil, or a *[limiter.ConfigError] for a choice not made.
func (w Who) Validate() error {
	a := w.absent
	switch {
	case a == Absent{}:
		return wrong("Who", nil, "say what happens to a caller "+
			"without a principal: want Authenticated(Refuse(challenge)), "+
			"Authenticated(OrAddress(Addresses{})) or ByAddress(Addresses{})")

	case w.named && (w.certificate == 0 || w.certificate > CertificateSPIFFE):
		return wrong("Who.OrCertificate", uint8(w.certificate),
			"want CertificateSubject, CertificateDNS, CertificateURI or CertificateSPIFFE")

	case w.hooked && (w.verified == nil || !w.named):
		return wrong("Who.VerifiedBy", nil,
			"want a function, and OrCertificate to say which name counts")

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

// Challenge returns what a caller who is nobody is told to present; empty where
// nothing was stated.
func (w Who) Challenge() string {
	if a := w.absent.addresses; a != nil {
		return a.Unknown.challenge
	}
	return w.absent.challenge
}

// Expects reports whether callers should have been named by the service's
// authentication, so that a limiter that never sees one of them is misplaced.
func (w Who) Expects() bool { return w.authenticated }

// ReadsHeader reports whether an address may come from a header, as told by
// proxies, so that an adapter need not describe [Origin.Header] elsewhere.
func (w Who) ReadsHeader() bool {
	a := w.absent.addresses
	return a != nil && (a.UnixProxy || len(a.Proxies) > 0)
}

// Named returns the principal that the authentication named, and whether there
// is one and w counts it. It does not allocate: an adapter asks it first, and
// describes the [Origin] only of other callers.
func (w Who) Named(ctx context.Context) (limiter.Principal, bool) {
	if !w.authenticated {
		return limiter.Principal{}, false
	}
	return PrincipalFrom(ctx)
}

// Principal returns the caller of a request, or [limiter.ErrNobody]: whom the
// authentication named, else the certificate's, else what was chosen for callers
// without a principal. If the authentication called [WithPrincipal] with a
// principal that is not valid, the error is [ErrInvalidPrincipal]. A certificate
// and an address cost the strings that name them.
func (w Who) Principal(ctx context.Context, from Origin) (limiter.Principal, error) {
	if w.authenticated {
		if p, stated := stated(ctx); stated && p.Nobody() {
			return limiter.Principal{}, ErrInvalidPrincipal
		} else if stated {
			return p, nil
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
		return limiter.Principal{Kind: limiter.KindShared, ID: "everybody"}, nil
	}
	return limiter.Principal{}, limiter.ErrNobody
}

// Request is [Who.Principal] for a request of net/http.
func (w Who) Request(r *http.Request) (limiter.Principal, error) {
	if p, ok := w.Named(r.Context()); ok {
		return p, nil
	}
	from := Origin{Remote: r.RemoteAddr, TLS: r.TLS}
	if w.ReadsHeader() {
		from.Header = r.Header.Values
	}
	return w.Principal(r.Context(), from)
}
