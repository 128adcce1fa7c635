package keying_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ration-go/ration/internal/lab/certtest"
	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
)

func TestWho_MisuseSaysWhatARequestShows(t *testing.T) {
	leaf := certtest.New(t, "CA").Issue(t, x509.Certificate{
		Subject: pkix.Name{CommonName: "alice"}}).Leaf
	shown := keying.Origin{Remote: "203.0.113.7:80", TLS: &tls.ConnectionState{
		PeerCertificates: []*x509.Certificate{leaf}}}
	verified := keying.Origin{TLS: &tls.ConnectionState{
		PeerCertificates: shown.TLS.PeerCertificates,
		VerifiedChains:   [][]*x509.Certificate{{leaf}}}}
	socket := servedAt(&net.UnixAddr{Name: "s", Net: "unix"})
	orAddress := keying.Authenticated(keying.OrAddress(keying.Addresses{}))
	refuse := keying.Authenticated(keying.Refuse("Bearer"))
	bySubject := orAddress.OrCertificate(keying.CertificateSubject)
	hooked := func(*tls.ConnectionState) *x509.Certificate { return nil }
	for _, tt := range []struct {
		name string
		who  keying.Who
		ctx  context.Context
		from keying.Origin
		want string
	}{
		{"a principal without an id", orAddress, with(limiter.Principal{Kind: "user"}),
			keying.Origin{Remote: "203.0.113.7:80"}, "principal-invalid"},
		{"that, and a certificate", bySubject, with(limiter.Principal{}), shown, "principal-invalid"},
		{"that, where principals do not count", keying.ByAddress(keying.Addresses{}),
			with(limiter.Principal{}), keying.Origin{Remote: "203.0.113.7:80"}, ""},
		{"a certificate not verified", bySubject, with(), shown, "certificate-unverified"},
		{"that, and nobody", refuse.OrCertificate(keying.CertificateSubject), with(), shown,
			"certificate-unverified"},
		{"that, where certificates do not count", orAddress, with(), shown, ""},
		{"that, by the service's own word", bySubject.VerifiedBy(hooked), with(), shown, ""},
		{"a certificate", bySubject, with(), verified, ""},
		{"no certificate", bySubject, with(),
			keying.Origin{Remote: "203.0.113.7:80", TLS: &tls.ConnectionState{}}, ""},
		{"a unix socket", orAddress, socket, keying.Origin{Remote: "@"}, "no-address"},
		{"that, with a choice", keying.ByAddress(keying.Addresses{Unknown: keying.Refuse("Bearer")}),
			socket, keying.Origin{Remote: "@"}, ""},
		{"that, with a proxy", keying.ByAddress(keying.Addresses{UnixProxy: true}), socket,
			keying.Origin{Remote: "@"}, ""},
		{"that, and users alone", refuse, socket, keying.Origin{Remote: "@"}, ""},
		{"garbage", orAddress, with(), keying.Origin{Remote: "garbage"}, ""},
		{"nobody", refuse, with(), keying.Origin{}, ""},
		{"an address", orAddress, with(), keying.Origin{Remote: "203.0.113.7:80"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := tt.who.Principal(tt.ctx, tt.from)
			code, message := tt.who.Misuse(tt.ctx, tt.from, err)
			assert.Equal(t, tt.want, code)
			assert.Equal(t, tt.want == "", message == "")
		})
	}
}
