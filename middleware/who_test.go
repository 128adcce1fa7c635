package middleware_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/lab/certtest"
	"github.com/ration-go/ration/internal/misuse"
	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/middleware"
)

// namesNobody is an authentication that forgets the id of its callers.
func namesNobody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(keying.WithPrincipal(r.Context(),
			limiter.Principal{Kind: "user", ID: r.Header.Get("X-Test-User")})))
	})
}

// The service meant a principal, so neither an address nor everybody pays.
func TestMiddleware_APrincipalWithoutAnIDIsRefusedAndLoggedOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		absent keying.Absent
		want   int
	}{
		"or-address": {keying.OrAddress(keying.Addresses{}), 403},
		"or-address-with-a-challenge": {keying.OrAddress(keying.Addresses{
			Unknown: keying.Refuse(challenge)}), 401},
		"or-shared": {keying.OrShared(), 403},
		"refused":   {keying.Refuse(challenge), 401},
	} {
		t.Run(name, func(t *testing.T) {
			l, log := logged(t, many())
			var failed error
			m := limiter.Must(middleware.New(l, keying.Authenticated(tt.absent), keying.Pattern,
				middleware.Config{Failed: func(_ http.ResponseWriter, _ *http.Request, err error) {
					failed = err
				}}))
			h := namesNobody(m.Handler(http.HandlerFunc(noop)))
			for range 2 * misuse.Patience {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, get("/", "")())
				require.Equal(t, tt.want, w.Code)
			}
			assert.ErrorIs(t, failed, keying.ErrInvalidPrincipal)
			assert.Contains(t, codes(log), "principal-invalid")
			assert.NotContains(t, codes(log), "no-principal", "the authentication is where it belongs")
			assert.Len(t, codes(log), 2, "no-route is the other, since nothing here has one")

			w := httptest.NewRecorder()
			h.ServeHTTP(w, get("/", "alice")())
			assert.Equal(t, 200, w.Code)
		})
	}
}

func TestMiddleware_LogsWhichPartOfAPrincipalIsWrong(t *testing.T) {
	for _, tt := range []struct {
		principal limiter.Principal
		want      string
	}{
		{limiter.Principal{}, "an empty Kind and an empty ID, so"},
		{limiter.Principal{Kind: "user", Tenant: "acme"}, "an empty ID, so"},
		{limiter.Principal{ID: "sk-live-1"}, "an empty Kind, so"},
		{limiter.Principal{Kind: keying.KindAddress, ID: "sk-live-1"},
			`the reserved Kind \"address\", so`},
	} {
		l, log := logged(t, many())
		m := limiter.Must(middleware.New(l, byUser, keying.Pattern, middleware.Config{}))
		r := httptest.NewRequest("GET", "/", nil)
		m.Handler(http.HandlerFunc(noop)).ServeHTTP(httptest.NewRecorder(),
			r.WithContext(keying.WithPrincipal(r.Context(), tt.principal)))
		assert.Equal(t, []string{"principal-invalid"}, codes(log))
		assert.Contains(t, log.String(), "called keying.WithPrincipal with "+tt.want)
		assert.NotContains(t, log.String(), "sk-live")
	}
}

func TestMiddleware_LogsOnceACertificateThatNobodyVerified(t *testing.T) {
	leaf := certtest.New(t, "CA").Issue(t, x509.Certificate{
		Subject: pkix.Name{CommonName: "alice"}}).Leaf
	hook := func(s *tls.ConnectionState) *x509.Certificate { return s.PeerCertificates[0] }
	who := keying.Authenticated(keying.OrAddress(keying.Addresses{})).
		OrCertificate(keying.CertificateSubject)
	for _, tt := range []struct {
		name string
		who  keying.Who
		want []string
	}{
		{"verified by nobody", who, []string{"certificate-unverified"}},
		{"verified by a hook", who.VerifiedBy(hook), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, log := logged(t, perHour(1e6))
			m := limiter.Must(middleware.New(l, tt.who, keying.Pattern,
				middleware.Config{Caller: true}))
			var kind string
			h := m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				caller, _ := keying.CallerFrom(r.Context())
				kind = caller.Principal.Kind
			}))
			for range 3 {
				r := httptest.NewRequest("GET", "/", nil)
				r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}
				h.ServeHTTP(httptest.NewRecorder(), r)
			}
			assert.Equal(t, tt.want, codes(log))
			assert.Equal(t, tt.want == nil, kind == keying.KindCertificate)
		})
	}
}

func TestMiddleware_LogsOnceThatAUnixSocketHasNoAddresses(t *testing.T) {
	socket := context.WithValue(t.Context(), http.LocalAddrContextKey,
		&net.UnixAddr{Name: "s", Net: "unix"})
	for _, tt := range []struct {
		name string
		from keying.Addresses
		want []string
	}{
		{"no choice", keying.Addresses{}, []string{"no-address"}},
		{"a proxy", keying.Addresses{UnixProxy: true}, []string{"forwarded-missing"}},
		{"a choice", keying.Addresses{Unknown: keying.OrShared()}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, log := logged(t, perHour(1e6))
			m := limiter.Must(middleware.New(l, keying.ByAddress(tt.from), keying.Pattern,
				middleware.Config{}))
			for range 3 {
				r := httptest.NewRequest("GET", "/", nil).WithContext(socket)
				m.Handler(http.HandlerFunc(noop)).ServeHTTP(httptest.NewRecorder(), r)
			}
			assert.Equal(t, tt.want, codes(log))
		})
	}
}

// As the documentation of keying.Addresses.Unknown says.
func TestMiddleware_AGRPCCallWithoutAnAddressIsAnsweredByItsHTTPStatus(t *testing.T) {
	for _, tt := range []struct {
		unknown keying.Absent
		want    string
	}{
		{keying.Absent{}, "7"},
		{keying.Refuse(challenge), "16"},
	} {
		l, _ := storeOf(t)
		m := limiter.Must(middleware.New(l, keying.ByAddress(keying.Addresses{Unknown: tt.unknown}),
			keying.Pattern, middleware.Config{}))
		r := httptest.NewRequest("POST", "/pkg.Service/Method", nil)
		r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/2.0", 2, 0
		r.Header.Set("Content-Type", "application/grpc")
		r.RemoteAddr = ""
		w := httptest.NewRecorder()
		m.Handler(http.HandlerFunc(noop)).ServeHTTP(w, r)
		assert.Equal(t, tt.want, w.Header().Get("Grpc-Status"))
	}
}
