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
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ration-go/ration/grpcinterceptor"
	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
)

// gated returns a limiter of one call for each user, whose gate gives alice an answer,
// and what the gate was asked.
func gated(
	t *testing.T, answer limiter.GateResult,
) (l *limiter.Limiter, log *reports, asked *[]limiter.Caller) {
	t.Helper()
	asked = new([]limiter.Caller)
	l, log = limiterWith(t, limiter.Config{
		Gate: func(_ context.Context, c limiter.Caller) limiter.GateResult {
			*asked = append(*asked, c)
			if c.Principal == alice {
				return answer
			}
			return limiter.GateResult{}
		},
	}, newStore(standing), bucket(1))
	return l, log, asked
}

func TestGate_AnExemptCallIsFreeWithAllItsMessages(t *testing.T) {
	for _, tt := range []struct {
		name string
		is   func(i *grpcinterceptor.Interceptor) []*grpcinterceptor.Interceptor
	}{
		{"once", func(i *grpcinterceptor.Interceptor) []*grpcinterceptor.Interceptor {
			return []*grpcinterceptor.Interceptor{i}
		}},
		{"twice", func(i *grpcinterceptor.Interceptor) []*grpcinterceptor.Interceptor {
			return []*grpcinterceptor.Interceptor{i, i}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, log, asked := gated(t, limiter.GateResult{Exempt: true})
			cfg := byLength
			cfg.Settles = true
			i := intercept(t, l, users, cfg)
			client := start(t, "bufconn", chain(tt.is(i)...)...).client(t, "{}")

			echoes, _, err := converse(as(t, "alice"), client, 1, 5, 100)
			require.NoError(t, err)
			assert.Equal(t, 3, echoes)
			_, err = client.EmptyCall(as(t, "alice"), empty)
			require.NoError(t, err)
			_, err = client.EmptyCall(as(t, "bob"), empty)
			require.NoError(t, err)
			assert.Equal(t, []string{"skipped", "skipped", "allow"}, log.answers())
			assert.Equal(t, []limiter.Caller{
				{Principal: alice, Route: duplex},
				{Principal: alice, Route: emptyCall},
				{Principal: limiter.Principal{Kind: "user", ID: "bob"}, Route: emptyCall},
			}, *asked, "once a call")
		})
	}
}

func TestGate_ABlockedCallIsRefused(t *testing.T) {
	blocked := violation(&errdetails.QuotaFailure_Violation{
		Subject: "caller", Description: "the caller is blocked",
	})
	for _, tt := range []struct {
		name     string
		answer   limiter.GateResult
		outcome  string
		pushback string
		details  []proto.Message
	}{
		{"with an end", limiter.GateResult{Blocked: true, RetryAfter: 5 * time.Second}, "deny", "5000",
			[]proto.Message{retryAfter(5 * time.Second), blocked, errorInfo("CALLER_SUSPENDED")}},
		{"without an end", limiter.GateResult{Blocked: true}, "never", "-1",
			[]proto.Message{blocked, errorInfo("CALLER_BLOCKED")}},
	} {
		for _, kind := range streams {
			t.Run(tt.name+"/"+kind.name, func(t *testing.T) {
				l, log, _ := gated(t, tt.answer)
				server := start(t, "tcp", chain(intercept(t, l, users, perMessage))...)
				client := server.client(t, "{}")

				var trailer metadata.MD
				_, err := client.EmptyCall(as(t, "alice"), empty, grpc.Trailer(&trailer))
				require.Equal(t, codes.ResourceExhausted, status.Code(err))
				assertDetails(t, err, tt.details...)
				assert.Equal(t, []string{tt.pushback}, trailer[pushbackKey])

				trailer, err = kind.use(as(t, "alice"), client)
				require.Equal(t, codes.ResourceExhausted, status.Code(err))
				assertDetails(t, err, tt.details...)
				assert.Equal(t, []string{tt.pushback}, trailer[pushbackKey])
				assert.Zero(t, server.handled.Load())
				assert.Equal(t, []string{tt.outcome, tt.outcome}, log.answers())
			})
		}
	}
}

// A tap asks the gate, too, and an exempt call is free further in.
func TestGate_AnExemptCallPassesATap(t *testing.T) {
	l, log := limiterWith(t, limiter.Config{
		Gate: func(_ context.Context, c limiter.Caller) limiter.GateResult {
			return limiter.GateResult{Exempt: c.Principal.Kind == keying.KindAddress}
		},
	}, newStore(standing), perAddress(1))
	client := behindTap(t, l, perMessage, &service{}).client(t, "{}")
	for range 3 {
		_, _, err := converse(t.Context(), client, 1, 1, 1)
		require.NoError(t, err)
	}
	assert.Equal(t, map[string]int{"skipped": 3}, log.count())
}

// A budget that all callers share can say that the service is used up, rather than
// the caller's own budget.
func TestUnavailable_IsAnsweredAsSuch(t *testing.T) {
	for _, tt := range []struct {
		name   string
		public bool
		want   *errdetails.QuotaFailure_Violation
		info   map[string]string
	}{
		{"hidden", false, &errdetails.QuotaFailure_Violation{
			Subject: "shared", Description: "the budget is used up"}, nil},
		{"public", true, &errdetails.QuotaFailure_Violation{
			Subject: "budget:whole-service", Description: "the budget is used up",
			QuotaId: "whole-service", QuotaValue: 1}, map[string]string{"budget": "whole-service"}},
	} {
		for _, kind := range streams {
			t.Run(tt.name+"/"+kind.name, func(t *testing.T) {
				l, log := newLimiter(t, limiter.Budget{Name: "whole-service", Limit: slow,
					Unavailable: true, Public: tt.public})
				i := intercept(t, l, users, grpcinterceptor.Config{MaxPushback: time.Minute})
				client := start(t, "tcp", chain(i)...).client(t, "{}")
				ctx := metadata.AppendToOutgoingContext(t.Context(), "user", "alice")
				details := []proto.Message{retryAfter(30*time.Second + 100), violation(tt.want),
					&errdetails.ErrorInfo{Reason: "RATE_LIMIT_EXCEEDED", Domain: "ration",
						Metadata: tt.info}}

				_, err := client.EmptyCall(ctx, empty)
				require.NoError(t, err)
				var trailer metadata.MD
				_, err = client.EmptyCall(ctx, empty, grpc.Trailer(&trailer))
				require.Equal(t, codes.Unavailable, status.Code(err))
				assert.Equal(t, "the service is used up; retry in 30.001s", status.Convert(err).Message())
				assertDetails(t, err, details...)
				assert.Equal(t, []string{"30001"}, trailer[pushbackKey])

				trailer, err = kind.use(ctx, client)
				require.Equal(t, codes.Unavailable, status.Code(err))
				assertDetails(t, err, details...)
				assert.Equal(t, []string{"30001"}, trailer[pushbackKey])
				assert.Equal(t, []string{"allow", "deny", "deny"}, log.answers())
			})
		}
	}
}

// The caller's own budget is not the service.
func TestUnavailable_IsOfTheBudgetThatRefuses(t *testing.T) {
	l, _ := newLimiter(t, perUser(slow), limiter.Budget{Name: "whole-service",
		Limit: limiter.PerHour(9), Unavailable: true})
	client := start(t, "bufconn", chain(intercept(t, l, users, perMessage))...).client(t, "{}")
	_, err := client.EmptyCall(as(t, "alice"), empty)
	require.NoError(t, err)
	_, err = client.EmptyCall(as(t, "alice"), empty)
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
}

func TestUnavailable_AClientWithARetryPolicyWaitsThePushbackAndSucceeds(t *testing.T) {
	l, log := newThawing(t, limiter.Budget{Name: "whole-service", Unavailable: true,
		Limit: soon})
	client := start(t, "tcp", chain(intercept(t, l, users, grpcinterceptor.Config{}))...).
		client(t, retrying)
	for range 2 {
		_, err := client.EmptyCall(as(t, "alice"), empty)
		require.NoError(t, err)
	}
	assert.Equal(t, []string{"allow", "deny", "allow"}, log.answers())
}
