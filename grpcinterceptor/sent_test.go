package grpcinterceptor_test

import (
	"context"
	"errors"
	"io"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ration-go/ration/grpcinterceptor"
	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
)

func costs(n int64) func(context.Context, string, any) int64 {
	return func(context.Context, string, any) int64 { return n }
}

// listen opens a stream, sends nothing, and returns how many messages came, and its end.
func listen(
	ctx context.Context, client grpc_testing.TestServiceClient,
) (messages int, trailer metadata.MD, err error) {
	stream, err := client.FullDuplexCall(ctx)
	if err != nil {
		return 0, nil, err
	}
	for {
		if _, err := stream.Recv(); err == io.EOF {
			return messages, stream.Trailer(), nil
		} else if err != nil {
			return messages, stream.Trailer(), err
		}
		messages++
	}
}

func TestSent_AStreamThatCannotPayEndsWithTheRefusal(t *testing.T) {
	send := func(s conversation) error { return s.Send(response) }
	charged := func(s conversation) error {
		if err := grpcinterceptor.Charge(s.Context(), 2); err != nil {
			return err
		}
		return s.Send(response)
	}
	for _, tt := range []struct {
		name     string
		cost     int64 // of a message
		send     func(conversation) error
		capacity int64
		messages int
	}{
		{"each-message", 1, send, 4, 3},
		{"by-cost", 3, send, 10, 3},
		{"by-the-handler", 0, charged, 8, 3},
		{"both", 1, charged, 10, 3},
		{"none", 5, send, 5, 0},
	} {
		for name, end := range map[string]func(error) error{
			"returns-it": func(err error) error { return err },
			"hides-it":   func(error) error { return nil },
			"own-error":  func(error) error { return status.Error(codes.NotFound, "x") },
		} {
			t.Run(tt.name+"/"+name, func(t *testing.T) {
				l, log := newLimiter(t, bucket(tt.capacity))
				i := intercept(t, l, users, grpcinterceptor.Config{SentCost: costs(tt.cost)})
				s := &service{stream: func(s conversation) error {
					for {
						if err := tt.send(s); err != nil {
							assert.Equal(t, codes.ResourceExhausted, status.Code(err))
							assert.Error(t, s.Context().Err())
							assert.Equal(t, err, context.Cause(s.Context()))
							assert.Equal(t, err, s.Send(response), "it stays refused")
							_, received := s.Recv()
							assert.Equal(t, err, received)
							assert.Equal(t, err, grpcinterceptor.Charge(s.Context(), 0))
							return end(err)
						}
					}
				}}
				client := serveDuplex(t, s, i)
				messages, trailer, err := listen(as(t, "alice"), client)
				assert.Equal(t, tt.messages, messages)
				require.Equal(t, codes.ResourceExhausted, status.Code(err))
				assert.Contains(t, status.Convert(err).Message(), "rate limit exceeded")
				assert.Equal(t, []string{"-1"}, trailer[pushbackKey])
				assert.EqualValues(t, 1, s.handled.Load())
				answers := log.answers()
				assert.Equal(t, "deny", answers[len(answers)-1])
			})
		}
	}
}

// serveDuplex serves s behind the interceptors, to a client with a retry policy.
func serveDuplex(
	t *testing.T, s *service, is ...*grpcinterceptor.Interceptor,
) grpc_testing.TestServiceClient {
	t.Helper()
	return serve(t, "bufconn", s, nil, chain(is...)...).client(t, retrying)
}

func TestSent_CostsBesidesTheOpenAndWhatIsReceived(t *testing.T) {
	l, _ := newLimiter(t, bucket(100))
	cfg := grpcinterceptor.Config{Messages: true, SentCost: costs(3)}
	i := intercept(t, l, users, cfg)
	echoes, _, err := converse(as(t, "alice"), serveDuplex(t, &service{}, i), 1, 1)
	require.NoError(t, err)
	assert.Equal(t, 2, echoes)
	assert.EqualValues(t, 100-2-2*3, left(t, l))

	echoes, _, err = converse(as(t, "alice"), serveDuplex(t, &service{}, i, i), 1, 1)
	require.NoError(t, err)
	assert.Equal(t, 2, echoes)
	assert.EqualValues(t, 100-2*(2+2*3), left(t, l), "two interceptors of one limiter charge once")
}

func TestSent_EachLimiterIsCharged(t *testing.T) {
	outer, _ := newLimiter(t, bucket(100))
	inner, _ := newLimiter(t, bucket(100))
	cfg := grpcinterceptor.Config{SentCost: costs(1)}
	s := &service{stream: func(s conversation) error {
		return errors.Join(s.Send(response), grpcinterceptor.Charge(s.Context(), 5))
	}}
	client := serveDuplex(t, s, intercept(t, outer, users, cfg), intercept(t, inner, users, cfg))
	_, _, err := listen(as(t, "alice"), client)
	require.NoError(t, err)
	assert.EqualValues(t, 93, left(t, outer))
	assert.EqualValues(t, 93, left(t, inner))
}

func TestCharge_IsFreeOnAFreeStreamAndAnErrorWithoutSentCost(t *testing.T) {
	for name, tt := range map[string]struct {
		cfg  grpcinterceptor.Config
		code codes.Code
		left int64
	}{
		"free": {grpcinterceptor.Config{SentCost: costs(1),
			Skip: func(context.Context, string) bool { return true }}, codes.OK, 100},
		"unset":    {grpcinterceptor.Config{Messages: true}, codes.Internal, 99},
		"negative": {grpcinterceptor.Config{SentCost: costs(-1)}, codes.Internal, 92},
	} {
		t.Run(name, func(t *testing.T) {
			l, _ := newLimiter(t, bucket(100))
			s := &service{stream: func(s conversation) error {
				if err := grpcinterceptor.Charge(s.Context(), 7); err != nil {
					return err
				}
				return s.Send(response)
			}}
			_, _, err := listen(as(t, "alice"), serveDuplex(t, s, intercept(t, l, users, tt.cfg)))
			assert.Equal(t, tt.code, status.Code(err), err)
			assert.Equal(t, tt.left, left(t, l))
		})
	}
	assert.Equal(t, codes.Internal, status.Code(grpcinterceptor.Charge(t.Context(), 1)))
}

// sink is a stream that takes all messages.
type sink struct {
	grpc.ServerStream
	ctx context.Context
}

func (s sink) Context() context.Context { return s.ctx }
func (s sink) SendMsg(any) error        { return nil }

func TestSent_AMessageAllocatesAtMostOnce(t *testing.T) {
	const messages = 100_000
	send := func(_ any, s grpc.ServerStream) error {
		for range messages {
			if err := s.SendMsg(empty); err != nil {
				return err
			}
		}
		return nil
	}
	generous := perUser(limiter.Limit{Tokens: 1_000_000_000, Per: 1, Burst: 1_000_000_000})
	l, err := limiter.New(newStore(nil), []limiter.Budget{generous}, limiter.Config{})
	require.NoError(t, err)
	i := intercept(t, l, users, grpcinterceptor.Config{SentCost: costs(1)})
	stream := sink{ctx: keying.WithPrincipal(t.Context(), alice)}
	info := &grpc.StreamServerInfo{FullMethod: duplex}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	require.NoError(t, i.Stream(nil, stream, info, send))
	runtime.ReadMemStats(&after)
	each := float64(after.Mallocs-before.Mallocs) / messages
	t.Logf("%.3f allocations a message", each)
	assert.LessOrEqual(t, each, mostAllocations)
}

func TestSettle_CorrectsNoSentMessage(t *testing.T) {
	for name, n := range map[string]int{"one": 1, "twice": 2} {
		t.Run(name, func(t *testing.T) {
			l, spent := spending(t)
			i := intercept(t, l, users, grpcinterceptor.Config{Messages: true, Settles: true,
				Cost: costs(100), SentCost: costs(1)})
			s := &service{stream: func(s conversation) error {
				for range 2 {
					if _, err := s.Recv(); err != nil {
						return err
					}
					if err := s.Send(response); err != nil {
						return err
					}
					if err := grpcinterceptor.Settle(s.Context(), 10); err != nil {
						return err
					}
				}
				return nil
			}}
			is := []*grpcinterceptor.Interceptor{i, i}[:n]
			_, _, err := converse(as(t, "alice"), serveDuplex(t, s, is...), 1, 1)
			require.NoError(t, err)
			assert.EqualValues(t, 2*10+2*1, spent("alice"))
		})
	}
}

func TestSettle_CorrectsTheOpenAlsoAfterASentMessage(t *testing.T) {
	l, spent := spending(t)
	i := intercept(t, l, users, grpcinterceptor.Config{Settles: true, SentCost: costs(5)})
	s := &service{stream: func(s conversation) error {
		if err := s.Send(response); err != nil {
			return err
		}
		return grpcinterceptor.Settle(s.Context(), 0)
	}}
	_, _, err := listen(as(t, "alice"), serveDuplex(t, s, i))
	require.NoError(t, err)
	assert.EqualValues(t, 5, spent("alice"))
}

func TestByCode_CorrectsNoStreamWithMessagesAlsoTwice(t *testing.T) {
	for name, cfg := range map[string]grpcinterceptor.Config{
		"received": {Messages: true}, "sent": {SentCost: costs(1)},
	} {
		cfg.ByCode = func(codes.Code, int64) int64 { return 0 }
		for n := 1; n <= 2; n++ {
			l, spent := spending(t)
			i := intercept(t, l, users, cfg)
			s := &service{stream: func(s conversation) error { return nil }}
			_, _, err := listen(as(t, "alice"), serveDuplex(t, s, []*grpcinterceptor.Interceptor{i, i}[:n]...))
			require.NoError(t, err)
			assert.EqualValues(t, 1, spent("alice"), name, n)
		}
	}
}
