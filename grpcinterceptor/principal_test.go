package grpcinterceptor_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ration-go/ration/grpcinterceptor"
	"github.com/ration-go/ration/internal/lab/certtest"
	"github.com/ration-go/ration/internal/misuse"
	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
)

// noted is an interceptor that notes the caller that handlers would find.
func noted(caller *limiter.Caller, known *bool) grpc.UnaryServerInterceptor {
	return func(
		ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
	) (any, error) {
		*caller, *known = keying.CallerFrom(ctx)
		return handler(ctx, req)
	}
}

// Over real handshakes: a certificate names the caller where the server has
// verified it, and the rogue's SPIFFE ID, which it could write itself, does not.
func TestInterceptor_CountsVerifiedCertificates(t *testing.T) {
	ours, theirs := certtest.New(t, "Ours"), certtest.New(t, "Theirs")
	billing, err := url.Parse("spiffe://acme.example/billing")
	require.NoError(t, err)
	template := x509.Certificate{
		Subject: pkix.Name{CommonName: "alice"}, URIs: []*url.URL{billing},
	}
	trusted, rogue := ours.Issue(t, template), theirs.Issue(t, template)
	tests := []struct {
		name  string
		auth  tls.ClientAuthType
		which keying.CertificateName
		cert  *tls.Certificate
		user  string // named by the authentication
		want  limiter.Principal
		code  codes.Code
	}{
		{"subject", tls.RequireAndVerifyClientCert, keying.CertificateSubject, &trusted, "",
			limiter.Principal{Kind: "certificate", ID: "CN=alice <CN=Ours>"}, codes.OK},
		{"spiffe", tls.RequireAndVerifyClientCert, keying.CertificateSPIFFE, &trusted, "",
			limiter.Principal{Kind: "certificate", ID: "spiffe://acme.example/billing <CN=Ours>"},
			codes.OK},
		{"the-authentication-first", tls.RequireAndVerifyClientCert, keying.CertificateSubject,
			&trusted, "bob", limiter.Principal{Kind: "user", ID: "bob"}, codes.OK},
		{"rogue", tls.RequireAnyClientCert, keying.CertificateSPIFFE, &rogue, "",
			limiter.Principal{}, codes.Unauthenticated},
		{"none", tls.VerifyClientCertIfGiven, keying.CertificateSubject, nil, "",
			limiter.Principal{}, codes.Unauthenticated},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l, _ := newLimiter(t, perUser(limiter.PerSecond(5)))
			i := intercept(t, l, users.OrCertificate(tt.which), grpcinterceptor.Config{})
			var caller limiter.Caller
			var known bool
			server := start(t, "tcp", grpc.Creds(credentials.NewTLS(ours.Server(t, tt.auth))),
				grpc.ChainUnaryInterceptor(authenticate, i.Unary, noted(&caller, &known)))
			config := ours.Client()
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				if tt.cert == nil {
					return &tls.Certificate{}, nil
				}
				return tt.cert, nil
			}
			conn := server.connectWith(t, credentials.NewTLS(config), "{}")
			ctx := t.Context()
			if tt.user != "" {
				ctx = as(t, tt.user)
			}
			_, err := grpc_testing.NewTestServiceClient(conn).EmptyCall(ctx, empty)
			assert.Equal(t, tt.code, status.Code(err))
			assert.Equal(t, tt.code == codes.OK, known)
			assert.Equal(t, tt.want, caller.Principal)
		})
	}
}

func TestInterceptor_LabelsSplitABudgetAndNeverMultiplyIt(t *testing.T) {
	store := newStore(standing)
	l, _ := limiterOver(t, store, perUser(limiter.PerHour(20)), limiter.Budget{
		Name: "workload", Scope: limiter.ByPrincipal | limiter.ByWorkload, Limit: limiter.PerHour(5),
		OnError: limiter.Closed,
	})
	i := intercept(t, l, users, grpcinterceptor.Config{
		Workloads: keying.Workloads{Header: "workload", Listed: []string{"web"}, Slots: 4},
	})
	var caller limiter.Caller
	var known bool
	server := start(t, "bufconn",
		grpc.ChainUnaryInterceptor(authenticate, i.Unary, noted(&caller, &known)))
	client := server.client(t, "{}")
	passed := func(user string, label func(int) string) (n int) {
		for i := range 50 {
			ctx := metadata.AppendToOutgoingContext(as(t, user), "workload", label(i))
			if _, err := client.EmptyCall(ctx, empty); err == nil {
				n++
			}
		}
		return n
	}
	assert.Equal(t, 5, passed("alice", func(int) string { return "web" }))
	assert.Equal(t, limiter.Caller{
		Principal: limiter.Principal{Kind: "user", ID: "alice"}, Route: emptyCall, Workload: "web",
	}, caller)
	assert.Equal(t, 20, passed("bob", func(i int) string { return fmt.Sprint(i) }))
	assert.EqualValues(t, 2+1+4, store.Stats().Accounts)
}

func TestNew_RefusesWorkloadsThatAreNotValid(t *testing.T) {
	l, _ := newLimiter(t, perUser(limiter.PerSecond(5)))
	_, err := grpcinterceptor.New(l, users, grpcinterceptor.Config{
		Workloads: keying.Workloads{Header: "workload", Slots: -1},
	})
	var config *limiter.ConfigError
	require.ErrorAs(t, err, &config)
	assert.Equal(t, "Workloads.Slots", config.Field)

	l, _ = newLimiter(t, perUser(limiter.PerSecond(5)), limiter.Budget{
		Name: "workload", Scope: limiter.ByPrincipal | limiter.ByWorkload, Limit: limiter.PerHour(5),
		OnError: limiter.Closed,
	})
	_, err = grpcinterceptor.New(l, users, grpcinterceptor.Config{})
	require.ErrorAs(t, err, &config, "a budget ByWorkload, and no labels")
	assert.Equal(t, "Workloads", config.Field)
}

func TestInterceptor_LogsOnceThatNobodyEverHasAPrincipal(t *testing.T) {
	l, log := newLimiter(t, perUser(limiter.PerSecond(1e9)))
	call := func(i *grpcinterceptor.Interceptor, ctx context.Context) {
		_, _ = i.Unary(ctx, empty, unaryInfo, unaryDone)
	}
	named := keying.WithPrincipal(t.Context(), limiter.Principal{Kind: "user", ID: "alice"})

	i := intercept(t, l, users, grpcinterceptor.Config{})
	call(i, named)
	byAddress := intercept(t, l, keying.ByAddress(keying.Addresses{Unknown: keying.OrShared()}),
		grpcinterceptor.Config{})
	for range 2 * misuse.Patience {
		call(i, t.Context())
		call(byAddress, t.Context())
	}
	assert.Empty(t, log.logged(), "one was named, and addresses need no name")

	i = intercept(t, l, users, grpcinterceptor.Config{})
	for range 3 * misuse.Patience {
		call(i, t.Context())
	}
	assert.Equal(t, []string{"no-principal"}, log.warnings())
}
