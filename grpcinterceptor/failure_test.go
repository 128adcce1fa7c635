package grpcinterceptor_test

import (
	"context"
	"errors"
	"sync/atomic"
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
	"github.com/ration-go/ration/limiter/storekit"
)

// fixed is a store that gives every Take the same answer.
type fixed struct {
	decision limiter.Decision
	err      error
}

func (fixed) Check(l limiter.Limit) error { return l.Validate() }
func (f fixed) Take(context.Context, []limiter.Charge) (limiter.Decision, error) {
	return f.decision, f.err
}
func (f fixed) Peek(context.Context, []limiter.Charge) (limiter.Decision, error) {
	return f.decision, f.err
}
func (f fixed) Settle(context.Context, []limiter.Charge) error { return f.err }

func TestStoreFailure_FollowsThePolicy(t *testing.T) {
	// A store's own timeout is not the caller's, although the error says so.
	timeout := &limiter.StoreError{Reason: storekit.Timeout, Err: context.DeadlineExceeded}
	for _, kind := range streams {
		t.Run("closed/"+kind.name, func(t *testing.T) {
			l, log := limiterOver(t, fixed{err: timeout}, perUser(slow))
			i := intercept(t, l, users, grpcinterceptor.Config{})
			server := start(t, "tcp", chain(i)...)
			client := server.client(t, "{}")

			var trailer metadata.MD
			_, err := client.EmptyCall(as(t, "alice"), empty, grpc.Trailer(&trailer))
			require.Equal(t, codes.Unavailable, status.Code(err))
			assertDetails(t, err, retryAfter(time.Second), errorInfo("RATE_LIMITER_UNAVAILABLE"))
			assert.Equal(t, []string{"1000"}, trailer[pushbackKey])

			trailer, err = kind.use(as(t, "alice"), client)
			require.Equal(t, codes.Unavailable, status.Code(err))
			assertDetails(t, err, retryAfter(time.Second), errorInfo("RATE_LIMITER_UNAVAILABLE"))
			assert.Equal(t, []string{"1000"}, trailer[pushbackKey])
			assert.Zero(t, server.handled.Load())
			assert.Equal(t, []string{"error_closed", "error_closed"},
				log.answers())
		})
	}
	t.Run("open", func(t *testing.T) {
		budget := perUser(slow)
		budget.OnError = limiter.Open
		l, log := limiterOver(t, fixed{err: errors.New("no route to host")}, budget)
		i := intercept(t, l, users, grpcinterceptor.Config{})
		server := start(t, "tcp", chain(i)...)
		for range 3 {
			_, err := server.client(t, "{}").EmptyCall(as(t, "alice"), empty)
			require.NoError(t, err)
		}
		assert.EqualValues(t, 3, server.handled.Load())
		assert.Equal(t, []string{"error_open", "error_open",
			"error_open"}, log.answers())
	})
}

// recovering is a store that has failed once when it works.
type recovering struct {
	limiter.Store
	failed atomic.Bool
}

func (r *recovering) Take(
	ctx context.Context, charges []limiter.Charge,
) (limiter.Decision, error) {
	if !r.failed.Swap(true) {
		return limiter.Decision{}, errors.New("no route to host")
	}
	return r.Store.Take(ctx, charges)
}

func TestStoreFailure_AClientWithARetryPolicyComesBackLater(t *testing.T) {
	store := &recovering{Store: newStore(nil)}
	l, log := limiterOver(t, store, perUser(slow))
	i := intercept(t, l, users, grpcinterceptor.Config{})
	client := start(t, "tcp", chain(i)...).client(t, retrying)
	begin := time.Now()
	_, err := client.EmptyCall(as(t, "alice"), empty)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, time.Since(begin), time.Second)
	assert.Equal(t, []string{"error_closed", "allow"}, log.answers())
}

// A pushback of 0 would bring the client back at once.
func TestPushback_IsAtLeastAMillisecondWhateverTheStoreSays(t *testing.T) {
	store := fixed{decision: limiter.Decision{Outcome: limiter.Deny, Budget: "per-user"}}
	l, _ := limiterOver(t, store, perUser(slow))
	i := intercept(t, l, users, grpcinterceptor.Config{})
	var trailer metadata.MD
	_, err := start(t, "bufconn", chain(i)...).client(t, "{}").EmptyCall(as(t, "alice"), empty,
		grpc.Trailer(&trailer))
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	assert.Equal(t, []string{"1"}, trailer[pushbackKey])
}

// Called directly: over a connection the server's answer to a caller that has
// gone reaches nobody.
func TestCallerGone_KeepsItsOwnCode(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	for _, tt := range []struct {
		name string
		ctx  context.Context
		want codes.Code
	}{
		{"canceled", canceled, codes.Canceled},
		{"too late", late, codes.DeadlineExceeded},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, log := newLimiter(t, perUser(slow))
			i := intercept(t, l, users, grpcinterceptor.Config{})
			ctx := keying.WithPrincipal(tt.ctx, limiter.Principal{Kind: "user", ID: "alice"})
			_, err := i.Unary(ctx, empty, unaryInfo, unreachable(t))
			assert.Equal(t, tt.want, status.Code(err))
			assert.Empty(t, status.Convert(err).Details())
			assert.Equal(t, []string{"canceled"}, log.answers())
		})
	}
}

func unreachable(t *testing.T) grpc.UnaryHandler {
	return func(context.Context, any) (any, error) {
		t.Error("the handler ran")
		return nil, nil
	}
}

func TestACostBelowZeroIsInternalAndStatesNoWait(t *testing.T) {
	l, log := newLimiter(t, perUser(slow))
	i := intercept(t, l, users, grpcinterceptor.Config{
		Cost: func(context.Context, string, any) int64 { return -1 },
	})
	server := start(t, "tcp", chain(i)...)
	var trailer metadata.MD
	_, err := server.client(t, "{}").EmptyCall(as(t, "alice"), empty, grpc.Trailer(&trailer))
	assert.Equal(t, codes.Internal, status.Code(err))
	assertDetails(t, err, errorInfo("RATE_LIMITER_ERROR"))
	assert.Empty(t, trailer[pushbackKey])
	assert.Zero(t, server.handled.Load())
	assert.Equal(t, []string{"error_closed"}, log.answers())
}

func TestNew_NamesWhatIsWrong(t *testing.T) {
	l, _ := newLimiter(t, perUser(slow))
	tests := []struct {
		name  string
		l     *limiter.Limiter
		who   keying.Who
		cfg   grpcinterceptor.Config
		field string
	}{
		{"no limiter", nil, users, grpcinterceptor.Config{}, "Limiter"},
		{"no choice of callers", l, keying.Who{}, grpcinterceptor.Config{}, "Who"},
		{"negative pushback", l, users, grpcinterceptor.Config{MaxPushback: -1},
			"Config.MaxPushback"},
		{"a pushback that clients cannot read", l, users,
			grpcinterceptor.Config{MaxPushback: (1 << 31) * time.Millisecond},
			"Config.MaxPushback"},
		{"a domain that is not text", l, users, grpcinterceptor.Config{Domain: "\xff"},
			"Config.Domain"},
		{"a method without a slash", l, users,
			grpcinterceptor.Config{Methods: []string{emptyCall, "pkg.Service/Method"}},
			"Config.Methods[1]"},
		{"a method without a service", l, users,
			grpcinterceptor.Config{Methods: []string{"//Method"}}, "Config.Methods[0]"},
		{"a method that is a path", l, users,
			grpcinterceptor.Config{Methods: []string{"/a/b/c"}}, "Config.Methods[0]"},
		{"the zero limiter", &limiter.Limiter{}, users, grpcinterceptor.Config{}, "Limiter"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			i, err := grpcinterceptor.New(tt.l, tt.who, tt.cfg)
			assert.Nil(t, i)
			var config *limiter.ConfigError
			require.ErrorAs(t, err, &config)
			assert.Equal(t, tt.field, config.Field)
		})
	}
}

// The HTTP server of the standard library always sends a header frame first, so
// the client learns everything but does not retry.
func TestServeHTTP_AnswersTheClientWhoThenDoesNotRetry(t *testing.T) {
	l, log := newLimiter(t, perUser(soon))
	i := intercept(t, l, users, grpcinterceptor.Config{})
	client := start(t, "http+tcp", chain(i)...).client(t, retrying)

	_, err := client.EmptyCall(as(t, "alice"), empty)
	require.NoError(t, err)
	var trailer metadata.MD
	_, err = client.EmptyCall(as(t, "alice"), empty, grpc.Trailer(&trailer))
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	assertDetails(t, err, retryAfter(100*time.Millisecond), perUserUsedUp, perUserExceeded)
	assert.Equal(t, []string{"100"}, trailer[pushbackKey])
	assert.Equal(t, []string{"allow", "deny"}, log.answers())
}
