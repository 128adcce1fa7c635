package grpcinterceptor_test

import (
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
)

func TestChain_TwoLimitersGiveOnePushback(t *testing.T) {
	wide := limiter.PerHour(1000)
	for _, tt := range []struct {
		name         string
		outer, inner limiter.Limit
	}{
		{"the outer one refuses", slow, wide},
		{"the inner one refuses", wide, slow},
		{"both would refuse", slow, slow},
	} {
		for _, kind := range streams {
			t.Run(tt.name+"/"+kind.name, func(t *testing.T) {
				outer, _ := newLimiter(t, perUser(tt.outer))
				inner, _ := newLimiter(t, perUser(tt.inner))
				cfg := grpcinterceptor.Config{MaxPushback: time.Minute}
				client := start(t, "bufconn", chain(intercept(t, outer, users, cfg),
					intercept(t, inner, users, cfg))...).client(t, "{}")
				ctx := metadata.AppendToOutgoingContext(t.Context(), "user", "alice")

				_, err := client.EmptyCall(ctx, empty)
				require.NoError(t, err)
				var trailer metadata.MD
				_, err = client.EmptyCall(ctx, empty, grpc.Trailer(&trailer))
				assert.Equal(t, codes.ResourceExhausted, status.Code(err))
				assert.Equal(t, []string{"30001"}, trailer[pushbackKey])

				trailer, err = kind.use(ctx, client)
				assert.Equal(t, codes.ResourceExhausted, status.Code(err))
				assert.Equal(t, []string{"30001"}, trailer[pushbackKey])
			})
		}
	}
}

func TestChain_AClientRetriesThroughTwoLimiters(t *testing.T) {
	outer, _ := newLimiter(t, perUser(limiter.PerSecond(1000)))
	inner, log := newThawing(t, perUser(soon))
	client := start(t, "tcp", chain(
		intercept(t, outer, users, grpcinterceptor.Config{}),
		intercept(t, inner, users, grpcinterceptor.Config{}))...).client(t, retrying)
	for range 2 {
		_, err := client.EmptyCall(as(t, "alice"), empty)
		require.NoError(t, err)
	}
	assert.Equal(t, []string{
		"allow", "deny", "allow",
	}, log.answers())
}

func TestChain_OneLimiterTwiceChargesAndReportsACallOnce(t *testing.T) {
	l, log := newLimiter(t, perUser(limiter.PerHour(2)))
	server := start(t, "bufconn", chain(
		intercept(t, l, users, grpcinterceptor.Config{}),
		intercept(t, l, users, grpcinterceptor.Config{}))...)
	client := server.client(t, "{}")

	_, err := client.EmptyCall(as(t, "alice"), empty)
	require.NoError(t, err)
	_, err = streams[2].use(as(t, "alice"), client)
	require.NoError(t, err)
	_, err = client.EmptyCall(as(t, "alice"), empty)
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	checkHealth(t, server)
	assert.Equal(t, []string{
		"allow", "allow", "deny", "skipped",
	}, log.answers())
}

// Before the authentication the caller is an address, after it a user: two
// accounts of one budget, and both pay.
func TestChain_OneLimiterAroundTheAuthenticationChargesBothCallers(t *testing.T) {
	l, log := newLimiter(t, perUser(limiter.PerHour(2)))
	byAddress := intercept(t, l, keying.ByAddress(keying.Addresses{}), grpcinterceptor.Config{})
	byUser := intercept(t, l, users, grpcinterceptor.Config{})
	client := start(t, "tcp", grpc.ChainUnaryInterceptor(
		byAddress.Unary, authenticate, byUser.Unary)).client(t, "{}")

	for _, user := range []string{"alice", "bob"} {
		_, err := client.EmptyCall(as(t, user), empty)
		require.NoError(t, err)
	}
	_, err := client.EmptyCall(as(t, "carol"), empty)
	require.Equal(t, codes.ResourceExhausted, status.Code(err), "the address is used up")
	assert.Len(t, log.all(), 5)
}
