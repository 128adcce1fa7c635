package grpcinterceptor_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ration-go/ration/grpcinterceptor"
	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
)

// A handler that charges by itself refuses as the interceptor does, and the client
// retries after the wait.
func TestRefuse_IsTheAnswerOfTheInterceptor(t *testing.T) {
	own, log := newThawing(t, perUser(soon))
	free, _ := newLimiter(t, perUser(limiter.PerSecond(100)))
	i := intercept(t, free, users, grpcinterceptor.Config{})
	s := &service{unary: func(ctx context.Context) error {
		caller, ok := keying.CallerFrom(ctx)
		require.True(t, ok)
		if d, err := own.Take(ctx, caller, 1); !d.Allowed() {
			log.denied()
			return i.Refuse(ctx, d, err)
		}
		return nil
	}}
	server := serve(t, "tcp", s, nil, chain(i)...)
	client := server.client(t, retrying)
	_, err := client.EmptyCall(as(t, "alice"), empty)
	require.NoError(t, err)
	_, err = client.EmptyCall(as(t, "alice"), empty)
	require.NoError(t, err)
	assert.EqualValues(t, 3, s.handled.Load(), "it came back once")
}

func TestStatus_SetsNoTrailer(t *testing.T) {
	l, _ := newLimiter(t, perUser(slow))
	i := intercept(t, l, users, grpcinterceptor.Config{Domain: "orders.example"})
	s := &service{unary: func(ctx context.Context) error {
		caller, _ := keying.CallerFrom(ctx)
		d, err := l.Take(ctx, caller, 1)
		return i.Status(ctx, d, err).Err()
	}}
	var trailer metadata.MD
	_, err := serve(t, "tcp", s, nil, chain(i)...).client(t, "{}").
		EmptyCall(as(t, "alice"), empty, grpc.Trailer(&trailer))
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	assert.NotContains(t, trailer, pushbackKey)
	info := errorInfo("RATE_LIMIT_EXCEEDED")
	info.Domain = "orders.example"
	assertDetails(t, err, retryAfter(30*time.Second+100), violation(&errdetails.QuotaFailure_Violation{
		Subject: "shared", Description: "the budget is used up",
	}), info)
}

func TestTrailers_TellProxiesAndCallersWhatTheyAskFor(t *testing.T) {
	l, _ := newLimiter(t, bucket(2))
	i := intercept(t, l, users, grpcinterceptor.Config{RetryAfter: true, Trailers: true,
		MaxPushback: time.Minute})
	client := start(t, "tcp", chain(i)...).client(t, "{}")
	for n, want := range []metadata.MD{
		{"x-ratelimit-limit": {"2"}, "x-ratelimit-remaining": {"1"}, "x-ratelimit-reset": {"31"}},
		{"x-ratelimit-limit": {"2"}, "x-ratelimit-remaining": {"0"}, "x-ratelimit-reset": {"61"}},
		{pushbackKey: {"30001"}, "retry-after": {"31"}},
	} {
		var header, trailer metadata.MD
		ctx := metadata.AppendToOutgoingContext(t.Context(), "user", "alice")
		_, err := client.EmptyCall(ctx, empty, grpc.Header(&header), grpc.Trailer(&trailer))
		assert.Equal(t, n == 2, err != nil)
		delete(trailer, "content-type")
		delete(trailer, "grpc-status-details-bin")
		assert.Equal(t, want, trailer)
		assert.NotContains(t, header, "x-ratelimit-limit")
	}
	stream, err := streams[0].use(as(t, "bob"), client)
	require.NoError(t, err)
	assert.Equal(t, []string{"1"}, stream["x-ratelimit-remaining"])
}

// trailers is the transport of a call that is made directly.
type trailers struct {
	grpc.ServerTransportStream
	md metadata.MD
}

func (s *trailers) SetTrailer(md metadata.MD) error {
	s.md = metadata.Join(s.md, md)
	return nil
}

// Thirty clients that come at once, to ten a second, need 50 attempts at the least.
func TestJitter_SpreadsClientsThatAreRefusedTogether(t *testing.T) {
	most := 0
	for run := range 100 {
		synctest.Test(t, func(t *testing.T) {
			store := limiter.Must(memstore.New(memstore.Config{}))
			l := limiter.Must(limiter.New(store, []limiter.Budget{{Name: "all",
				Limit: limiter.PerSecond(10)}}, limiter.Config{}))
			i := intercept(t, l, keying.Authenticated(keying.OrShared()), grpcinterceptor.Config{Jitter: 3 * time.Second})
			var mu sync.Mutex
			var clients sync.WaitGroup
			attempts := 0
			for range 30 {
				clients.Go(func() {
					for {
						s := &trailers{}
						ctx := grpc.NewContextWithServerTransportStream(t.Context(), s)
						_, err := i.Unary(ctx, empty, unaryInfo, unaryDone)
						mu.Lock()
						attempts++
						mu.Unlock()
						if err == nil {
							return
						}
						require.Len(t, s.md[pushbackKey], 1)
						ms, err := strconv.Atoi(s.md[pushbackKey][0])
						require.NoError(t, err)
						time.Sleep(time.Duration(ms) * time.Millisecond)
					}
				})
			}
			clients.Wait()
			most = max(most, attempts)
			assert.LessOrEqual(t, attempts, 60, fmt.Sprint("run ", run))
		})
	}
	t.Log("attempts, at most: ", most)
}

func TestJitter_IsOneDraw(t *testing.T) {
	l, _ := newLimiter(t, perUser(limiter.Limit{Tokens: 1, Per: 500 * time.Millisecond}))
	i := intercept(t, l, users, grpcinterceptor.Config{Jitter: time.Hour, RetryAfter: true})
	client := start(t, "bufconn", chain(i)...).client(t, "{}")
	_, err := client.EmptyCall(as(t, "alice"), empty)
	require.NoError(t, err)
	seen := map[time.Duration]bool{}
	for range 50 {
		var trailer metadata.MD
		_, err := client.EmptyCall(as(t, "alice"), empty, grpc.Trailer(&trailer))
		retry := status.Convert(err).Details()[0].(*errdetails.RetryInfo).GetRetryDelay().AsDuration()
		assert.GreaterOrEqual(t, retry, 500*time.Millisecond)
		assert.Less(t, retry, 10*time.Second, "the deadline of the call leaves room for the retry")
		assert.Equal(t, []string{strconv.FormatInt((retry + time.Millisecond - 1).Milliseconds(), 10)},
			trailer[pushbackKey])
		assert.Equal(t, []string{strconv.Itoa(int((retry + time.Second - 1) / time.Second))},
			trailer["retry-after"])
		seen[retry] = true
	}
	assert.Greater(t, len(seen), 40)
}
