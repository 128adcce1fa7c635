package grpcinterceptor_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ration-go/ration/grpcinterceptor"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/resilient"
)

// A denial by this process's share is a denial: RESOURCE_EXHAUSTED, not UNAVAILABLE.
func TestStoreFailure_ALocalDenialIsADenial(t *testing.T) {
	store := limiter.Must(resilient.New(fixed{err: errors.New("no route to host")}, newStore(nil),
		resilient.Config{Replicas: func() int { return 10 }}))
	budget := perUser(limiter.PerHour(3600))
	budget.Limit.Burst, budget.OnError = 10, limiter.Local
	l, log := limiterOver(t, store, budget)
	i := intercept(t, l, users, grpcinterceptor.Config{})
	server := start(t, "tcp", chain(i)...)
	client := server.client(t, "{}")
	_, err := client.EmptyCall(as(t, "alice"), empty)
	require.NoError(t, err)
	var trailer metadata.MD
	_, err = client.EmptyCall(as(t, "alice"), empty, grpc.Trailer(&trailer))
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	assert.Equal(t, []string{"1000"}, trailer[pushbackKey])
	assert.Equal(t, []string{"error_local", "error_local"}, log.answers())
}
