package middleware_test

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/middleware"
)

// dialGRPC serves a gRPC service by net/http behind the limiter.
func dialGRPC(
	t *testing.T, limit func(http.Handler) http.Handler, options ...grpc.DialOption,
) grpc_health_v1.HealthClient {
	t.Helper()
	leavesNoGoroutine(t)
	service := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(service, health.NewServer())
	server := httptest.NewUnstartedServer(limit(service))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	secure := credentials.NewTLS(&tls.Config{
		RootCAs:    server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs,
		ServerName: "example.com",
	})
	conn, err := grpc.NewClient(server.Listener.Addr().String(),
		append(options, grpc.WithTransportCredentials(secure))...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return grpc_health_v1.NewHealthClient(conn)
}

func TestGRPC_RefusalsAreStatusesOfTheirOwn(t *testing.T) {
	minute := limiter.Budget{Name: "own", Scope: limiter.ByPrincipal, Limit: limiter.PerMinute(1)}
	second := limiter.Budget{Name: "own", Scope: limiter.ByPrincipal, Limit: limiter.PerSecond(1)}
	shared := limiter.Budget{Name: "shared", Limit: limiter.PerSecond(1), Unavailable: true}
	tests := []struct {
		name     string
		budget   limiter.Budget
		who      keying.Who
		cfg      middleware.Config
		timeout  time.Duration
		code     grpccodes.Code
		message  string
		pushback []string
	}{
		{"denied", second, byAddress, middleware.Config{}, time.Minute, grpccodes.ResourceExhausted,
			"rate limit exceeded; retry in 1s", []string{"1000"}},
		{"rounded-up", limiter.Budget{Name: "own", Scope: limiter.ByPrincipal,
			Limit: limiter.Limit{Tokens: 1, Per: 1500 * time.Microsecond}}, byAddress,
			middleware.Config{}, time.Minute, grpccodes.ResourceExhausted,
			"rate limit exceeded; retry in 2ms", []string{"2"}},
		{"longer-than-clients-should-wait", minute, byAddress, middleware.Config{}, 2 * time.Minute,
			grpccodes.ResourceExhausted, "rate limit exceeded; retry in 1m0s", []string{"-1"}},
		{"longer-than-the-call", second, byAddress, middleware.Config{}, 900 * time.Millisecond,
			grpccodes.ResourceExhausted, "rate limit exceeded; retry in 1s", []string{"-1"}},
		{"never", second, byAddress, middleware.Config{Cost: func(*http.Request) int64 { return 2 }},
			time.Minute, grpccodes.ResourceExhausted, "rate limit exceeded; no retry can succeed",
			[]string{"-1"}},
		{"unavailable", shared, byAddress, middleware.Config{},
			time.Minute, grpccodes.Unavailable, "the service is used up; retry in 1s", []string{"1000"}},
		{"nobody", second, byUser, middleware.Config{}, time.Minute, grpccodes.Unauthenticated,
			"the call carries no principal", nil},
		{"mistake", second, byAddress, middleware.Config{Cost: func(*http.Request) int64 { return -1 }},
			time.Minute, grpccodes.Internal, "the call could not be charged", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t, tt.budget)
			tt.cfg.Denied = func(http.ResponseWriter, *http.Request, limiter.Decision) {
				t.Error("Denied writes HTTP, not gRPC")
			}
			client := dialGRPC(t, f.middleware(t, tt.who, keying.Pattern, tt.cfg))
			ctx, cancel := context.WithTimeout(t.Context(), tt.timeout)
			defer cancel()
			var header, trailer metadata.MD
			_, _ = client.Check(ctx, &grpc_health_v1.HealthCheckRequest{}, grpc.Header(&header))
			assert.NotContains(t, header, "ratelimit")
			_, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{},
				grpc.Header(&header), grpc.Trailer(&trailer))
			assert.Equal(t, tt.code, status.Code(err), err)
			assert.Equal(t, tt.message, status.Convert(err).Message())
			assert.Equal(t, tt.pushback, trailer["grpc-retry-pushback-ms"])
			for _, name := range []string{"ratelimit", "ratelimit-policy", "retry-after"} {
				assert.NotContains(t, header, name)
				assert.NotContains(t, trailer, name)
			}
		})
	}
}

func TestGRPC_AStoreThatFailsIsUnavailable(t *testing.T) {
	l, err := limiter.New(failing{err: context.DeadlineExceeded}, []limiter.Budget{{
		Name: "own", Limit: limiter.PerSecond(1), OnError: limiter.Closed}}, limiter.Config{})
	require.NoError(t, err)
	m, err := middleware.New(l, byAddress, keying.Pattern, middleware.Config{})
	require.NoError(t, err)
	var trailer metadata.MD
	_, err = dialGRPC(t, m.Handler).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{},
		grpc.Trailer(&trailer))
	assert.Equal(t, grpccodes.Unavailable, status.Code(err))
	assert.Equal(t, []string{"1000"}, trailer["grpc-retry-pushback-ms"])
}

// grpc-go retries only after an answer of one frame, and after the wait that it
// states; its own backoff is far longer than this test waits.
func TestGRPC_ARealClientRetriesAfterThePushback(t *testing.T) {
	const wait = 20 * time.Millisecond
	f := newFixture(t, limiter.Budget{Name: "own", Scope: limiter.ByPrincipal,
		Limit: limiter.Limit{Tokens: 1, Per: wait}})
	limit := f.middleware(t, byAddress, keying.Pattern, middleware.Config{})
	client := dialGRPC(t, func(next http.Handler) http.Handler {
		limited := limit(next)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			limited.ServeHTTP(w, r)
			f.move(wait / 2) // the second call is refused, and let in when it comes again
		})
	}, grpc.WithDefaultServiceConfig(`{"methodConfig":[{"name":[{}],"retryPolicy":{"maxAttempts":3,
		"initialBackoff":"60s","maxBackoff":"60s","backoffMultiplier":1,
		"retryableStatusCodes":["RESOURCE_EXHAUSTED"]}}]}`))
	for range 2 {
		_, err := client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		require.NoError(t, err)
	}
	assert.Equal(t, []string{"http unmatched allow", "http unmatched deny", "http unmatched allow"},
		f.seen.take())
}
