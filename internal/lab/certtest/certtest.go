// Package certtest issues certificates for tests.
package certtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Authority issues certificates.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New returns an authority of that common name.
func New(t testing.TB, name string) *Authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	a := &Authority{&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
	}, key}
	a.cert = a.Issue(t, *a.cert).Leaf
	return a
}

// Pool returns a pool with the authority alone.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// Issue signs the template, for a day and for servers and clients both.
func (a *Authority) Issue(t testing.TB, template x509.Certificate) tls.Certificate {
	t.Helper()
	key := a.key
	if !template.IsCA {
		var err error
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().Add(24 * time.Hour)
	template.KeyUsage = x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign
	template.ExtKeyUsage = []x509.ExtKeyUsage{
		x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth,
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, a.cert, &key.PublicKey, a.key)
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// Server returns the configuration of a server on 127.0.0.1 that asks for
// certificates as auth says and trusts the authority.
func (a *Authority) Server(t testing.TB, auth tls.ClientAuthType) *tls.Config {
	t.Helper()
	return &tls.Config{
		Certificates: []tls.Certificate{a.Issue(t, x509.Certificate{
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"bufconn"},
		})},
		ClientAuth: auth, ClientCAs: a.Pool(), NextProtos: []string{"h2", "http/1.1"},
	}
}

// Client returns the configuration of a client that presents the certificates.
func (a *Authority) Client(certs ...tls.Certificate) *tls.Config {
	return &tls.Config{RootCAs: a.Pool(), Certificates: certs}
}
