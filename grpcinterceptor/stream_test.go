package grpcinterceptor_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ration-go/ration/grpcinterceptor"
	"github.com/ration-go/ration/limiter"
)

// streams are the three kinds; each opens one, uses it and returns its end.
var streams = []struct {
	name string
	use  func(context.Context, grpc_testing.TestServiceClient) (metadata.MD, error)
}{
	{"server", func(
		ctx context.Context, client grpc_testing.TestServiceClient,
	) (metadata.MD, error) {
		stream, err := client.StreamingOutputCall(ctx, &grpc_testing.StreamingOutputCallRequest{})
		if err != nil {
			return nil, err
		}
		return drain(stream, func() error { _, err := stream.Recv(); return err })
	}},
	{"client", func(
		ctx context.Context, client grpc_testing.TestServiceClient,
	) (metadata.MD, error) {
		stream, err := client.StreamingInputCall(ctx)
		if err != nil {
			return nil, err
		}
		if err := stream.Send(&grpc_testing.StreamingInputCallRequest{}); err != nil &&
			!errors.Is(err, io.EOF) {
			return nil, err
		}
		_, err = stream.CloseAndRecv()
		return stream.Trailer(), err
	}},
	{"bidirectional", func(
		ctx context.Context, client grpc_testing.TestServiceClient,
	) (metadata.MD, error) {
		stream, err := client.FullDuplexCall(ctx)
		if err != nil {
			return nil, err
		}
		err = stream.Send(&grpc_testing.StreamingOutputCallRequest{})
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if err := stream.CloseSend(); err != nil {
			return nil, err
		}
		return drain(stream, func() error { _, err := stream.Recv(); return err })
	}},
}

// drain receives until the end of a stream; io.EOF is a good one.
func drain(stream grpc.ClientStream, receive func() error) (metadata.MD, error) {
	for {
		if err := receive(); errors.Is(err, io.EOF) {
			return stream.Trailer(), nil
		} else if err != nil {
			return stream.Trailer(), err
		}
	}
}

func TestStream_IsChargedWhenItOpens(t *testing.T) {
	for _, network := range networks {
		for _, kind := range streams {
			t.Run(network+"/"+kind.name, func(t *testing.T) {
				l, log := newLimiter(t, perUser(slow))
				i := intercept(t, l, users, grpcinterceptor.Config{MaxPushback: time.Minute})
				server := start(t, network, chain(i)...)
				client := server.client(t, "{}")
				ctx := metadata.AppendToOutgoingContext(t.Context(), "user", "alice")

				_, err := kind.use(ctx, client)
				require.NoError(t, err)
				trailer, err := kind.use(ctx, client)

				require.Equal(t, codes.ResourceExhausted, status.Code(err))
				assertDetails(t, err, retryAfter(30*time.Second+100), perUserUsedUp,
					perUserExceeded)
				assert.Equal(t, []string{"30001"}, trailer[pushbackKey])
				assert.Equal(t, []string{"allow", "deny"},
					log.answers())
				assert.EqualValues(t, 1, server.handled.Load())
			})
		}
	}
}

func TestStream_AClientWithARetryPolicyWaitsThePushbackAndSucceeds(t *testing.T) {
	for _, kind := range streams {
		t.Run(kind.name, func(t *testing.T) {
			l, log := newThawing(t, perUser(soon))
			i := intercept(t, l, users, grpcinterceptor.Config{})
			client := start(t, "tcp", chain(i)...).client(t, retrying)

			_, err := kind.use(as(t, "alice"), client)
			require.NoError(t, err)
			_, err = kind.use(as(t, "alice"), client)
			require.NoError(t, err)
			assert.Equal(t, []string{
				"allow", "deny", "allow",
			}, log.answers())
		})
	}
}

func TestStream_ANearerDeadlineIsAnsweredAtOnce(t *testing.T) {
	for _, kind := range streams {
		t.Run(kind.name, func(t *testing.T) {
			l, log := newLimiter(t, perUser(limiter.Limit{Tokens: 1, Per: 20 * time.Second, Burst: 1}))
			i := intercept(t, l, users, grpcinterceptor.Config{})
			client := start(t, "tcp", chain(i)...).client(t, retrying)
			_, err := kind.use(as(t, "alice"), client) // which gives it 10 s
			require.NoError(t, err)
			trailer, err := kind.use(as(t, "alice"), client)
			require.Equal(t, codes.ResourceExhausted, status.Code(err))
			assertDetails(t, err, retryAfter(20*time.Second), perUserUsedUp, perUserExceeded)
			assert.Equal(t, []string{"-1"}, trailer[pushbackKey])
			assert.Equal(t, []string{"allow", "deny"}, log.answers())
		})
	}
}

func TestStream_MessagesOfAnOpenStreamAreFree(t *testing.T) {
	l, log := newLimiter(t, perUser(slow))
	i := intercept(t, l, users, grpcinterceptor.Config{})
	client := start(t, "bufconn", chain(i)...).client(t, "{}")
	stream, err := client.FullDuplexCall(as(t, "alice"))
	require.NoError(t, err)
	for range 100 {
		require.NoError(t, stream.Send(&grpc_testing.StreamingOutputCallRequest{}))
		_, err := stream.Recv()
		require.NoError(t, err)
	}
	assert.Equal(t, []report{{"grpc", duplex, "allow"}}, log.all())
}
