package grpcinterceptor_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/ration-go/ration/grpcinterceptor"
	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
)

// perAddress allows an address so many calls.
func perAddress(n int64, routes ...string) limiter.Budget {
	return limiter.Budget{Name: "per-address", Scope: limiter.ByPrincipal,
		Limit: limiter.PerHour(n), Routes: routes, OnError: limiter.Closed}
}

func tapOf(
	t *testing.T, l *limiter.Limiter, from keying.Addresses, cfg grpcinterceptor.Config,
) *grpcinterceptor.Tap {
	t.Helper()
	guard, err := grpcinterceptor.NewTap(l, from, cfg)
	require.NoError(t, err)
	return guard
}

// Without an UnknownServiceHandler: interceptors see none of these calls.
func TestTap_HoldsBackAFloodOfUnknownMethods(t *testing.T) {
	l, log := newLimiter(t, perAddress(10, keying.Unmatched))
	guard := tapOf(t, l, keying.Addresses{}, grpcinterceptor.Config{})
	server := start(t, "tcp", grpc.InTapHandle(guard.Handle))
	require.NoError(t, guard.Learn(server))

	var wg sync.WaitGroup
	var mu sync.Mutex
	got := map[codes.Code]int{}
	for flooder := range 4 {
		conn := server.connect(t, "{}")
		wg.Go(func() {
			for n := range 100 {
				method := fmt.Sprintf("/made.up.Service%d/Method%d", flooder, n)
				code := invoke(t.Context(), conn, method)
				mu.Lock()
				got[code]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	assert.Equal(t, map[codes.Code]int{codes.Unimplemented: 10, codes.ResourceExhausted: 390}, got)

	client := server.client(t, "{}")
	for range 20 {
		_, err := client.EmptyCall(t.Context(), empty)
		require.NoError(t, err, "known methods are not held back")
	}
	checkHealth(t, server)
	made := []string{"/grpc.health.v1.Health/MadeUp", "/grpc.testing.TestService/MadeUp", "nothing",
		"/", "/grpc.testing.TestService"}
	for _, method := range made {
		assert.Equal(t, codes.ResourceExhausted, invoke(t.Context(), server.connect(t, "{}"), method),
			method)
	}
	assert.Equal(t, map[string]int{"allow": 30, "deny": 395,
		"skipped": 1}, log.count())
	assert.Equal(t, report{"grpc", keying.Unmatched, "allow"}, log.all()[0])
}

func TestTap_RefusesWithEveryDetailButPushback(t *testing.T) {
	limit := slow
	limit.Burst = 1
	l, _ := newLimiter(t, limiter.Budget{
		Name: "per-user", Scope: limiter.ByPrincipal, Limit: limit})
	guard := tapOf(t, l, keying.Addresses{}, grpcinterceptor.Config{})
	server := start(t, "tcp", grpc.InTapHandle(guard.Handle))
	require.NoError(t, guard.Learn(server))
	client := server.client(t, "{}")

	_, err := client.EmptyCall(t.Context(), empty)
	require.NoError(t, err)
	var header, trailer metadata.MD
	_, err = client.EmptyCall(t.Context(), empty, grpc.Header(&header), grpc.Trailer(&trailer))
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	assertDetails(t, err, retryAfter(30*time.Second+100), perUserUsedUp, perUserExceeded)
	assert.Empty(t, header[pushbackKey])
	assert.Empty(t, trailer[pushbackKey], "a tap has no trailer")
	for _, kind := range streams {
		_, err = kind.use(t.Context(), client)
		assert.Equal(t, codes.ResourceExhausted, status.Code(err), kind.name)
	}
	assert.EqualValues(t, 1, server.handled.Load())
}

func TestTap_AClientRetriesByItsOwnBackoff(t *testing.T) {
	l, log := newThawing(t, limiter.Budget{Name: "b", Scope: limiter.ByPrincipal,
		Limit: soon})
	guard := tapOf(t, l, keying.Addresses{}, grpcinterceptor.Config{})
	server := start(t, "tcp", grpc.InTapHandle(guard.Handle))
	require.NoError(t, guard.Learn(server))
	client := server.client(t, `{"methodConfig":[{"name":[{}],"retryPolicy":{"maxAttempts":5,
		"initialBackoff":"0.05s","maxBackoff":"1s","backoffMultiplier":2,
		"retryableStatusCodes":["RESOURCE_EXHAUSTED"]}}]}`)
	for range 2 {
		_, err := client.EmptyCall(t.Context(), empty)
		require.NoError(t, err)
	}
	assert.Equal(t, 2, log.count()["allow"])
	assert.NotZero(t, log.count()["deny"])
}

func TestTap_ForwardedForIsBelievedOnlyOfAProxy(t *testing.T) {
	for _, tt := range []struct {
		name    string
		proxies []netip.Prefix
		want    codes.Code
	}{
		{"nobody is a proxy", nil, codes.ResourceExhausted},
		{"behind a proxy", []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, codes.OK},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, _ := newLimiter(t, perAddress(1))
			guard := tapOf(t, l, keying.Addresses{Proxies: tt.proxies}, grpcinterceptor.Config{})
			client := start(t, "tcp", grpc.InTapHandle(guard.Handle)).client(t, "{}")
			from := func(address string) error {
				_, err := client.EmptyCall(metadata.AppendToOutgoingContext(t.Context(),
					"x-forwarded-for", address), empty)
				return err
			}
			require.NoError(t, from("203.0.113.1"))
			assert.Equal(t, tt.want, status.Code(from("203.0.113.2")))
			assert.Equal(t, codes.ResourceExhausted, status.Code(from("203.0.113.1")))
		})
	}
}

func TestTap_AConnectionWithoutAnAddressFollowsTheChoice(t *testing.T) {
	l, _ := newLimiter(t, perAddress(5))
	guard := tapOf(t, l, keying.Addresses{}, grpcinterceptor.Config{})
	client := start(t, "bufconn", grpc.InTapHandle(guard.Handle)).client(t, "{}")
	_, err := client.EmptyCall(t.Context(), empty)
	assert.Equal(t, codes.Unauthenticated, status.Code(err))
}

func TestTap_BeforeItLearnsTheServerOnlyHealthIsKnown(t *testing.T) {
	l, log := newLimiter(t, perAddress(2))
	guard := tapOf(t, l, keying.Addresses{}, grpcinterceptor.Config{
		Methods: []string{"/proxied.Orders/List"},
	})
	server := start(t, "tcp", grpc.InTapHandle(guard.Handle))
	conn := server.connect(t, "{}")
	call := func(method string) codes.Code { return invoke(t.Context(), conn, method) }
	assert.Equal(t, codes.OK, call(emptyCall))
	assert.Equal(t, codes.Unimplemented, call("/proxied.Orders/List"))
	assert.Equal(t, codes.ResourceExhausted, call(emptyCall))
	checkHealth(t, server)
	assert.Equal(t, []report{
		{"grpc", keying.Unmatched, "allow"},
		{"grpc", "/proxied.Orders/List", "allow"},
		{"grpc", keying.Unmatched, "deny"},
		{"grpc", "/grpc.health.v1.Health/Check", "skipped"},
	}, log.all())

	require.NoError(t, guard.Learn(grpc.NewServer()))
	health := grpc_health_v1.NewHealthClient(conn)
	_, err := health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	assert.Equal(t, codes.ResourceExhausted, status.Code(err), "a server without health")
}

func TestTap_AnInterceptorOfTheSameLimiterDoesNotChargeAgain(t *testing.T) {
	l, log := newLimiter(t, perAddress(3))
	guard := tapOf(t, l, keying.Addresses{}, grpcinterceptor.Config{})
	i := intercept(t, l, addresses, grpcinterceptor.Config{})
	server := start(t, "tcp", append(chain(i), grpc.InTapHandle(guard.Handle))...)
	require.NoError(t, guard.Learn(server))
	client := server.client(t, "{}")
	for range 3 {
		_, err := client.EmptyCall(t.Context(), empty)
		require.NoError(t, err)
	}
	_, err := streams[2].use(t.Context(), client)
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	assert.Len(t, log.all(), 4)
}

func TestTap_FindsBudgetsOnMethodsThatTheServerLacks(t *testing.T) {
	l, _ := newLimiter(t, perAddress(1, keying.Unmatched, emptyCall+"s"))
	guard := tapOf(t, l, keying.Addresses{}, grpcinterceptor.Config{})
	server := start(t, "tcp", grpc.InTapHandle(guard.Handle))
	var config *limiter.ConfigError
	require.ErrorAs(t, guard.Learn(server), &config)
	assert.Equal(t, `Budget "per-address".Routes[1]`, config.Field)
}

// No interceptor runs before the request message has come, so a caller that sends
// none holds a stream and a goroutine that only a tap can charge for.
func TestTap_ChargesUnaryCallsThatNeverSendAMessage(t *testing.T) {
	for _, tt := range []struct {
		name string
		tap  bool
		want codes.Code
	}{
		{"with a tap", true, codes.ResourceExhausted},
		{"with an interceptor alone", false, codes.OK},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, _ := newLimiter(t, perAddress(3))
			opts := chain(intercept(t, l, addresses, grpcinterceptor.Config{}))
			if tt.tap {
				guard := tapOf(t, l, keying.Addresses{}, grpcinterceptor.Config{})
				opts = append(opts, grpc.InTapHandle(guard.Handle))
			}
			conn := start(t, "tcp", opts...).connect(t, "{}")
			for range 3 {
				_, err := conn.NewStream(t.Context(), &grpc.StreamDesc{}, emptyCall)
				require.NoError(t, err)
			}
			// The server reads the frames of a connection in order.
			assert.Equal(t, tt.want, invoke(t.Context(), conn, emptyCall))
		})
	}
}

func TestTap_LogsOnceThatItHasNotLearned(t *testing.T) {
	server := grpc.NewServer()
	grpc_testing.RegisterTestServiceServer(server, &service{})
	learn := func(guard *grpcinterceptor.Tap) { require.NoError(t, guard.Learn(server)) }
	for _, tt := range []struct {
		name   string
		budget limiter.Budget
		before func(*grpcinterceptor.Tap)
		want   int
	}{
		{"a budget on a method", perAddress(9, emptyCall), nil, 1},
		{"a budget on unknown methods", perAddress(9, keying.Unmatched), nil, 1},
		{"a budget by route", limiter.Budget{Name: "per-address", Limit: limiter.PerHour(9),
			Scope: limiter.ByPrincipal | limiter.ByRoute}, nil, 1},
		{"a budget on all methods", perAddress(9), nil, 0},
		{"a budget on a method of Config.Methods", perAddress(9, "/proxied.Orders/List"), nil, 0},
		{"a tap that has learned", perAddress(9, emptyCall), learn, 0},
		{"a tap that has learned, and unknown methods", perAddress(9, keying.Unmatched), learn, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, log := newLimiter(t, tt.budget)
			guard := tapOf(t, l, keying.Addresses{}, grpcinterceptor.Config{
				Methods: []string{"/proxied.Orders/List"}})
			if tt.before != nil {
				tt.before(guard)
			}
			ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4zero}})
			for range 3 {
				_, err := guard.Handle(ctx, &tap.Info{FullMethodName: emptyCall})
				require.NoError(t, err)
			}
			assert.Equal(t, tt.want, strings.Count(log.logged(), "code=tap-unlearned"), log.logged())
			assert.Equal(t, tt.want, strings.Count(log.logged(), "budgets=[per-address]"))
		})
	}
}

func TestTap_IsNotAskedBehindServeHTTP(t *testing.T) {
	l, log := newLimiter(t, perAddress(1))
	guard := tapOf(t, l, keying.Addresses{}, grpcinterceptor.Config{})
	client := start(t, "http+tcp", grpc.InTapHandle(guard.Handle)).client(t, "{}")
	for range 3 {
		_, err := client.EmptyCall(t.Context(), empty)
		require.NoError(t, err)
	}
	assert.Empty(t, log.all())
}

func TestNewTap_NamesWhatIsWrong(t *testing.T) {
	l, _ := newLimiter(t, perAddress(1))
	remote, _ := limiterOver(t, fixed{}, perAddress(1))
	cost := func(context.Context, string, any) int64 { return 1 }
	for _, tt := range []struct {
		name  string
		l     *limiter.Limiter
		from  keying.Addresses
		cfg   grpcinterceptor.Config
		field string
	}{
		{"no limiter", nil, keying.Addresses{}, grpcinterceptor.Config{}, "Limiter"},
		{"the zero limiter", &limiter.Limiter{}, keying.Addresses{}, grpcinterceptor.Config{}, "Limiter"},
		{"a store that may block", remote, keying.Addresses{}, grpcinterceptor.Config{}, "Limiter"},
		{"addresses", l, keying.Addresses{IPv6Bits: 1}, grpcinterceptor.Config{},
			"Addresses.IPv6Bits"},
		{"pushback", l, keying.Addresses{}, grpcinterceptor.Config{MaxPushback: time.Second},
			"Config.MaxPushback"},
		{"a cost", l, keying.Addresses{}, grpcinterceptor.Config{Cost: cost}, "Config.Cost"},
		{"messages", l, keying.Addresses{}, grpcinterceptor.Config{Messages: true},
			"Config.Messages"},
		{"a method", l, keying.Addresses{}, grpcinterceptor.Config{Methods: []string{"x"}},
			"Config.Methods[0]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			guard, err := grpcinterceptor.NewTap(tt.l, tt.from, tt.cfg)
			assert.Nil(t, guard)
			var config *limiter.ConfigError
			require.ErrorAs(t, err, &config)
			assert.Equal(t, tt.field, config.Field)
		})
	}
}
