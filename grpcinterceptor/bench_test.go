package grpcinterceptor_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/ration-go/ration/grpcinterceptor"
	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
)

// nothing is the interceptor that others are compared with.
func nothing(
	ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	return handler(ctx, req)
}

// direct are interceptors to call directly, for allowed calls, and the context
// of such a call.
func direct(t testing.TB) []struct {
	name   string
	unary  grpc.UnaryServerInterceptor
	ctx    context.Context
	allocs float64 // beyond nothing, at most
} {
	l := limiter.Must(limiter.New(newStore(nil),
		[]limiter.Budget{perUser(limiter.PerSecond(1_000_000_000))}, limiter.Config{}))
	ctx := peer.NewContext(t.Context(),
		&peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(203, 0, 113, 7), Port: 50000}})
	ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("user-agent", "bench"))
	user := keying.WithPrincipal(ctx, alice)
	byUser := limiter.Must(grpcinterceptor.New(l, users, grpcinterceptor.Config{}))
	byAddress := limiter.Must(grpcinterceptor.New(l, keying.ByAddress(keying.Addresses{}),
		grpcinterceptor.Config{}))
	return []struct {
		name   string
		unary  grpc.UnaryServerInterceptor
		ctx    context.Context
		allocs float64
	}{
		{"caller=none", nothing, ctx, 0},
		{"caller=user", byUser.Unary, user, 1}, // the context that says who was charged
		{"caller=address", byAddress.Unary, ctx, 2},
	}
}

var (
	unaryInfo = &grpc.UnaryServerInfo{FullMethod: emptyCall}
	unaryDone = func(context.Context, any) (any, error) { return nil, nil }
)

// BenchmarkUnary is what the interceptor adds to an allowed call.
func BenchmarkUnary(b *testing.B) {
	for _, bb := range direct(b) {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := bb.unary(bb.ctx, empty, unaryInfo, unaryDone); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRefusal is what the interceptor takes to refuse a call.
func BenchmarkRefusal(b *testing.B) {
	for name, cfg := range map[string]grpcinterceptor.Config{
		"jitter=0": {}, "jitter=3s": {Jitter: 3 * time.Second},
	} {
		b.Run(name, func(b *testing.B) {
			l := limiter.Must(limiter.New(newStore(nil), []limiter.Budget{perUser(limiter.PerHour(1))},
				limiter.Config{}))
			i := limiter.Must(grpcinterceptor.New(l, users, cfg))
			ctx := grpc.NewContextWithServerTransportStream(keying.WithPrincipal(b.Context(), alice),
				discardTrailers{})
			_, _ = i.Unary(ctx, empty, unaryInfo, unaryDone)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := i.Unary(ctx, empty, unaryInfo, unaryDone); err == nil {
					b.Fatal("allowed")
				}
			}
		})
	}
}

type discardTrailers struct{ grpc.ServerTransportStream }

func (discardTrailers) SetTrailer(metadata.MD) error { return nil }

// BenchmarkMessages is what it costs to receive a message that is charged.
func BenchmarkMessages(b *testing.B) {
	l := limiter.Must(limiter.New(newStore(nil),
		[]limiter.Budget{perUser(limiter.PerSecond(1_000_000_000))}, limiter.Config{}))
	i := limiter.Must(grpcinterceptor.New(l, users, grpcinterceptor.Config{Messages: true}))
	stream := endless{ctx: keying.WithPrincipal(b.Context(), alice)}
	info := &grpc.StreamServerInfo{FullMethod: emptyCall}
	b.ReportAllocs()
	err := i.Stream(nil, stream, info, func(_ any, s grpc.ServerStream) (err error) {
		for b.Loop() && err == nil {
			err = s.RecvMsg(empty)
		}
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
}

// endless is a stream with one message after the other.
type endless struct {
	grpc.ServerStream
	ctx context.Context
}

func (s endless) Context() context.Context { return s.ctx }
func (s endless) RecvMsg(any) error        { return nil }

// allocations returns what f allocates at the least: under the race detector pools
// forget at times.
func allocations(f func()) float64 {
	least := testing.AllocsPerRun(1, f)
	for range 100 {
		least = min(least, testing.AllocsPerRun(1, f))
	}
	return least
}

func TestUnary_AllocatesLittle(t *testing.T) {
	for _, tt := range direct(t) {
		assert.LessOrEqual(t, allocations(func() {
			_, _ = tt.unary(tt.ctx, empty, unaryInfo, unaryDone)
		}), tt.allocs, tt.name)
	}
}
