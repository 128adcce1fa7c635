package grpcinterceptor_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"log/slog"
	"net"
	"strings"
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
	"github.com/ration-go/ration/internal/certtest"
	"github.com/ration-go/ration/internal/misuse"
	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
)

// logged is a limiter that writes its warnings to a buffer.
func logged(t *testing.T) (*limiter.Limiter, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	l, err := limiter.New(limiter.Must(memstore.New(memstore.Config{})),
		[]limiter.Budget{perUser(limiter.PerSecond(1e9))},
		limiter.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	return l, &log
}

// told returns the codes of the warnings, in order.
func told(log *bytes.Buffer) (found []string) {
	for _, field := range strings.Fields(log.String()) {
		if code, ok := strings.CutPrefix(field, "code="); ok {
			found = append(found, code)
		}
	}
	return found
}

// The service meant a principal, so neither an address nor everybody pays.
func TestCaller_APrincipalWithoutAnIDIsRefusedAndToldOnce(t *testing.T) {
	info := &grpc.UnaryServerInfo{FullMethod: emptyCall}
	handler := func(context.Context, any) (any, error) { return nil, nil }
	from := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(203, 0, 113, 7)}})
	for _, absent := range []keying.Absent{keying.OrAddress(keying.Addresses{}), keying.OrShared(),
		keying.Refuse("Bearer")} {
		l, log := logged(t)
		i := intercept(t, l, keying.Authenticated(absent), grpcinterceptor.Config{})
		for range 2 * misuse.Patience {
			_, err := i.Unary(keying.WithPrincipal(from, limiter.Principal{Kind: "user"}), empty, info,
				handler)
			require.Equal(t, codes.Unauthenticated, status.Code(err))
		}
		assert.Equal(t, []string{"principal-invalid"}, told(log))
	}
}

func TestCaller_TellsOnceThatATransportHasNoAddresses(t *testing.T) {
	l, log := logged(t)
	i := intercept(t, l, keying.ByAddress(keying.Addresses{}), grpcinterceptor.Config{})
	client := start(t, "bufconn", chain(i)...).client(t, "{}")
	for range 3 {
		_, err := client.EmptyCall(t.Context(), empty)
		require.Equal(t, codes.Unauthenticated, status.Code(err))
	}
	assert.Equal(t, []string{"no-address"}, told(log))
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
		name string
		who  keying.Who
		cert *tls.Certificate
		want codes.Code
		told []string
	}{
		{"not stated", who, &trusted, codes.Unauthenticated, []string{"certificate-unverified"}},
		{"stated", who.VerifiedBy(hook), &trusted, codes.OK, nil},
		{"no certificate", who.VerifiedBy(hook), &tls.Certificate{}, codes.Unauthenticated, nil},
		{"the hook refuses", who.VerifiedBy(hook), &rogue, codes.Unavailable, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, log := logged(t)
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
			conn, err := grpc.NewClient(server.target,
				grpc.WithTransportCredentials(credentials.NewTLS(client)))
			require.NoError(t, err)
			defer func() { _ = conn.Close() }()
			for range 2 {
				_, err = grpc_testing.NewTestServiceClient(conn).EmptyCall(t.Context(), empty)
				assert.Equal(t, tt.want, status.Code(err))
			}
			assert.Equal(t, tt.told, told(log))
			if tt.want == codes.OK {
				assert.Equal(t, limiter.Principal{Kind: "certificate", ID: "CN=alice <CN=Ours>"},
					caller.Principal)
			}
		})
	}
}
