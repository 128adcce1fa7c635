package grpcinterceptor_test

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/ration-go/ration/grpcinterceptor"
	"github.com/ration-go/ration/internal/lab/certtest"
	"github.com/ration-go/ration/internal/misuse"
	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
)

// The service meant a principal, so neither an address nor everybody pays.
func TestCaller_APrincipalWithoutAnIDIsRefusedAndLoggedOnce(t *testing.T) {
	from := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(203, 0, 113, 7)}})
	for _, absent := range []keying.Absent{keying.OrAddress(keying.Addresses{}), keying.OrShared(),
		keying.Refuse("Bearer")} {
		l, log := newLimiter(t, perUser(limiter.PerSecond(1e9)))
		i := intercept(t, l, keying.Authenticated(absent), grpcinterceptor.Config{})
		for range 2 * misuse.Patience {
			_, err := i.Unary(keying.WithPrincipal(from, limiter.Principal{Kind: "user"}), empty,
				unaryInfo, unaryDone)
			require.Equal(t, codes.Unauthenticated, status.Code(err))
		}
		assert.Equal(t, []string{"principal-invalid"}, log.warnings())
	}
}

func TestCaller_LogsOnceThatATransportHasNoAddresses(t *testing.T) {
	l, log := newLimiter(t, perUser(limiter.PerSecond(1e9)))
	i := intercept(t, l, keying.ByAddress(keying.Addresses{}), grpcinterceptor.Config{})
	client := start(t, "bufconn", chain(i)...).client(t, "{}")
	for range 3 {
		_, err := client.EmptyCall(t.Context(), empty)
		require.Equal(t, codes.Unauthenticated, status.Code(err))
	}
	assert.Equal(t, []string{"no-address"}, log.warnings())
}

// Over real handshakes that a hook of the service verifies, as go-spiffe does:
// VerifiedChains is empty, and only the service can say that it was verified.
func TestCaller_CertificatesCountThatAHookHasVerified(t *testing.T) {
	ours, theirs := certtest.New(t, "Ours"), certtest.New(t, "Theirs")
	template := x509.Certificate{Subject: pkix.Name{CommonName: "alice"}}
	trusted, rogue := ours.Issue(t, template), theirs.Issue(t, template)
	hook := func(s *tls.ConnectionState) *x509.Certificate { return s.PeerCertificates[0] }
	who := users.OrCertificate(keying.CertificateSubject)
	for _, tt := range []struct {
		name   string
		who    keying.Who
		cert   *tls.Certificate
		want   codes.Code
		logged []string
	}{
		{"not stated", who, &trusted, codes.Unauthenticated, []string{"certificate-unverified"}},
		{"stated", who.VerifiedBy(hook), &trusted, codes.OK, nil},
		{"no certificate", who.VerifiedBy(hook), &tls.Certificate{}, codes.Unauthenticated, nil},
		{"the hook refuses", who.VerifiedBy(hook), &rogue, codes.Unavailable, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, log := newLimiter(t, perUser(limiter.PerSecond(1e9)))
			i := intercept(t, l, tt.who, grpcinterceptor.Config{})
			config := ours.Server(t, tls.RequestClientCert)
			config.VerifyPeerCertificate = func(raw [][]byte, _ [][]*x509.Certificate) error {
				if len(raw) == 0 {
					return nil
				}
				leaf, err := x509.ParseCertificate(raw[0])
				if err != nil {
					return err
				}
				_, err = leaf.Verify(x509.VerifyOptions{Roots: ours.Pool(),
					KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
				return err
			}
			var caller limiter.Caller
			var known bool
			server := start(t, "tcp", grpc.Creds(credentials.NewTLS(config)),
				grpc.ChainUnaryInterceptor(i.Unary, noted(&caller, &known)))
			client := ours.Client()
			client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				return tt.cert, nil
			}
			conn := server.connectWith(t, credentials.NewTLS(client), "{}")
			for range 2 {
				_, err := grpc_testing.NewTestServiceClient(conn).EmptyCall(t.Context(), empty)
				assert.Equal(t, tt.want, status.Code(err))
			}
			assert.Equal(t, tt.logged, log.warnings())
			if tt.want == codes.OK {
				assert.Equal(t, limiter.Principal{Kind: "certificate", ID: "CN=alice <CN=Ours>"},
					caller.Principal)
			}
		})
	}
}
