package grpcinterceptor_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ration-go/ration/grpcinterceptor"
	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/middleware"
)

// perRequest is a second budget, which counts requests whatever they cost.
func perRequest(b limiter.Budget) limiter.Budget {
	b.Name, b.PerRequest = "requests", true
	return b
}

func ten(context.Context, string, any) int64 { return 10 }

// settleOnce is a handler that settles its call, once.
func settleOnce(t *testing.T, actual int64) func(context.Context) error {
	return func(ctx context.Context) error {
		assert.NoError(t, grpcinterceptor.Settle(ctx, actual))
		assert.ErrorIs(t, grpcinterceptor.Settle(ctx, actual), limiter.ErrReceipt)
		return nil
	}
}

// correction is a configuration of an interceptor, what a handler then does, and what
// the call costs at last.
type correction struct {
	cfg     grpcinterceptor.Config
	handler func(context.Context) error
	code    codes.Code
	want    int64
}

func corrections(t *testing.T) map[string]correction {
	nothing := func(context.Context) error { return nil }
	settles := grpcinterceptor.Config{Cost: ten, Settles: true}
	rule := grpcinterceptor.Config{Cost: ten, ByCode: byCode}
	both := grpcinterceptor.Config{Cost: ten, Settles: true, ByCode: byCode}
	one := grpcinterceptor.Config{Settles: true}
	return map[string]correction{
		"cost 1":               {grpcinterceptor.Config{}, nothing, codes.OK, 1},
		"cost 10":              {grpcinterceptor.Config{Cost: ten}, nothing, codes.OK, 10},
		"settled to 3":         {settles, settleOnce(t, 3), codes.OK, 3},
		"settled to 0":         {settles, settleOnce(t, 0), codes.OK, 0},
		"settled to 20":        {settles, settleOnce(t, 20), codes.OK, 20},
		"not settled":          {settles, nothing, codes.OK, 10},
		"cost 1, settled to 5": {one, settleOnce(t, 5), codes.OK, 5},
		"cost 1, settled to 0": {one, settleOnce(t, 0), codes.OK, 0},
		"by code, less":        {rule, nothing, codes.OK, 1},
		"by code, as reserved": {rule, fails(codes.Unauthenticated), codes.Unauthenticated, 10},
		"settled, and by code": {both, settleOnce(t, 4), codes.OK, 4},
	}
}

// The 1 of the tap is part of the cost: the interceptor charges the rest, and a
// correction reaches both parts.
func TestOnce_ATapAndAnInterceptorChargeOneCost(t *testing.T) {
	for name, tt := range corrections(t) {
		t.Run(name, func(t *testing.T) {
			l, log := newLimiter(t, perAddress(100), perRequest(perAddress(100)))
			server := behindTap(t, l, tt.cfg, &service{unary: tt.handler})
			_, err := server.client(t, "{}").EmptyCall(t.Context(), empty)
			assert.Equal(t, tt.code, status.Code(err))
			server.GracefulStop()
			assert.Equal(t, map[string]int64{
				"per-address": 100 - tt.want, "requests": 98, // asking is a request
			}, log.remaining(t, l, log.latest()))
		})
	}
}

// behindTap starts a server whose calls meet the limiter at a tap and then at an
// interceptor, both by address.
func behindTap(
	t *testing.T, l *limiter.Limiter, cfg grpcinterceptor.Config, s *service,
) *running {
	t.Helper()
	guard := tapOf(t, l, keying.Addresses{}, grpcinterceptor.Config{})
	i := intercept(t, l, addresses, cfg)
	server := serve(t, "tcp", s, nil, append(chain(i), grpc.InTapHandle(guard.Handle))...)
	require.NoError(t, guard.Learn(server))
	require.NoError(t, i.Check(server))
	return server
}

func TestOnce_ATapsPartStandsIfTheRestIsRefused(t *testing.T) {
	for _, tt := range []struct {
		name     string
		capacity int64
		calls    int
		outcome  string
		wait     time.Duration // for the whole cost
		left     int64
	}{
		{"never", 9, 1, "never", 0, 8},
		{"deny", 12, 2, "deny", 9 * (30*time.Second + 100), 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := perAddress(1)
			b.Limit.Per, b.Limit.Burst = 30*time.Second+100, tt.capacity
			l, log := newLimiter(t, b)
			server := behindTap(t, l, grpcinterceptor.Config{Settles: true, Cost: ten}, &service{})
			client := server.client(t, "{}")
			var err error
			for range tt.calls {
				_, err = client.EmptyCall(t.Context(), empty)
			}
			require.Equal(t, codes.ResourceExhausted, status.Code(err))
			wait, waits := promised(err)
			assert.Equal(t, tt.wait, wait)
			assert.Equal(t, tt.wait > 0, waits)
			answers := log.answers()
			assert.Equal(t, []string{"allow", tt.outcome}, answers[len(answers)-2:])
			assert.EqualValues(t, tt.calls-1, server.handled.Load())
			assert.Equal(t, tt.left, log.remaining(t, l, log.latest())["per-address"])
		})
	}
}

func TestOnce_ATapsPartPaysOfTheFirstMessage(t *testing.T) {
	l, log := newLimiter(t, perAddress(100), perRequest(perAddress(100)))
	server := behindTap(t, l, byLength, &service{})
	_, _, err := converse(t.Context(), server.client(t, "{}"), 5, 3)
	require.NoError(t, err)
	assert.Equal(t, map[string]int64{"per-address": 92, "requests": 97},
		log.remaining(t, l, log.latest()))
}

// The label of a workload makes no second request, whichever interceptor reads it.
func TestOnce_TwoInterceptorsOfWhichOneReadsALabel(t *testing.T) {
	labels := grpcinterceptor.Config{Workloads: keying.Workloads{Header: "workload", Slots: 4}}
	for _, tt := range []struct {
		name         string
		outer, inner grpcinterceptor.Config
	}{
		{"the outer one", labels, grpcinterceptor.Config{}},
		{"the inner one", grpcinterceptor.Config{}, labels},
		{"both", labels, labels},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, log := newLimiter(t, perUser(limiter.PerHour(10)))
			client := start(t, "bufconn", chain(intercept(t, l, users, tt.outer),
				intercept(t, l, users, tt.inner))...).client(t, "{}")
			ctx := metadata.AppendToOutgoingContext(as(t, "alice"), "workload", "web")
			_, err := client.EmptyCall(ctx, empty)
			require.NoError(t, err)
			_, _, err = converse(ctx, client, 1, 1)
			require.NoError(t, err)
			assert.EqualValues(t, 8, left(t, l))
			assert.Equal(t, []string{"allow", "allow"}, log.answers())
		})
	}
}

// One Interceptor may stand in a chain twice, as by a base chain and one of a team.
func TestOnce_TheSameInterceptorTwice(t *testing.T) {
	for name, tt := range corrections(t) {
		t.Run(name, func(t *testing.T) {
			l, log := newLimiter(t, perUser(limiter.PerHour(100)))
			i := intercept(t, l, users, tt.cfg)
			client, stop := act(t, &service{unary: tt.handler}, i, i)
			_, err := client.EmptyCall(as(t, "alice"), empty)
			assert.Equal(t, tt.code, status.Code(err))
			stop()
			assert.Equal(t, 100-tt.want, left(t, l))
			assert.Equal(t, []string{"allow"}, log.answers())
		})
	}
}

// Whichever of two interceptors lets handlers settle, and whichever charges messages,
// Settle corrects each message.
func TestOnce_MessagesUnderTwoInterceptorsAreSettledEach(t *testing.T) {
	messages, settles, both := byLength, grpcinterceptor.Config{Settles: true}, byLength
	both.Settles = true
	for _, tt := range []struct {
		name         string
		outer, inner grpcinterceptor.Config
	}{
		{"both do both", both, both},
		{"the outer one settles", settles, messages},
		{"the inner one settles", messages, settles},
		{"the outer one does both", both, grpcinterceptor.Config{}},
		{"the inner one does both", grpcinterceptor.Config{}, both},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, log := newLimiter(t, perUser(limiter.PerHour(100)))
			settlesEachMessage(t, l, log, intercept(t, l, users, tt.outer), intercept(t, l, users, tt.inner))
		})
	}
	t.Run("one that is there twice", func(t *testing.T) {
		l, log := newLimiter(t, perUser(limiter.PerHour(100)))
		i := intercept(t, l, users, both)
		settlesEachMessage(t, l, log, i, i)
	})
}

// settlesEachMessage sends messages that cost 5, 6 and 7 and settles each to 2.
func settlesEachMessage(
	t *testing.T, l *limiter.Limiter, log *reports, is ...*grpcinterceptor.Interceptor,
) {
	t.Helper()
	client, stop := act(t, &service{stream: func(s conversation) error {
		for {
			if _, err := s.Recv(); err != nil {
				return nil
			}
			assert.NoError(t, grpcinterceptor.Settle(s.Context(), 2))
			assert.ErrorIs(t, grpcinterceptor.Settle(s.Context(), 2), limiter.ErrReceipt)
			if err := s.Send(response); err != nil {
				return err
			}
		}
	}}, is...)
	_, _, err := converse(as(t, "alice"), client, 5, 6, 7)
	require.NoError(t, err)
	stop()
	assert.EqualValues(t, 94, left(t, l))
	assert.Equal(t, map[string]int{"allow": 4}, log.count(), "the open and three messages")
}

// A rule corrects what its interceptor has charged, and what the outer one has.
func TestOnce_ARuleOfOneOfTwoInterceptorsCorrectsTheCost(t *testing.T) {
	one, all := grpcinterceptor.Config{}, grpcinterceptor.Config{Cost: ten}
	oneRule := grpcinterceptor.Config{ByCode: byCode}
	allRule := grpcinterceptor.Config{Cost: ten, ByCode: byCode}
	for _, tt := range []struct {
		name         string
		outer, inner grpcinterceptor.Config
		code         codes.Code
		want         int64
	}{
		{"outer rule and cost", allRule, one, codes.InvalidArgument, 9},
		{"inner rule, outer cost", all, oneRule, codes.InvalidArgument, 9},
		{"inner rule and cost", one, allRule, codes.InvalidArgument, 9},
		{"both", allRule, allRule, codes.InvalidArgument, 9},
		{"inner rule and cost, ok", one, allRule, codes.OK, 1},
		{"outer rule, inner cost, stands", oneRule, all, codes.Canceled, 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, log := newLimiter(t, perUser(limiter.PerHour(100)))
			client, stop := act(t, &service{unary: fails(tt.code)}, intercept(t, l, users, tt.outer),
				intercept(t, l, users, tt.inner))
			_, err := client.EmptyCall(as(t, "alice"), empty)
			assert.Equal(t, tt.code, status.Code(err))
			stop()
			assert.Equal(t, 100-tt.want, left(t, l))
			assert.Empty(t, log.warnings())
		})
	}
}

// A call that comes by net/http meets the middleware first. It is one request of one
// principal, and each adapter calls its route by another name.
func TestOnce_AMiddlewareAroundServeHTTP(t *testing.T) {
	for name, tt := range corrections(t) {
		t.Run(name, func(t *testing.T) {
			l, log := newLimiter(t, perUser(limiter.PerHour(100)),
				perRequest(perUser(limiter.PerHour(100))))
			server := behindMiddleware(t, l, middleware.Config{}, tt.cfg, &service{unary: tt.handler})
			_, err := server.client(t, "{}").EmptyCall(as(t, "alice"), empty)
			assert.Equal(t, tt.code, status.Code(err))
			assert.Equal(t, map[string]int64{"per-user": 100 - tt.want, "requests": 98},
				log.remaining(t, l, log.latest()))
			assert.Equal(t, report{"http", "/", "allow"}, log.all()[0])
		})
	}
}

// behindMiddleware starts a server behind ServeHTTP whose calls meet the limiter at a
// middleware and then at an interceptor, both by user.
func behindMiddleware(
	t *testing.T, l *limiter.Limiter, outer middleware.Config, inner grpcinterceptor.Config,
	s *service,
) *running {
	t.Helper()
	front := func(next http.Handler) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("/", next)
		mw, err := middleware.New(l, users, keying.Mux(mux), outer)
		require.NoError(t, err)
		limited := mw.Handler(mux)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			p := limiter.Principal{Kind: "user", ID: r.Header.Get("User")}
			limited.ServeHTTP(w, r.WithContext(keying.WithPrincipal(r.Context(), p)))
		})
	}
	return serve(t, "http+tcp", s, front, chain(intercept(t, l, users, inner))...)
}

func TestOnce_AMiddlewareAroundServeHTTPCountsEachCallOnce(t *testing.T) {
	l, log := newLimiter(t, perUser(limiter.PerHour(4)))
	server := behindMiddleware(t, l, middleware.Config{}, perMessage, &service{})
	client := server.client(t, "{}")
	_, err := client.EmptyCall(as(t, "alice"), empty)
	require.NoError(t, err)
	_, err = streams[0].use(as(t, "alice"), client)
	require.NoError(t, err)
	echoes, _, err := converse(as(t, "alice"), client, 1, 1, 1)
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	assert.Equal(t, 2, echoes, "the middleware has paid the open, and so the first message")
	_, err = client.EmptyCall(as(t, "alice"), empty)
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	_, err = client.EmptyCall(as(t, "bob"), empty)
	require.NoError(t, err)
	assert.Equal(t, []report{
		{"http", "/", "allow"},
		{"http", "/", "allow"},
		{"http", "/", "allow"},
		{"grpc", duplex, "allow"}, // the second message
		{"grpc", duplex, "deny"},
		{"http", "/", "deny"},
		{"http", "/", "allow"},
	}, log.all())
}

// The cost that the middleware has found counts if it is the higher one.
func TestOnce_AMiddlewareAroundServeHTTPThatCostsMore(t *testing.T) {
	l, log := newLimiter(t, perUser(limiter.PerHour(100)))
	server := behindMiddleware(t, l, middleware.Config{
		Cost: func(*http.Request) int64 { return 20 },
	}, grpcinterceptor.Config{Cost: ten, Settles: true}, &service{unary: settleOnce(t, 3)})
	_, err := server.client(t, "{}").EmptyCall(as(t, "alice"), empty)
	require.NoError(t, err)
	assert.EqualValues(t, 97, left(t, l))
	assert.Equal(t, []report{{"http", "/", "allow"}}, log.all())
}
