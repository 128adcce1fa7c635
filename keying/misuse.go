package keying

import (
	"context"
	"errors"
)

// Misuse returns the code and the message of a warning if a request shows a mistake
// of the service in how it identifies callers, or "" and "". It is for adapters,
// which log each code once by [limiter.Adapter.Warn], and explain it in their package
// comment. from and err are the argument and the error of [Who.Principal].
//
//	principal-invalid       the authentication called WithPrincipal with an empty
//	                        Kind or ID, or with a reserved Kind: the request is refused
//	certificate-unverified  a client certificate arrived that the TLS handshake had not
//	                        verified, so it does not identify the caller; see
//	                        [Who.VerifiedBy]
//	no-address              the connection has no IP address, and nothing is configured
//	                        for such callers, so they are refused; see
//	                        [Addresses.UnixProxy] and [Addresses.Unknown]
func (w Who) Misuse(ctx context.Context, from Origin, err error) (code, message string) {
	switch {
	case err == nil && !w.named:
		return "", ""
	case errors.Is(err, ErrInvalidPrincipal):
		wrong, _ := ctx.Value(principalKey{}).(fault)
		return "principal-invalid", "the authentication called keying.WithPrincipal with " +
			string(wrong) + ", so the request is refused: call it only for callers that have a " +
			"Kind of the service's own and an ID"
	case w.unverified(&from):
		return "certificate-unverified", "a client certificate arrived that the TLS handshake had " +
			"not verified, so it does not identify the caller: set tls.Config.ClientAuth to " +
			"VerifyClientCertIfGiven or RequireAndVerifyClientCert, or use keying.Who.VerifiedBy if a " +
			"hook of the service verifies"
	case err != nil && w.lacksAddress(ctx, &from):
		return "no-address", "a caller was refused, since its connection has no IP address: if a proxy " +
			"connects over a unix socket, set keying.Addresses.UnixProxy; otherwise set " +
			"keying.Addresses.Unknown"
	}
	return "", ""
}

// unverified reports whether a certificate arrived that would identify the caller if
// the handshake had verified it. If VerifiedBy refuses it, that is no misuse.
func (w *Who) unverified(from *Origin) bool {
	return w.named && w.verified == nil && from.TLS != nil &&
		len(from.TLS.PeerCertificates) > 0 && verifiedLeaf(from.TLS) == nil
}

// lacksAddress reports whether callers are counted by address, the connection cannot
// have one, and the service has not configured what happens then.
func (w *Who) lacksAddress(ctx context.Context, from *Origin) bool {
	by := w.absent.addresses
	return by != nil && by.Unknown == Absent{} && !by.UnixProxy && !from.Addr.IsValid() &&
		!hasAddresses(from.network(ctx))
}
