package keying

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net/url"
	"strings"

	"github.com/ration-go/ration/limiter"
)

// CertificateName selects the name in a client certificate that identifies the
// caller. The zero value is not valid.
type CertificateName uint8

const (
	// CertificateSubject is the subject, as in "CN=alice,O=Acme" (RFC 2253).
	CertificateSubject CertificateName = iota + 1
	// CertificateDNS is the only DNS name among the alternative names.
	CertificateDNS
	// CertificateURI is the only URI among the alternative names.
	CertificateURI
	// CertificateSPIFFE is the only URI, which must be a SPIFFE ID such as
	// "spiffe://acme.example/billing".
	CertificateSPIFFE
)

// String returns "subject", "dns", "uri", "spiffe", or "none" for the zero value.
func (n CertificateName) String() string {
	return [...]string{"none", "subject", "dns", "uri", "spiffe"}[min(n, CertificateSPIFFE)]
}

// Principal returns the principal of a certificate. Its kind is [KindCertificate],
// and its ID is the name and the issuer, as in "CN=alice,O=Acme <CN=Acme Clients>", so
// that no authority can name the callers of another. It has no tenant. If the
// certificate lacks the name, or has two of them, the result is the zero Principal.
// Principal does not verify the certificate.
//
// A caller with a new certificate of the same name and issuer keeps its account. If
// an authority changes its own name, its callers get new accounts. Principal makes
// one allocation.
func (n CertificateName) Principal(leaf *x509.Certificate) limiter.Principal {
	buf := make([]byte, 0, 256)
	buf, ok := n.append(buf, leaf)
	if !ok {
		return limiter.Principal{}
	}
	// The last " <" is this one: in a distinguished name it would be "\<".
	buf = append(buf, " <"...)
	buf = append(appendName(buf, &leaf.Issuer), '>')
	return limiter.Principal{Kind: KindCertificate, ID: string(buf)}
}

// append appends the name of the certificate, and reports whether it has exactly one.
func (n CertificateName) append(dst []byte, leaf *x509.Certificate) ([]byte, bool) {
	switch {
	case n == CertificateSubject:
		return appendName(dst, &leaf.Subject), len(leaf.Subject.Names) > 0
	case n == CertificateDNS && len(leaf.DNSNames) == 1:
		return append(dst, strings.ToLower(leaf.DNSNames[0])...), leaf.DNSNames[0] != ""
	case n == CertificateURI && len(leaf.URIs) == 1,
		n == CertificateSPIFFE && len(leaf.URIs) == 1 && isSPIFFE(leaf.URIs[0]):
		return append(dst, leaf.URIs[0].String()...), true
	}
	return dst, false
}

// isSPIFFE reports whether u is a SPIFFE ID, a trust domain and a path, in the only
// spelling that is valid.
func isSPIFFE(u *url.URL) bool {
	return u.Scheme == "spiffe" && u.Host != "" && u.Path != "" && u.Path != "/" &&
		u.Host == strings.ToLower(u.Host) && !strings.ContainsAny(u.Host, ":@") &&
		u.User == nil && u.RawPath == "" && u.RawQuery == "" && !u.ForceQuery && u.Fragment == ""
}

// appendName appends a distinguished name, the last attribute first.
func appendName(dst []byte, name *pkix.Name) []byte {
	for i := len(name.Names) - 1; i >= 0; i-- {
		attribute := &name.Names[i]
		dst = append(appendType(dst, attribute), '=')
		value, ok := attribute.Value.(string)
		if !ok {
			value = fmt.Sprint(attribute.Value)
		}
		if dst = appendEscaped(dst, value); i > 0 {
			dst = append(dst, ',')
		}
	}
	return dst
}

// attributeTypes are the short names of the attributes 2.5.4.x.
var attributeTypes = [...]string{3: "CN", 5: "SERIALNUMBER", 6: "C", 7: "L", 8: "ST",
	9: "STREET", 10: "O", 11: "OU", 17: "POSTALCODE"}

func appendType(dst []byte, a *pkix.AttributeTypeAndValue) []byte {
	if t := a.Type; len(t) == 4 && t[0] == 2 && t[1] == 5 && t[2] == 4 &&
		t[3] < len(attributeTypes) && attributeTypes[t[3]] != "" {
		return append(dst, attributeTypes[t[3]]...)
	}
	return append(dst, a.Type.String()...)
}

// appendEscaped escapes what separates attributes, and '<'.
func appendEscaped(dst []byte, value string) []byte {
	for i := range len(value) {
		switch c := value[i]; c {
		case ',', '+', '"', '\\', '<', '>', ';':
			dst = append(dst, '\\', c)
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

// certified returns the principal of a verified client certificate, or the zero
// Principal. Anybody can make a certificate that is not verified, with any name.
func (w *Who) certified(state *tls.ConnectionState) limiter.Principal {
	if w.certificate == 0 || state == nil {
		return limiter.Principal{}
	}
	leaf := verifiedLeaf(state)
	if w.verified != nil {
		leaf = nil
		if len(state.PeerCertificates) > 0 {
			leaf = w.verified(state)
		}
	}
	if leaf == nil {
		return limiter.Principal{}
	}
	return w.certificate.Principal(leaf)
}

// verifiedLeaf returns the certificate that the TLS handshake verified, or nil.
func verifiedLeaf(state *tls.ConnectionState) *x509.Certificate {
	if len(state.VerifiedChains) == 0 || len(state.VerifiedChains[0]) == 0 {
		return nil
	}
	return state.VerifiedChains[0][0]
}
