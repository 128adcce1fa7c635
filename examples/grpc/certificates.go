package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"time"

	"google.golang.org/grpc/credentials"
)

// authority issues certificates that live as long as the program. A service gets
// its own from files or from a mesh.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a := &authority{key: key}
	root, err := a.sign(x509.Certificate{
		Subject: pkix.Name{CommonName: "Example"}, IsCA: true, BasicConstraintsValid: true,
	}, key)
	if err != nil {
		return nil, err
	}
	a.cert = root.Leaf
	return a, nil
}

// sign issues a certificate for the key; before there is one of the authority
// itself, by that very key.
func (a *authority) sign(
	template x509.Certificate, key *ecdsa.PrivateKey,
) (cert tls.Certificate, err error) {
	now := time.Now()
	template.SerialNumber = big.NewInt(now.UnixNano())
	template.NotBefore, template.NotAfter = now.Add(-time.Minute), now.Add(time.Hour)
	template.KeyUsage = x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign
	parent := a.cert
	if parent == nil {
		parent = &template
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, parent, &key.PublicKey, a.key)
	if err != nil {
		return cert, err
	}
	leaf, err := x509.ParseCertificate(der)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, err
}

// issue returns a certificate for the name, to use as the server on this machine
// or as a client.
func (a *authority) issue(name string) (cert tls.Certificate, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return cert, err
	}
	return a.sign(x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{
			x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth,
		},
	}, key)
}

// server returns the credentials of the server, which lets in nobody without a
// certificate of the authority.
func (a *authority) server() (credentials.TransportCredentials, error) {
	cert, err := a.issue("server")
	return credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{cert},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: a.pool(),
	}), err
}

// client returns the credentials of a client of that name.
func (a *authority) client(name string) (credentials.TransportCredentials, error) {
	cert, err := a.issue(name)
	return credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{cert}, RootCAs: a.pool(),
	}), err
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}
