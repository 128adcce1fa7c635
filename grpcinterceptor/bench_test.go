package grpcinterceptor_test

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/ration-go/ration/grpcinterceptor"
	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
)

// BenchmarkUnary calls the interceptor directly, for an allowed call: what it
// adds to a call beyond an interceptor that does nothing.
func BenchmarkUnary(b *testing.B) {
	store := limiter.Must(memstore.New(memstore.Config{}))
	l := limiter.Must(limiter.New(store,
		[]limiter.Budget{perUser(limiter.PerSecond(1_000_000_000))}, limiter.Config{}))
	ctx := peer.NewContext(context.Background(),
		&peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(203, 0, 113, 7), Port: 50000}})
	ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("user-agent", "bench"))
	user := keying.WithPrincipal(ctx, limiter.Principal{Kind: "user", ID: "alice"})
	info := &grpc.UnaryServerInfo{FullMethod: emptyCall}
	handler := func(context.Context, any) (any, error) { return nil, nil }
	for _, bb := range []struct {
		name string
		who  keying.Who
		ctx  context.Context
	}{
		{"caller=user", users, user},
		{"caller=address", keying.ByAddress(keying.Addresses{}), ctx},
	} {
		b.Run(bb.name, func(b *testing.B) {
			i := limiter.Must(grpcinterceptor.New(l, bb.who, grpcinterceptor.Config{}))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := i.Unary(bb.ctx, empty, info, handler); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
