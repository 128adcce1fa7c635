package grpcinterceptor_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ration-go/ration/grpcinterceptor"
	"github.com/ration-go/ration/limiter"
)

const pushbackKey = "grpc-retry-pushback-ms"

var (
	empty    = &grpc_testing.Empty{}
	response = &grpc_testing.StreamingOutputCallResponse{}
)

// slow allows one call, and the next after 30.0000001 s.
var slow = limiter.Limit{Tokens: 1, Per: 30*time.Second + 100, Burst: 1}

// assertDetails compares the details of a status, in order.
func assertDetails(t *testing.T, err error, want ...proto.Message) {
	t.Helper()
	got := status.Convert(err).Details()
	require.Len(t, got, len(want))
	for i := range want {
		assert.Truef(t, proto.Equal(want[i], got[i].(proto.Message)),
			"detail %d:\nwant %v\ngot  %v", i, want[i], got[i])
	}
}

func retryAfter(d time.Duration) *errdetails.RetryInfo {
	return &errdetails.RetryInfo{RetryDelay: durationpb.New(d)}
}

// errorInfo has the budget as metadata, if there is one.
func errorInfo(reason string, budget ...string) *errdetails.ErrorInfo {
	info := &errdetails.ErrorInfo{Reason: reason, Domain: "ration"}
	for _, name := range budget {
		info.Metadata = map[string]string{"budget": name}
	}
	return info
}

func violation(v *errdetails.QuotaFailure_Violation) *errdetails.QuotaFailure {
	return &errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{v}}
}

var (
	perUserUsedUp = violation(&errdetails.QuotaFailure_Violation{
		Subject: "budget:per-user", Description: "the budget is used up",
		QuotaId: "per-user", QuotaValue: 1,
	})
	perUserExceeded = errorInfo("RATE_LIMIT_EXCEEDED", "per-user")
)

func TestUnary_RefusesWithEveryDetailAndDoesNotRunTheHandler(t *testing.T) {
	for _, network := range networks {
		t.Run(network, func(t *testing.T) {
			l, log := newLimiter(t, perUser(slow))
			i := intercept(t, l, users, grpcinterceptor.Config{MaxPushback: time.Minute})
			server := start(t, network, chain(i)...)
			client := server.client(t, "{}")
			ctx := metadata.AppendToOutgoingContext(t.Context(), "user", "alice-s3cret")

			_, err := client.EmptyCall(ctx, empty)
			require.NoError(t, err)
			var header, trailer metadata.MD
			_, err = client.EmptyCall(ctx, empty, grpc.Header(&header), grpc.Trailer(&trailer))

			require.Equal(t, codes.ResourceExhausted, status.Code(err))
			assertDetails(t, err, retryAfter(30*time.Second+100), perUserUsedUp, perUserExceeded)
			assert.Equal(t, []string{"30001"}, trailer[pushbackKey])
			assert.Empty(t, header[pushbackKey])
			assert.NotContains(t, status.Convert(err).Proto().String(), "s3cret")
			assert.EqualValues(t, 1, server.handled.Load())

			_, err = client.EmptyCall(as(t, "bob"), empty)
			require.NoError(t, err, "another user has an account of its own")
			assert.Equal(t, []report{
				{"grpc", emptyCall, "allow"},
				{"grpc", emptyCall, "deny"},
				{"grpc", emptyCall, "allow"},
			}, log.all())
		})
	}
}

// One attempt is refused and the next is allowed: had the client come a moment
// too early it would be refused twice, and by its own backoff it would come too
// late.
func TestUnary_AClientWithARetryPolicyWaitsThePushbackAndSucceeds(t *testing.T) {
	for _, network := range networks {
		t.Run(network, func(t *testing.T) {
			l, log := newThawing(t, perUser(soon))
			i := intercept(t, l, users, grpcinterceptor.Config{})
			server := start(t, network, chain(i)...)
			client := server.client(t, retrying)

			_, err := client.EmptyCall(as(t, "alice"), empty)
			require.NoError(t, err)
			begin := time.Now()
			_, err = client.EmptyCall(as(t, "alice"), empty)
			require.NoError(t, err)

			assert.Greater(t, time.Since(begin), 100*time.Millisecond)
			assert.Equal(t, []string{
				"allow", "deny", "allow",
			}, log.answers())
			assert.EqualValues(t, 2, server.handled.Load())
		})
	}
}

// A client that waited would end with DEADLINE_EXCEEDED.
func TestUnary_ANearerDeadlineIsAnsweredAtOnce(t *testing.T) {
	for _, network := range networks {
		t.Run(network, func(t *testing.T) {
			l, _ := newLimiter(t, perUser(limiter.Limit{Tokens: 1, Per: 20 * time.Second, Burst: 1}))
			i := intercept(t, l, users, grpcinterceptor.Config{})
			client := start(t, network, chain(i)...).client(t, retrying)

			_, err := client.EmptyCall(as(t, "alice"), empty)
			require.NoError(t, err)
			var trailer metadata.MD
			_, err = client.EmptyCall(as(t, "alice"), empty, grpc.Trailer(&trailer))

			require.Equal(t, codes.ResourceExhausted, status.Code(err))
			assertDetails(t, err, retryAfter(20*time.Second), perUserUsedUp, perUserExceeded)
			assert.Equal(t, []string{"-1"}, trailer[pushbackKey])
		})
	}
}

func TestUnary_Pushback(t *testing.T) {
	const ms = time.Millisecond
	tests := []struct {
		name     string
		wait     time.Duration
		deadline time.Duration // 0: none
		max      time.Duration
		want     string
	}{
		{"less than a millisecond", 1, 0, 0, "1"},
		{"whole milliseconds", 250 * ms, 0, 0, "250"},
		{"rounded up", 250*ms + 1, 0, 0, "251"},
		{"as long as the default allows", 30 * time.Second, 0, 0, "30000"},
		{"beyond the default", 30*time.Second + 1, 0, 0, "-1"},
		{"as long as Config allows", time.Hour, 0, time.Hour, "3600000"},
		{"beyond Config", 51 * ms, 0, 50 * ms, "-1"},
		{"the most that clients can read", 2147483647 * ms, 0, 2147483647 * ms, "2147483647"},
		{"before the deadline", time.Second, time.Minute, 0, "1000"},
		{"beyond the deadline", 20 * time.Second, 15 * time.Second, 0, "-1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l, _ := newLimiter(t, perUser(limiter.Limit{Tokens: 1, Per: tt.wait, Burst: 1}))
			i := intercept(t, l, users, grpcinterceptor.Config{MaxPushback: tt.max})
			client := start(t, "bufconn", chain(i)...).client(t, "{}")
			ctx := metadata.AppendToOutgoingContext(t.Context(), "user", "alice")
			if tt.deadline > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, tt.deadline)
				defer cancel()
			}

			_, err := client.EmptyCall(ctx, empty)
			require.NoError(t, err)
			var trailer metadata.MD
			_, err = client.EmptyCall(ctx, empty, grpc.Trailer(&trailer))

			assert.Equal(t, []string{tt.want}, trailer[pushbackKey])
			assertDetails(t, err, retryAfter(tt.wait), perUserUsedUp, perUserExceeded)
		})
	}
}

func TestUnary_NeverPromisesNoWait(t *testing.T) {
	blocked := perUser(slow)
	blocked.LimitFor = func(context.Context, limiter.Caller) limiter.Limit {
		return limiter.Blocked
	}
	tests := []struct {
		name        string
		budget      limiter.Budget
		cost        int64
		capacity    int64
		description string
		reason      string
	}{
		{"a cost above the capacity", perUser(slow), 2, 1,
			"the cost is above what the budget can ever hold", "COST_ABOVE_LIMIT"},
		{"a blocked caller", blocked, 1, 0, "the budget allows this caller nothing", "CALLER_BLOCKED"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l, log := newLimiter(t, tt.budget)
			i := intercept(t, l, users, grpcinterceptor.Config{
				Cost: func(context.Context, string, any) int64 { return tt.cost },
			})
			server := start(t, "bufconn", chain(i)...)

			var trailer metadata.MD
			_, err := server.client(t, retrying).EmptyCall(as(t, "alice"), empty,
				grpc.Trailer(&trailer))

			require.Equal(t, codes.ResourceExhausted, status.Code(err))
			assertDetails(t, err, violation(&errdetails.QuotaFailure_Violation{
				Subject: "budget:per-user", Description: tt.description,
				QuotaId: "per-user", QuotaValue: tt.capacity,
			}), errorInfo(tt.reason, "per-user"))
			assert.Equal(t, []string{"-1"}, trailer[pushbackKey])
			assert.Equal(t, []string{"never"}, log.answers())
			assert.Zero(t, server.handled.Load())
		})
	}
}

func TestUnary_TheCostComesFromTheMessage(t *testing.T) {
	l, _ := newLimiter(t, perUser(limiter.PerMinute(10)))
	i := intercept(t, l, users, grpcinterceptor.Config{
		Cost: func(_ context.Context, fullMethod string, req any) int64 {
			assert.Equal(t, unaryCall, fullMethod)
			return int64(req.(*grpc_testing.SimpleRequest).GetResponseSize())
		},
	})
	client := start(t, "bufconn", chain(i)...).client(t, "{}")
	for _, call := range []struct {
		size int32
		want codes.Code
	}{{7, codes.OK}, {4, codes.ResourceExhausted}, {3, codes.OK}, {0, codes.OK},
		{1, codes.ResourceExhausted}, {-1, codes.Internal}} {
		_, err := client.UnaryCall(as(t, "alice"),
			&grpc_testing.SimpleRequest{ResponseSize: call.size})
		assert.Equal(t, call.want, status.Code(err), "size %d", call.size)
	}
}

func TestUnary_ABudgetThatIsNotTheCallersOwnIsNamedOnlyIfPublic(t *testing.T) {
	tests := []struct {
		name   string
		public bool
		want   []proto.Message
	}{
		{"hidden", false, []proto.Message{
			retryAfter(30*time.Second + 100),
			violation(&errdetails.QuotaFailure_Violation{
				Subject: "shared", Description: "the budget is used up",
			}),
			&errdetails.ErrorInfo{Reason: "RATE_LIMIT_EXCEEDED", Domain: "orders.example"},
		}},
		{"public", true, []proto.Message{
			retryAfter(30*time.Second + 100),
			violation(&errdetails.QuotaFailure_Violation{
				Subject: "budget:whole-service", Description: "the budget is used up",
				QuotaId: "whole-service", QuotaValue: 1,
			}),
			&errdetails.ErrorInfo{Reason: "RATE_LIMIT_EXCEEDED", Domain: "orders.example",
				Metadata: map[string]string{"budget": "whole-service"}},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l, _ := newLimiter(t, limiter.Budget{Name: "whole-service", Limit: slow,
				Scope: limiter.ByRoute, Public: tt.public})
			i := intercept(t, l, users, grpcinterceptor.Config{Domain: "orders.example"})
			client := start(t, "bufconn", chain(i)...).client(t, "{}")

			_, err := client.EmptyCall(as(t, "alice"), empty)
			require.NoError(t, err)
			_, err = client.EmptyCall(as(t, "bob"), empty)
			assertDetails(t, err, tt.want...)
			if !tt.public {
				assert.NotContains(t, status.Convert(err).Proto().String(), "whole-service")
			}
		})
	}
}
