package keying_test

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/lab/certtest"
	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
)

func uris(t *testing.T, texts ...string) []*url.URL {
	t.Helper()
	var urls []*url.URL
	for _, text := range texts {
		u, err := url.Parse(text)
		require.NoError(t, err)
		urls = append(urls, u)
	}
	return urls
}

func TestCertificateName_PrincipalIsTheNameAndTheIssuer(t *testing.T) {
	ca := certtest.New(t, "Acme Clients")
	tests := []struct {
		name     string
		which    keying.CertificateName
		template x509.Certificate
		want     string // without the issuer; empty: nobody
	}{
		{"subject", keying.CertificateSubject, x509.Certificate{Subject: pkix.Name{
			CommonName: "alice", Organization: []string{"Acme"}, Country: []string{"DE"},
		}}, "CN=alice,O=Acme,C=DE"},
		{"subject-escaped", keying.CertificateSubject, x509.Certificate{Subject: pkix.Name{
			CommonName: `alice <CN=Other>,"x"+\;`,
		}}, `CN=alice \<CN=Other\>\,\"x\"\+\\\;`},
		{"subject-with-other-attributes", keying.CertificateSubject, x509.Certificate{
			Subject: pkix.Name{ExtraNames: []pkix.AttributeTypeAndValue{
				{Type: asn1.ObjectIdentifier{1, 2, 3}, Value: "a"},
				{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: "b"},
				{Type: asn1.ObjectIdentifier{2, 5, 4, 99}, Value: "c"},
			}}}, "2.5.4.99=c,CN=b,1.2.3=a"},
		{"subject-two-common-names", keying.CertificateSubject, x509.Certificate{
			Subject: pkix.Name{ExtraNames: []pkix.AttributeTypeAndValue{
				{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: "a"},
				{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: "b"},
			}}}, "CN=b,CN=a"},
		{"subject-empty", keying.CertificateSubject, x509.Certificate{
			DNSNames: []string{"alice.example"}}, ""},
		{"dns", keying.CertificateDNS, x509.Certificate{
			DNSNames: []string{"Alice.example"}}, "alice.example"},
		{"dns-two", keying.CertificateDNS, x509.Certificate{
			DNSNames: []string{"a.example", "b.example"}}, ""},
		{"dns-none", keying.CertificateDNS, x509.Certificate{
			Subject: pkix.Name{CommonName: "a.example"}}, ""},
		{"uri", keying.CertificateURI, x509.Certificate{
			URIs: uris(t, "urn:acme:alice")}, "urn:acme:alice"},
		{"uri-two", keying.CertificateURI, x509.Certificate{
			URIs: uris(t, "urn:a", "urn:b")}, ""},
		{"spiffe", keying.CertificateSPIFFE, x509.Certificate{
			URIs: uris(t, "spiffe://acme.example/billing")}, "spiffe://acme.example/billing"},
		{"spiffe-not", keying.CertificateSPIFFE, x509.Certificate{
			URIs: uris(t, "https://acme.example/billing")}, ""},
		{"spiffe-without-path", keying.CertificateSPIFFE, x509.Certificate{
			URIs: uris(t, "spiffe://acme.example")}, ""},
		{"spiffe-two", keying.CertificateSPIFFE, x509.Certificate{
			URIs: uris(t, "spiffe://acme.example/a", "spiffe://acme.example/b")}, ""},
		{"spiffe-in-capitals", keying.CertificateSPIFFE, x509.Certificate{
			URIs: uris(t, "spiffe://ACME.example/a")}, ""},
		{"spiffe-with-a-query", keying.CertificateSPIFFE, x509.Certificate{
			URIs: uris(t, "spiffe://acme.example/a?b")}, ""},
		{"no-choice", 0, x509.Certificate{Subject: pkix.Name{CommonName: "alice"}}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want := limiter.Principal{Kind: keying.KindCertificate,
				ID: tt.want + " <CN=Acme Clients>"}
			if tt.want == "" {
				want = limiter.Principal{}
			}
			assert.Equal(t, want, tt.which.Principal(ca.Issue(t, tt.template).Leaf))
		})
	}
}

// For an ordinary subject the text is that of crypto/x509.
func TestCertificateName_SubjectIsSpeltAsElsewhere(t *testing.T) {
	name := pkix.Name{CommonName: "alice", Organization: []string{"Acme, Inc."},
		Locality: []string{"Köln"}, SerialNumber: "7"}
	leaf := certtest.New(t, "CA").Issue(t, x509.Certificate{Subject: name}).Leaf
	assert.Equal(t, name.String()+" <CN=CA>", keying.CertificateSubject.Principal(leaf).ID)
}

func TestCertificateName_CostsOneAllocation(t *testing.T) {
	leaf := certtest.New(t, "CA").Issue(t, x509.Certificate{
		Subject: pkix.Name{CommonName: "alice"}}).Leaf
	assert.LessOrEqual(t, testing.AllocsPerRun(100, func() {
		keying.CertificateSubject.Principal(leaf)
	}), 1.0)
}

func TestCertificateName_String(t *testing.T) {
	assert.Equal(t, "none", keying.CertificateName(0).String())
	assert.Equal(t, "spiffe", keying.CertificateSPIFFE.String())
}

// One name from two authorities is two callers, and one that nobody verified is
// none: over real handshakes.
func TestWho_CertificatesCountOnlyWhereTheyWereVerified(t *testing.T) {
	ours, theirs := certtest.New(t, "Ours"), certtest.New(t, "Theirs")
	template := x509.Certificate{Subject: pkix.Name{CommonName: "alice"}}
	trusted, rogue := ours.Issue(t, template), theirs.Issue(t, template)
	alice := limiter.Principal{Kind: keying.KindCertificate, ID: "CN=alice <CN=Ours>"}
	tests := []struct {
		name string
		auth tls.ClientAuthType
		cert *tls.Certificate
		want limiter.Principal
	}{
		{"verified", tls.RequireAndVerifyClientCert, &trusted, alice},
		{"verified-if-given", tls.VerifyClientCertIfGiven, &trusted, alice},
		{"none-given", tls.VerifyClientCertIfGiven, nil, limiter.Principal{}},
		{"another-authority-not-verified", tls.RequireAnyClientCert, &rogue, limiter.Principal{}},
		{"ours-but-not-verified", tls.RequestClientCert, &trusted, limiter.Principal{}},
	}
	who := keying.Authenticated(keying.Refuse("Bearer")).OrCertificate(keying.CertificateSubject)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			found, err := handshake(t, who, ours.Server(t, tt.auth), ours.Client(), tt.cert)
			require.NoError(t, err)
			assert.Equal(t, tt.want, found)
		})
	}
}

// handshake returns whom who finds behind a certificate, nil for none.
func handshake(
	t *testing.T, who keying.Who, server, client *tls.Config, cert *tls.Certificate,
) (found limiter.Principal, err error) {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(
		func(_ http.ResponseWriter, r *http.Request) { found, _ = who.Request(r) }))
	s.TLS = server
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if cert == nil {
			return &tls.Certificate{}, nil
		}
		return cert, nil
	}
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: client}}
	resp, err := c.Get(s.URL)
	if err == nil {
		err = resp.Body.Close()
	}
	return found, err
}

// go-spiffe verifies in a hook, after which VerifiedChains is empty.
func TestWho_CertificatesCountThatAHookHasVerified(t *testing.T) {
	ours, theirs := certtest.New(t, "Ours"), certtest.New(t, "Theirs")
	template := x509.Certificate{URIs: uris(t, "spiffe://acme.example/billing")}
	trusted, rogue := ours.Issue(t, template), theirs.Issue(t, template)
	billing := limiter.Principal{Kind: keying.KindCertificate,
		ID: "spiffe://acme.example/billing <CN=Ours>"}
	verify := func(s tls.ConnectionState) error {
		if len(s.PeerCertificates) == 0 {
			return nil
		}
		_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: ours.Pool(),
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		return err
	}
	first := func(s *tls.ConnectionState) *x509.Certificate { return s.PeerCertificates[0] }
	none := func(*tls.ConnectionState) *x509.Certificate { return nil }
	who := keying.Authenticated(keying.Refuse("Bearer")).OrCertificate(keying.CertificateSPIFFE)
	for _, tt := range []struct {
		name  string
		who   keying.Who
		cert  *tls.Certificate
		want  limiter.Principal
		fails bool
	}{
		{"not stated", who, &trusted, limiter.Principal{}, false},
		{"stated", who.VerifiedBy(first), &trusted, billing, false},
		{"stated to be none", who.VerifiedBy(none), &trusted, limiter.Principal{}, false},
		{"no certificate", who.VerifiedBy(first), nil, limiter.Principal{}, false},
		{"the hook refuses", who.VerifiedBy(first), &rogue, limiter.Principal{}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.NoError(t, tt.who.Validate())
			config := ours.Server(t, tls.RequestClientCert)
			config.VerifyConnection = verify
			found, err := handshake(t, tt.who, config, ours.Client(), tt.cert)
			assert.Equal(t, tt.fails, err != nil, err)
			assert.Equal(t, tt.want, found)
		})
	}
}

// The function decides for certificates that the handshake has verified, too.
func TestWho_VerifiedByTakesThePlaceOfTheHandshake(t *testing.T) {
	ca := certtest.New(t, "CA")
	cert := ca.Issue(t, x509.Certificate{Subject: pkix.Name{CommonName: "alice"}})
	who := keying.Authenticated(keying.Refuse("Bearer")).OrCertificate(keying.CertificateSubject).
		VerifiedBy(func(*tls.ConnectionState) *x509.Certificate { return nil })
	found, err := handshake(t, who, ca.Server(t, tls.RequireAndVerifyClientCert), ca.Client(), &cert)
	require.NoError(t, err)
	assert.Zero(t, found)
}

func TestWho_CertificatesComeBetweenTheAuthenticationAndTheRest(t *testing.T) {
	leaf := certtest.New(t, "CA").Issue(t, x509.Certificate{
		Subject: pkix.Name{CommonName: "alice"}}).Leaf
	origin := keying.Origin{Remote: "203.0.113.7:4711", TLS: &tls.ConnectionState{
		PeerCertificates: []*x509.Certificate{leaf},
		VerifiedChains:   [][]*x509.Certificate{{leaf}},
	}}
	unverified := origin
	unverified.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf},
		VerifiedChains: [][]*x509.Certificate{{}}}
	byAddress := keying.ByAddress(keying.Addresses{})
	orAddress := keying.Authenticated(keying.OrAddress(keying.Addresses{}))
	tests := []struct {
		name       string
		who        keying.Who
		origin     keying.Origin
		principals []limiter.Principal
		kind       string
	}{
		{"authentication-first", orAddress.OrCertificate(keying.CertificateSubject), origin,
			[]limiter.Principal{alice}, "user"},
		{"then-the-certificate", orAddress.OrCertificate(keying.CertificateSubject), origin, nil,
			keying.KindCertificate},
		{"then-the-address", orAddress.OrCertificate(keying.CertificateDNS), origin, nil,
			keying.KindAddress},
		{"empty-chain", orAddress.OrCertificate(keying.CertificateSubject), unverified, nil,
			keying.KindAddress},
		{"not-chosen", orAddress, origin, nil, keying.KindAddress},
		{"in-front-of-the-authentication", byAddress.OrCertificate(keying.CertificateSubject), origin,
			[]limiter.Principal{alice}, keying.KindCertificate},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			require.NoError(t, tt.who.Validate())
			p, err := tt.who.Principal(with(tt.principals...), tt.origin)
			assert.NoError(t, err)
			assert.Equal(t, tt.kind, p.Kind)
		})
	}
}

func TestWho_ExpectsOnlyWhatTheAuthenticationShouldName(t *testing.T) {
	assert.True(t, keying.Authenticated(keying.OrShared()).Expects())
	assert.False(t, keying.ByAddress(keying.Addresses{}).Expects())
}
