package grpcinterceptor_test

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ration-go/ration/grpcinterceptor"
	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
)

func TestCaller_NobodyIsUnauthenticated(t *testing.T) {
	l, log := newLimiter(t, perUser(slow))
	i := intercept(t, l, users, grpcinterceptor.Config{})
	server := start(t, "tcp", chain(i)...)
	client := server.client(t, retrying)

	var trailer metadata.MD
	_, err := client.EmptyCall(t.Context(), empty, grpc.Trailer(&trailer))
	assert.Equal(t, codes.Unauthenticated, status.Code(err))
	assertDetails(t, err, errorInfo("PRINCIPAL_REQUIRED"))
	assert.Empty(t, trailer[pushbackKey])
	_, err = streams[0].use(t.Context(), client)
	assert.Equal(t, codes.Unauthenticated, status.Code(err))
	assert.Zero(t, server.handled.Load())
	assert.Equal(t, []string{
		"unauthenticated", "unauthenticated",
	}, log.answers())
}

// A connection in memory has no address, so there is nobody to count.
func TestCaller_AConnectionWithoutAnAddressFollowsTheChoice(t *testing.T) {
	for _, tt := range []struct {
		name    string
		unknown keying.Absent
		want    codes.Code
	}{
		{"unset refuses", keying.Absent{}, codes.Unauthenticated},
		{"shared", keying.OrShared(), codes.OK},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, _ := newLimiter(t, perUser(slow))
			who := keying.ByAddress(keying.Addresses{Unknown: tt.unknown})
			i := intercept(t, l, who, grpcinterceptor.Config{})
			client := start(t, "bufconn", chain(i)...).client(t, "{}")
			_, err := client.EmptyCall(t.Context(), empty)
			assert.Equal(t, tt.want, status.Code(err))
		})
	}
}

func TestCaller_ForwardedForIsBelievedOnlyOfAProxy(t *testing.T) {
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	tests := []struct {
		name    string
		proxies []netip.Prefix
		lines   [][]string // of each call, in order
		want    []codes.Code
	}{
		{"nobody is a proxy", nil, [][]string{{"203.0.113.1"}, {"203.0.113.2"}},
			[]codes.Code{codes.OK, codes.ResourceExhausted}},
		{"two callers behind a proxy", loopback, [][]string{{"203.0.113.1"}, {"203.0.113.2"}},
			[]codes.Code{codes.OK, codes.OK}},
		{"the left is the caller's own word", loopback,
			[][]string{{"198.51.100.1, 203.0.113.1"}, {"198.51.100.2, 203.0.113.1"}},
			[]codes.Code{codes.OK, codes.ResourceExhausted}},
		{"all lines count, the last one first", loopback,
			[][]string{{"198.51.100.1", "203.0.113.1"}, {"198.51.100.2", "203.0.113.1"}},
			[]codes.Code{codes.OK, codes.ResourceExhausted}},
		{"what cannot be read fails closed", loopback, [][]string{{"198.51.100.1, nonsense"}},
			[]codes.Code{codes.Unauthenticated}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l, _ := newLimiter(t, perUser(slow))
			who := keying.ByAddress(keying.Addresses{Proxies: tt.proxies})
			i := intercept(t, l, who, grpcinterceptor.Config{})
			client := start(t, "tcp", chain(i)...).client(t, "{}")
			for n, lines := range tt.lines {
				ctx := t.Context()
				for _, line := range lines {
					ctx = metadata.AppendToOutgoingContext(ctx, "X-Forwarded-For", line)
				}
				_, err := client.EmptyCall(ctx, empty)
				assert.Equal(t, tt.want[n], status.Code(err), "call %d", n)
			}
		})
	}
}

func checkHealth(t *testing.T, server *running) {
	t.Helper()
	client := grpc_health_v1.NewHealthClient(server.connect(t, "{}"))
	answer, err := client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	require.NoError(t, err)
	require.Equal(t, grpc_health_v1.HealthCheckResponse_SERVING, answer.GetStatus())
}

func TestHealth_IsFreeUnderADrainedBudget(t *testing.T) {
	l, log := newLimiter(t, limiter.Budget{Name: "all", Limit: slow})
	i := intercept(t, l, users, grpcinterceptor.Config{})
	server := start(t, "tcp", chain(i)...)
	client := server.client(t, "{}")
	_, err := client.EmptyCall(as(t, "alice"), empty)
	require.NoError(t, err)
	_, err = client.EmptyCall(as(t, "alice"), empty)
	require.Equal(t, codes.ResourceExhausted, status.Code(err))

	for range 5 {
		checkHealth(t, server)
	}
	health := grpc_health_v1.NewHealthClient(server.connect(t, "{}"))
	_, err = health.List(t.Context(), &grpc_health_v1.HealthListRequest{})
	require.NoError(t, err)

	seen := log.all()
	assert.Equal(t, report{"grpc", grpc_health_v1.Health_Check_FullMethodName,
		"skipped"}, seen[2])
	assert.Equal(t, report{"grpc", grpc_health_v1.Health_List_FullMethodName,
		"skipped"}, seen[7])
}

// A Watch holds a stream for as long as the caller likes.
func TestHealth_WatchIsNotFree(t *testing.T) {
	l, log := newLimiter(t, perUser(limiter.PerHour(2)))
	i := intercept(t, l, users, grpcinterceptor.Config{})
	client := grpc_health_v1.NewHealthClient(
		start(t, "tcp", chain(i)...).connect(t, "{}"))
	watch := func(ctx context.Context) codes.Code {
		stream, err := client.Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
		require.NoError(t, err)
		_, err = stream.Recv()
		return status.Code(err)
	}
	alice := as(t, "alice")
	assert.Equal(t, []codes.Code{codes.OK, codes.OK, codes.ResourceExhausted, codes.Unauthenticated},
		[]codes.Code{watch(alice), watch(alice), watch(alice), watch(t.Context())})
	assert.Equal(t, report{"grpc", grpc_health_v1.Health_Watch_FullMethodName,
		"deny"}, log.all()[2])
	assert.False(t, grpcinterceptor.Health(t.Context(), grpc_health_v1.Health_Watch_FullMethodName))
	assert.False(t, grpcinterceptor.Health(t.Context(), "/grpc.health.v1.Health/Check/"))
}

func TestSkip_SaysWhichOtherCallsAreFree(t *testing.T) {
	l, log := newLimiter(t, perUser(slow))
	i := intercept(t, l, users, grpcinterceptor.Config{
		Skip: func(_ context.Context, fullMethod string) bool { return fullMethod == emptyCall },
	})
	server := start(t, "bufconn", chain(i)...)
	client := server.client(t, "{}")
	for range 3 {
		_, err := client.EmptyCall(t.Context(), empty)
		require.NoError(t, err)
	}
	_, err := client.UnaryCall(t.Context(), &grpc_testing.SimpleRequest{})
	assert.Equal(t, codes.Unauthenticated, status.Code(err))
	checkHealth(t, server)
	assert.Equal(t, []string{"skipped", "skipped",
		"skipped", "unauthenticated", "skipped"}, log.answers())
}

func invoke(ctx context.Context, conn *grpc.ClientConn, method string) codes.Code {
	return status.Code(conn.Invoke(ctx, method, empty, new(grpc_testing.Empty)))
}

func TestUnknownMethods_DoNotReachAnInterceptor(t *testing.T) {
	l, log := newLimiter(t, perUser(slow))
	i := intercept(t, l, users, grpcinterceptor.Config{})
	conn := start(t, "bufconn", chain(i)...).connect(t, "{}")
	for n := range 50 {
		method := fmt.Sprintf("/made.up.Service%d/Method", n)
		require.Equal(t, codes.Unimplemented, invoke(as(t, "alice"), conn, method))
	}
	assert.Empty(t, log.all())
}

func TestUnknownMethods_OfAnUnknownServiceHandlerShareOneRoute(t *testing.T) {
	l, log := newLimiter(t, limiter.Budget{Name: "per-route", Limit: limiter.PerHour(3),
		Scope: limiter.ByPrincipal | limiter.ByRoute})
	i := intercept(t, l, users, grpcinterceptor.Config{Methods: []string{"/proxied.Orders/List"}})
	proxy := func(_ any, stream grpc.ServerStream) error {
		if err := stream.RecvMsg(new(grpc_testing.Empty)); err != nil {
			return err
		}
		return stream.SendMsg(empty)
	}
	server := start(t, "bufconn", append(chain(i), grpc.UnknownServiceHandler(proxy))...)
	conn := server.connect(t, "{}")

	var got []codes.Code
	for _, method := range []string{
		"/made.up.Service1/Method",
		"/made.up.Service2/Method",
		"/grpc.health.v1.Health/MadeUp",           // not free
		"/grpc.testing.TestService/EmptyCallPlus", // one over
		"/proxied.Orders/List",
		emptyCall,
	} {
		got = append(got, invoke(as(t, "alice"), conn, method))
	}
	assert.Equal(t, []codes.Code{codes.OK, codes.OK, codes.OK, codes.ResourceExhausted,
		codes.OK, codes.OK}, got)
	assert.Equal(t, []report{
		{"grpc", keying.Unmatched, "allow"},
		{"grpc", keying.Unmatched, "allow"},
		{"grpc", keying.Unmatched, "allow"},
		{"grpc", keying.Unmatched, "deny"},
		{"grpc", "/proxied.Orders/List", "allow"},
		{"grpc", emptyCall, "allow"},
	}, log.all())
}
