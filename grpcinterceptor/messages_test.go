package grpcinterceptor_test

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
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

	"github.com/ration-go/ration/grpcinterceptor"
	"github.com/ration-go/ration/limiter"
)

// bucket refills a token in 30.0000001 s.
func bucket(capacity int64) limiter.Budget {
	return perUser(limiter.Limit{Tokens: 1, Per: 30*time.Second + 100, Burst: capacity})
}

func usedUp(capacity int64) *errdetails.QuotaFailure {
	return violation(&errdetails.QuotaFailure_Violation{
		Subject: "budget:per-user", Description: "the budget is used up",
		QuotaId: "per-user", QuotaValue: capacity,
	})
}

// byLength makes a message cost the length of its payload.
var byLength = grpcinterceptor.Config{
	Messages:    true,
	MaxPushback: time.Minute,
	Cost: func(_ context.Context, _ string, msg any) int64 {
		switch msg := msg.(type) {
		case *grpc_testing.StreamingInputCallRequest:
			return int64(len(msg.GetPayload().GetBody()))
		case *grpc_testing.StreamingOutputCallRequest:
			return int64(len(msg.GetPayload().GetBody()))
		default:
			return 1
		}
	},
}

var perMessage = grpcinterceptor.Config{Messages: true, MaxPushback: time.Minute}

// converse opens a bidirectional stream, sends a message of each length, waits
// for each echo, and returns how many came and the end of the stream.
func converse(
	ctx context.Context, client grpc_testing.TestServiceClient, lengths ...int,
) (echoes int, trailer metadata.MD, err error) {
	stream, err := client.FullDuplexCall(ctx)
	if err != nil {
		return 0, nil, err
	}
	for _, n := range lengths {
		err := stream.Send(&grpc_testing.StreamingOutputCallRequest{
			Payload: &grpc_testing.Payload{Body: make([]byte, n)},
		})
		if err != nil && !errors.Is(err, io.EOF) {
			return echoes, nil, err
		}
		if _, err := stream.Recv(); err != nil {
			return echoes, stream.Trailer(), err
		}
		echoes++
	}
	if err := stream.CloseSend(); err != nil {
		return echoes, nil, err
	}
	trailer, err = drain(stream, func() error { _, err := stream.Recv(); return err })
	return echoes, trailer, err
}

// upload sends n messages on a client stream.
func upload(
	ctx context.Context, client grpc_testing.TestServiceClient, n int,
) (metadata.MD, error) {
	stream, err := client.StreamingInputCall(ctx)
	if err != nil {
		return nil, err
	}
	for range n {
		err := stream.Send(&grpc_testing.StreamingInputCallRequest{})
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
	}
	_, err = stream.CloseAndRecv()
	return stream.Trailer(), err
}

// left returns what alice has left.
func left(t *testing.T, l *limiter.Limiter) int64 {
	t.Helper()
	d, err := l.Peek(t.Context(), alicesDuplex, 0)
	require.NoError(t, err)
	return d.Remaining
}

func TestMessages_AStreamThatHasSentMessagesEndsWithTheRefusal(t *testing.T) {
	for _, network := range append(networks, "http+tcp") {
		t.Run(network, func(t *testing.T) {
			l, log := newLimiter(t, bucket(3))
			server := start(t, network, chain(intercept(t, l, users, perMessage))...)

			echoes, trailer, err := converse(as(t, "alice"), server.client(t, retrying), 1, 1, 1, 1)
			assert.Equal(t, 3, echoes)
			require.Equal(t, codes.ResourceExhausted, status.Code(err))
			assertDetails(t, err, retryAfter(30*time.Second+100), usedUp(3), perUserExceeded)
			assert.Equal(t, []string{"-1"}, trailer[pushbackKey],
				"a retry would pay for three messages again")
			assert.Equal(t, []report{
				{"grpc", duplex, "allow"}, // the open, and the first message
				{"grpc", duplex, "allow"},
				{"grpc", duplex, "allow"},
				{"grpc", duplex, "deny"},
			}, log.all())
			assert.EqualValues(t, 1, server.handled.Load())
		})
	}
}

func TestMessages_AClientStreamEndsBeforeItsAnswer(t *testing.T) {
	l, _ := newLimiter(t, bucket(3))
	client := start(t, "tcp", chain(intercept(t, l, users, perMessage))...).client(t, retrying)
	trailer, err := upload(as(t, "alice"), client, 5)
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	assertDetails(t, err, retryAfter(30*time.Second+100), usedUp(3), perUserExceeded)
	assert.Equal(t, []string{"-1"}, trailer[pushbackKey])
}

// The end of a stream is no message, and the open pays for the first.
func TestMessages_AStreamCostsItsMessagesAndAtLeastOne(t *testing.T) {
	for n, want := range []int64{1, 1, 2, 3, 4} {
		l, _ := newLimiter(t, bucket(10))
		client := start(t, "bufconn", chain(intercept(t, l, users, perMessage))...).client(t, "{}")
		_, err := upload(as(t, "alice"), client, n)
		require.NoError(t, err)
		assert.Equal(t, 10-want, left(t, l), "%d messages", n)
	}
	t.Run("server", func(t *testing.T) {
		l, _ := newLimiter(t, bucket(10))
		client := start(t, "bufconn", chain(intercept(t, l, users, perMessage))...).client(t, "{}")
		for range 4 {
			_, err := streams[0].use(as(t, "alice"), client)
			require.NoError(t, err)
		}
		assert.EqualValues(t, 6, left(t, l), "a request each, as if it were unary")
	})
}

func TestMessages_TheCostComesFromEachMessage(t *testing.T) {
	for _, tt := range []struct {
		name    string
		lengths []int
		left    int64
		code    codes.Code
	}{
		{"the first is paid by the open", []int{1}, 9, codes.OK},
		{"nothing is paid twice", []int{4, 3}, 3, codes.OK},
		{"a free one costs the open", []int{0, 0, 0}, 9, codes.OK},
		{"all there is", []int{7, 0, 3}, 0, codes.OK},
		{"too much at once", []int{7, 4}, 3, codes.ResourceExhausted},
		{"more than can ever be costs the open", []int{11}, 9, codes.ResourceExhausted},
		{"all there is at once", []int{10}, 0, codes.OK},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, _ := newLimiter(t, bucket(10))
			i := intercept(t, l, users, byLength)
			client := start(t, "bufconn", chain(i)...).client(t, "{}")
			_, _, err := converse(as(t, "alice"), client, tt.lengths...)
			assert.Equal(t, tt.code, status.Code(err))
			assert.Equal(t, tt.left, left(t, l))
		})
	}
}

// The handler runs before the first message is known, so a caller who could get the
// open back by a message that cannot pay would run handlers for nothing.
func TestMessages_ARefusedFirstMessageStillCostsTheOpen(t *testing.T) {
	for name, tt := range map[string]struct {
		length   int
		used     int64 // by a request before
		requests int64 // the budget of them; 0: none
		ran      int
		settles  bool
	}{
		"never":                  {100, 0, 3, 3, false},
		"deny":                   {5, 1, 3, 2, false},
		"never-with-tokens-only": {100, 0, 0, 5, false},
		"deny-with-tokens-only":  {5, 1, 0, 4, false},
		"never-settles":          {100, 0, 3, 3, true},
		"deny-settles":           {5, 1, 3, 2, true},
	} {
		t.Run(name, func(t *testing.T) {
			budgets := []limiter.Budget{perUser(limiter.PerHour(5))}
			if tt.requests > 0 {
				b := perUser(limiter.PerHour(tt.requests))
				b.Name, b.PerRequest = "requests", true
				budgets = append(budgets, b)
			}
			l, _ := newLimiter(t, budgets...)
			if tt.used > 0 {
				_, err := l.Take(t.Context(), alicesDuplex, tt.used)
				require.NoError(t, err)
			}
			cfg := byLength
			cfg.Settles = tt.settles
			var ran atomic.Int64
			client, stop := act(t, &service{stream: func(s conversation) error {
				ran.Add(1)
				for range 3 {
					if err := s.Send(response); err != nil {
						return err
					}
				}
				_, err := s.Recv()
				return err
			}}, intercept(t, l, users, cfg))
			for range 40 {
				stream, err := client.FullDuplexCall(as(t, "alice"))
				require.NoError(t, err)
				err = stream.Send(&grpc_testing.StreamingOutputCallRequest{
					Payload: &grpc_testing.Payload{Body: make([]byte, tt.length)},
				})
				if err != nil {
					require.ErrorIs(t, err, io.EOF)
				}
				_, err = drain(stream, func() error { _, err := stream.Recv(); return err })
				require.Equal(t, codes.ResourceExhausted, status.Code(err))
			}
			stop()
			assert.EqualValues(t, tt.ran, ran.Load())
		})
	}
}

func TestMessages_AFirstOneAboveTheCapacityPromisesNoWait(t *testing.T) {
	l, log := newLimiter(t, bucket(5))
	client := start(t, "tcp", chain(intercept(t, l, users, byLength))...).client(t, retrying)
	// What the open has left unpaid, 5, is within the capacity; the message is not.
	_, trailer, err := converse(as(t, "alice"), client, 6)
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	assertDetails(t, err, violation(&errdetails.QuotaFailure_Violation{
		Subject: "budget:per-user", Description: "the cost is above what the budget can ever hold",
		QuotaId: "per-user", QuotaValue: 5,
	}), errorInfo("COST_ABOVE_LIMIT", "per-user"))
	assert.Equal(t, []string{"-1"}, trailer[pushbackKey])
	assert.Equal(t, []string{"allow", "never"}, log.answers())
}

// A retry sends the first message again, so its refusal says when: once at the
// open, which costs 1, and once at the message, when all of it can be paid.
func TestMessages_AClientWaitsForItsFirstMessageAndSucceeds(t *testing.T) {
	l, log := newThawing(t, perUser(limiter.Limit{Tokens: 20, Per: time.Second, Burst: 5}))
	client := start(t, "tcp", chain(intercept(t, l, users, byLength))...).client(t, retrying)

	_, _, err := converse(as(t, "alice"), client, 5)
	require.NoError(t, err)
	echoes, _, err := converse(as(t, "alice"), client, 5)
	require.NoError(t, err)
	assert.Equal(t, 1, echoes)
	assert.Equal(t, []string{
		"allow", "allow",
		"deny",
		"allow", "deny",
		"allow", "allow",
	}, log.answers())
}

// The open and the first message are one request, whatever its cost: else a budget
// of one request could never let such a stream pass.
func TestMessages_AreRequestsToBudgetsPerRequest(t *testing.T) {
	requests := bucket(3)
	requests.Name, requests.PerRequest = "requests", true
	for _, tt := range []struct {
		lengths []int
		echoes  int
		left    int64 // of a cost of 100
	}{
		{[]int{1, 1, 1, 1}, 3, 97},
		{[]int{0, 0, 0, 0}, 3, 99},
		{[]int{20, 20, 20, 20}, 3, 40},
		{[]int{100, 0, 0, 0}, 3, 0},
	} {
		l, log := newLimiter(t, requests, bucket(100))
		client := start(t, "bufconn", chain(intercept(t, l, users, byLength))...).client(t, "{}")
		echoes, _, err := converse(as(t, "alice"), client, tt.lengths...)
		assert.Equal(t, codes.ResourceExhausted, status.Code(err))
		assert.Equal(t, tt.echoes, echoes, tt.lengths)
		assert.Equal(t, tt.left, log.remaining(t, l, alicesDuplex)["per-user"], tt.lengths)
	}
}

func TestMessages_ACostBelowZeroIsInternal(t *testing.T) {
	l, log := newLimiter(t, bucket(5))
	i := intercept(t, l, users, grpcinterceptor.Config{
		Messages: true, Cost: func(context.Context, string, any) int64 { return -1 },
	})
	client := start(t, "tcp", chain(i)...).client(t, "{}")
	_, trailer, err := converse(as(t, "alice"), client, 1)
	assert.Equal(t, codes.Internal, status.Code(err))
	assert.Empty(t, trailer[pushbackKey])
	assert.EqualValues(t, 4, left(t, l))
	assert.Equal(t, []string{"allow", "error_closed"}, log.answers())
}

// deaf is a handler that takes no error for an answer: it goes on receiving and
// sending, and says at last that all went well.
func deaf(receives, sends chan<- error, done <-chan struct{}) grpc.StreamHandler {
	return func(_ any, stream grpc.ServerStream) error {
		for range 4 {
			receives <- stream.RecvMsg(new(grpc_testing.Empty))
		}
		<-stream.Context().Done()
		sends <- context.Cause(stream.Context())
		sends <- stream.SendMsg(empty)
		<-done
		return nil
	}
}

func TestMessages_AHandlerCannotIgnoreARefusal(t *testing.T) {
	l, _ := newLimiter(t, bucket(2))
	cfg := perMessage
	cfg.Methods = []string{"/deaf.Service/Method"}
	receives, sends, done := make(chan error, 4), make(chan error, 2), make(chan struct{})
	server := start(t, "tcp", append(chain(intercept(t, l, users, cfg)),
		grpc.UnknownServiceHandler(deaf(receives, sends, done)))...)
	stream, err := server.connect(t, "{}").NewStream(as(t, "alice"),
		&grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/deaf.Service/Method")
	require.NoError(t, err)
	for range 4 {
		require.NoError(t, stream.SendMsg(empty))
	}
	for _, want := range []codes.Code{codes.OK, codes.OK, codes.ResourceExhausted,
		codes.ResourceExhausted} {
		assert.Equal(t, want, status.Code(<-receives))
	}
	assert.Equal(t, codes.ResourceExhausted, status.Code(<-sends), "the cause of the context")
	assert.Equal(t, codes.ResourceExhausted, status.Code(<-sends))
	close(done)
	err = stream.RecvMsg(new(grpc_testing.Empty))
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	assertDetails(t, err, retryAfter(30*time.Second+100), usedUp(2), perUserExceeded)
	assert.Equal(t, []string{"-1"}, stream.Trailer()[pushbackKey])
}

func TestMessages_OfFreeCallsAreFree(t *testing.T) {
	l, log := newLimiter(t, bucket(1))
	cfg := perMessage
	cfg.Skip = func(_ context.Context, fullMethod string) bool { return fullMethod == duplex }
	client := start(t, "bufconn", chain(intercept(t, l, users, cfg))...).client(t, "{}")
	echoes, _, err := converse(as(t, "alice"), client, 1, 1, 1, 1, 1)
	require.NoError(t, err)
	assert.Equal(t, 5, echoes)
	assert.EqualValues(t, 1, left(t, l))
	assert.Equal(t, []string{"skipped"}, log.answers())
}

func TestMessages_OfOneLimiterTwiceAreChargedOnce(t *testing.T) {
	opens := grpcinterceptor.Config{}
	for _, tt := range []struct {
		name         string
		outer, inner grpcinterceptor.Config
		want         int64
	}{
		{"both", perMessage, perMessage, 6},
		{"the inner one", opens, perMessage, 6},
		{"the outer one", perMessage, opens, 6},
		{"none", opens, opens, 9},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, _ := newLimiter(t, bucket(10))
			other, _ := newLimiter(t, bucket(100))
			client := start(t, "bufconn", chain(intercept(t, l, users, tt.outer),
				intercept(t, other, users, perMessage),
				intercept(t, l, users, tt.inner))...).client(t, "{}")
			_, _, err := converse(as(t, "alice"), client, 1, 1, 1, 1)
			require.NoError(t, err)
			assert.Equal(t, tt.want, left(t, l))
			assert.EqualValues(t, 96, left(t, other))
		})
	}
}

func TestMessages_TwoLimitersGiveOnePushback(t *testing.T) {
	for _, tt := range []struct {
		name         string
		outer, inner int64
	}{{"the outer one refuses", 2, 9}, {"the inner one refuses", 9, 2}, {"both would", 2, 2}} {
		t.Run(tt.name, func(t *testing.T) {
			outer, _ := newLimiter(t, bucket(tt.outer))
			inner, _ := newLimiter(t, bucket(tt.inner))
			client := start(t, "tcp", chain(intercept(t, outer, users, perMessage),
				intercept(t, inner, users, perMessage))...).client(t, "{}")
			echoes, trailer, err := converse(as(t, "alice"), client, 1, 1, 1)
			assert.Equal(t, 2, echoes)
			require.Equal(t, codes.ResourceExhausted, status.Code(err))
			assertDetails(t, err, retryAfter(30*time.Second+100), usedUp(2), perUserExceeded)
			assert.Equal(t, []string{"-1"}, trailer[pushbackKey])
		})
	}
}

// failing is a store that works for some takes.
type failing struct {
	limiter.Store
	works atomic.Int64
}

func (f *failing) Take(
	ctx context.Context, charges []limiter.Charge,
) (limiter.Decision, error) {
	if f.works.Add(-1) < 0 {
		return limiter.Decision{}, errors.New("no route to host")
	}
	return f.Store.Take(ctx, charges)
}

func TestMessages_AStoreThatFailsMeanwhileIsAnsweredByThePolicy(t *testing.T) {
	for _, tt := range []struct {
		name   string
		policy limiter.FailurePolicy
		works  int64
		echoes int
		code   codes.Code
		push   []string
		last   string
	}{
		{"open", limiter.Open, 2, 3, codes.OK, nil, "error_open"},
		{"closed", limiter.Closed, 2, 1, codes.Unavailable, []string{"-1"}, "error_closed"},
		{"closed at the first message", limiter.Closed, 1, 0, codes.Unavailable, []string{"1000"}, "error_closed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			store := &failing{Store: newStore(standing)}
			store.works.Store(tt.works)
			b := bucket(100)
			b.OnError = tt.policy
			l, log := limiterOver(t, store, b)
			client := start(t, "bufconn", chain(intercept(t, l, users, byLength))...).client(t, "{}")
			echoes, trailer, err := converse(as(t, "alice"), client, 2, 2, 2)
			assert.Equal(t, tt.echoes, echoes)
			require.Equal(t, tt.code, status.Code(err))
			assert.Equal(t, tt.push, trailer[pushbackKey])
			answers := log.answers()
			assert.Equal(t, tt.last, answers[len(answers)-1])
			if err != nil {
				assertDetails(t, err, retryAfter(time.Second), errorInfo("RATE_LIMITER_UNAVAILABLE"))
			}
		})
	}
}
