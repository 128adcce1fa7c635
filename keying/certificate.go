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

// CertificateName says which name of a client certificate is the caller's. The
// zero value is not a choice.
type CertificateName uint8

const (
	// CertificateSubject is the subject, as in "CN=alice,O=Acme" (RFC 2253).
	CertificateSubject CertificateName = iota + 1
	// CertificateDNS is the one DNS name among the alternative names.
	CertificateDNS
	// CertificateURI is the one URI among the alternative names.
	CertificateURI
	// CertificateSPIFFE is that URI where it is a SPIFFE ID, such as
	// "spiffe://acme.example/billing".
	CertificateSPIFFE
)

// String returns "subject", "dns", "uri", "spiffe", or "none" for the zero value.
func (n CertificateName) String() string {
	return [...]string{"none", "subject", "dns", "uri", "spiffe"}[min(n, CertificateSPIFFE)]
}

// Principal returns the caller whose certificate leaf is: its kind is
// [limiter.KindCertificate], its ID the name and the issuer, as in
// "CN=alice,O=Acme <CN=Acme Clients>", so that no authority names the callers of
// another. It has no tenant. A certificate without the name, or with two of them,
// is nobody's. Whether the certificate is to be believed is not looked at.
//
// A caller with a new certificate of that name keeps its account; an authority
// that changes its own name gives its callers new ones. One allocation.
func (n CertificateName) Principal(leaf *x509.Certificate) limiter.Principal {
	buf := make([]byte, 0, 256)
	buf, ok := n.append(buf, leaf)
	if !ok {
		return limiter.Principal{}
	}
	// The last " <" is this one: in a distinguished name it would be "\<".
	buf = append(buf, " <"...)
	buf = append(appendName(buf, &leaf.Issuer), '>')
	return limiter.Principal{Kind: limiter.KindCertificate, ID: string(buf)}
}

// append appends the name of the certificate, and whether it has just one.
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

// isSPIFFE reports whether u is a SPIFFE ID: a trust domain and a path, and
// nothing that could spell the same one in another way.
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

// certified returns the caller of a connection by its certificate, if that was
// verified. A certificate that was not is any caller's own work, whatever names
// are in it.
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

// verifiedLeaf returns the certificate that the handshake has verified, or nil.
func verifiedLeaf(state *tls.ConnectionState) *x509.Certificate {
	if len(state.VerifiedChains) == 0 || len(state.VerifiedChains[0]) == 0 {
		return nil
	}
	return state.VerifiedChains[0][0]
}
