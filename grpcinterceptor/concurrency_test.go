package grpcinterceptor_test

import (
	"context"
	"sync"
	"sync/atomic"
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

type duplexStream = grpc.BidiStreamingClient[
	grpc_testing.StreamingOutputCallRequest, grpc_testing.StreamingOutputCallResponse,
]

// exchange sends a message and waits for its echo.
func exchange(stream duplexStream) error {
	// What is wrong with a stream is said by Recv.
	_ = stream.Send(&grpc_testing.StreamingOutputCallRequest{})
	_, err := stream.Recv()
	return err
}

// alone returns a context in which alice calls, for as long as it takes.
func alone(t *testing.T) context.Context {
	return metadata.AppendToOutgoingContext(t.Context(), "user", "alice")
}

// concurrently runs use n times at once.
func concurrently(n int, use func()) {
	var wg sync.WaitGroup
	for range n {
		wg.Go(use)
	}
	wg.Wait()
}

func TestStream_AThousandAreOpenAtOnceAndNoneMore(t *testing.T) {
	for _, network := range networks {
		t.Run(network, func(t *testing.T) {
			l, log := newLimiter(t, perUser(limiter.PerHour(1000)))
			server := start(t, network, chain(intercept(t, l, users, grpcinterceptor.Config{}))...)
			client := server.client(t, "{}")
			ctx, cancel := context.WithCancel(alone(t))
			defer cancel()

			var open, refused atomic.Int64
			concurrently(1200, func() {
				stream, err := client.FullDuplexCall(ctx)
				if err == nil {
					err = exchange(stream) // and leave it open
				}
				if err == nil {
					open.Add(1)
				} else if status.Code(err) == codes.ResourceExhausted {
					refused.Add(1)
				}
			})
			assert.EqualValues(t, 1000, open.Load())
			assert.EqualValues(t, 200, refused.Load())
			assert.EqualValues(t, 1000, server.handled.Load())
			assert.Equal(t, map[string]int{
				"allow": 1000, "deny": 200,
			}, log.count())
		})
	}
}

func TestMessages_OfAThousandStreamsSpendTheBudgetAndNoMore(t *testing.T) {
	l, log := newLimiter(t, perUser(limiter.PerHour(2000)))
	cfg := grpcinterceptor.Config{Messages: true}
	client := start(t, "tcp", chain(intercept(t, l, users, cfg))...).client(t, "{}")
	ctx := alone(t)

	var echoes, ended, others atomic.Int64
	concurrently(1000, func() {
		stream, err := client.FullDuplexCall(ctx)
		for n := 0; err == nil && n < 3; n++ {
			if err = exchange(stream); err == nil {
				echoes.Add(1)
			}
		}
		switch status.Code(err) {
		case codes.OK:
			_ = stream.CloseSend()
		case codes.ResourceExhausted:
			ended.Add(1)
		default:
			others.Add(1)
		}
	})
	assert.EqualValues(t, 2000, echoes.Load(), "each costs 1, the first of a stream its open")
	assert.EqualValues(t, map[string]int{
		"allow": 2000, "deny": int(ended.Load()),
	}, log.count())
	assert.Zero(t, others.Load())
}

// The client's own throttle, which counts the failures of a connection, goes
// before the pushback: it stops retries for a while, and loses no answer.
func TestUnary_AClientsRetryThrottlingGoesBeforePushback(t *testing.T) {
	for _, tt := range []struct {
		name, throttle string
		attempts       []int // of each call
	}{
		{"none", ``, []int{4, 4, 4}},
		{"four failures", `,"retryThrottling":{"maxTokens":4,"tokenRatio":0.5}`, []int{2, 1, 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, log := newLimiter(t, perUser(limiter.Limit{Tokens: 1, Per: time.Millisecond, Burst: 1}))
			i := intercept(t, l, users, grpcinterceptor.Config{})
			client := start(t, "tcp", chain(i)...).client(t,
				retrying[:len(retrying)-1]+tt.throttle+`}`)
			ctx := as(t, "alice")
			_, err := client.EmptyCall(ctx, empty)
			require.NoError(t, err)
			var attempts []int
			for range tt.attempts {
				before := len(log.all())
				_, err := client.EmptyCall(ctx, empty)
				require.Equal(t, codes.ResourceExhausted, status.Code(err))
				assertDetails(t, err, retryAfter(time.Millisecond), perUserUsedUp, perUserExceeded)
				attempts = append(attempts, len(log.all())-before)
			}
			assert.Equal(t, tt.attempts, attempts)
		})
	}
}
