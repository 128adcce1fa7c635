package grpcinterceptor_test

import (
	"context"
	"crypto/rand"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ration-go/ration/grpcinterceptor"
)

// Whatever becomes of calls, their cost is what was reserved, or what the service
// has said.
func TestByCode_TheBooksBalanceWhateverBecomesOfCalls(t *testing.T) {
	goroutines := runtime.NumGoroutine()
	l, spent := spending(t)
	costs := map[string]int64{"ok": 1, "unauthenticated": 7, "invalid": 9, "settled": 4, "panics": 7,
		"leaves": 7, "too-late": 7}
	reached := map[string]*atomic.Int64{}
	var leaving sync.Map // from a call to what cancels it
	for user := range costs {
		reached[user] = new(atomic.Int64)
	}
	client, stop := act(t, &service{unary: func(ctx context.Context) error {
		user := metadata.ValueFromIncomingContext(ctx, "user")[0]
		reached[user].Add(1)
		switch user {
		case "unauthenticated":
			return status.Error(codes.Unauthenticated, "wrong password")
		case "invalid":
			return status.Error(codes.InvalidArgument, "nonsense")
		case "settled":
			return grpcinterceptor.Settle(ctx, 4)
		case "panics":
			panic("mistake")
		case "leaves":
			leave, _ := leaving.Load(metadata.ValueFromIncomingContext(ctx, "call")[0])
			leave.(context.CancelFunc)()
			<-ctx.Done()
		case "too-late":
			<-ctx.Done()
		}
		return nil
	}}, intercept(t, l, users, grpcinterceptor.Config{Cost: seven, Settles: true, ByCode: byCode}))
	n := 300
	if testing.Short() {
		n = 80
	}
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for range n / 8 {
				for user := range costs {
					ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(
						context.Background(), "user", user))
					switch user {
					case "leaves":
						call := rand.Text()
						leaving.Store(call, cancel)
						ctx = metadata.AppendToOutgoingContext(ctx, "call", call)
					case "too-late":
						ctx, cancel = context.WithTimeout(ctx, time.Millisecond)
					}
					_, _ = client.EmptyCall(ctx, empty)
					cancel()
				}
			}
		})
	}
	workers.Wait()
	stop()
	for user, cost := range costs {
		assert.Equal(t, reached[user].Load()*cost, spent(user), user)
	}
	assert.EqualValues(t, n/8*8, reached["leaves"].Load())
	assert.Eventually(t, func() bool { return runtime.NumGoroutine() <= goroutines+1 }, // its own
		10*time.Second, 10*time.Millisecond, "no goroutine is left behind")
}
