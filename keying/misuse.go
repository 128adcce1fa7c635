package keying

import (
	"context"
	"errors"
)

// Misuse is for adapters: it returns the code and the message of a warning if a
// request shows that the service names its callers in a way that cannot work, or
// "" and "". from and err are what [Who.Principal] got and returned. An adapter
// logs each code once, by [limiter.Limiter.Warn]:
//
//	principal-invalid       the authentication called WithPrincipal with an empty
//	                        Kind or ID, or with a reserved Kind: the request is refused
//	certificate-unverified  a client certificate arrived that the handshake had not
//	                        verified, so it names nobody; see [Who.VerifiedBy]
//	no-address              a connection of a network without IP addresses, and no
//	                        choice for its callers, so they are refused; see
//	                        [Addresses.UnixProxy] and [Addresses.Unknown]
func (w Who) Misuse(ctx context.Context, from Origin, err error) (code, message string) {
	switch {
	case err == nil && !w.named:
		return "", ""
	case errors.Is(err, ErrInvalidPrincipal):
		return "principal-invalid", "the authentication called keying.WithPrincipal with an empty " +
			"Kind or ID, or with a reserved Kind, so the request is refused: call it only for " +
			"callers that have both"
	case w.unverified(&from):
		return "certificate-unverified", "a client certificate arrived that the TLS handshake had " +
			"not verified, so it names nobody: set tls.Config.ClientAuth to VerifyClientCertIfGiven " +
			"or RequireAndVerifyClientCert, or, if a hook of the service verifies, use " +
			"keying.Who.VerifiedBy"
	case err != nil && w.lacksAddress(ctx, &from):
		return "no-address", "a caller has no address, since its connection is of a network without " +
			"IP addresses, and is refused: if a proxy connects over a unix socket, set " +
			"keying.Addresses.UnixProxy; otherwise set keying.Addresses.Unknown"
	}
	return "", ""
}

// unverified reports whether a certificate arrived that could count if it were
// verified. If the service's own function says that it was not, that is no misuse.
func (w *Who) unverified(from *Origin) bool {
	return w.named && w.verified == nil && from.TLS != nil &&
		len(from.TLS.PeerCertificates) > 0 && verifiedLeaf(from.TLS) == nil
}

// lacksAddress reports whether callers go by address, the connection can have
// none, and the service has not said what happens then.
func (w *Who) lacksAddress(ctx context.Context, from *Origin) bool {
	by := w.absent.addresses
	return by != nil && by.Unknown == Absent{} && !by.UnixProxy && !from.Addr.IsValid() &&
		!hasAddresses(from.network(ctx))
}
