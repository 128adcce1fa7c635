package grpcinterceptor_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/ration-go/ration/grpcinterceptor"
	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
)

// The server option is grpc.ChainUnaryInterceptor(authenticate, i.Unary); here
// the interceptor is called by hand, as for a user that was authenticated.
func ExampleNew() {
	store := limiter.Must(memstore.New(memstore.Config{}))
	l := limiter.Must(limiter.New(store, []limiter.Budget{
		{Name: "per-user", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(2)},
	}, limiter.Config{}))
	who := keying.Authenticated(keying.Refuse("Bearer"))
	i := limiter.Must(grpcinterceptor.New(l, who, grpcinterceptor.Config{}))

	alice := limiter.Principal{Kind: "user", ID: "alice"}
	ctx := keying.WithPrincipal(context.Background(), alice)
	info := &grpc.UnaryServerInfo{FullMethod: "/orders.v1.Orders/List"}
	list := func(context.Context, any) (any, error) { return "three orders", nil }
	for range 3 {
		answer, err := i.Unary(ctx, "list", info, list)
		fmt.Println(status.Code(err), answer)
	}
	// Output:
	// OK three orders
	// OK three orders
	// ResourceExhausted <nil>
}

func ExampleNewTap() {
	store := limiter.Must(memstore.New(memstore.Config{}))
	l := limiter.Must(limiter.New(store, []limiter.Budget{
		{Name: "unknown", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(2),
			Routes: []string{keying.Unmatched}},
	}, limiter.Config{Name: "guard"}))
	guard := limiter.Must(grpcinterceptor.NewTap(l, keying.Addresses{}, grpcinterceptor.Config{}))
	server := grpc.NewServer(grpc.InTapHandle(guard.Handle))
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	fmt.Println(guard.Learn(server))

	// The server would call the tap; here an address tries methods that do not exist.
	ctx := peer.NewContext(context.Background(), &peer.Peer{
		Addr: net.TCPAddrFromAddrPort(netip.MustParseAddrPort("203.0.113.7:50000")),
	})
	for _, method := range []string{"/a.B/C", "/a.B/D", "/a.B/E", "/grpc.health.v1.Health/Check"} {
		_, err := guard.Handle(ctx, &tap.Info{FullMethodName: method})
		fmt.Println(method, status.Code(err))
	}
	// Output:
	// <nil>
	// /a.B/C OK
	// /a.B/D OK
	// /a.B/E ResourceExhausted
	// /grpc.health.v1.Health/Check OK
}

// A list costs as many tokens as it has orders; 100 are reserved until it is
// known.
func ExampleSettle() {
	store := limiter.Must(memstore.New(memstore.Config{}))
	l := limiter.Must(limiter.New(store, []limiter.Budget{
		{Name: "orders", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(104)},
	}, limiter.Config{}))
	who := keying.Authenticated(keying.Refuse("Bearer"))
	i := limiter.Must(grpcinterceptor.New(l, who, grpcinterceptor.Config{
		Cost:    func(context.Context, string, any) int64 { return 100 },
		Settles: true,
	}))

	alice := limiter.Principal{Kind: "user", ID: "alice"}
	ctx := keying.WithPrincipal(context.Background(), alice)
	info := &grpc.UnaryServerInfo{FullMethod: "/orders.v1.Orders/List"}
	list := func(ctx context.Context, _ any) (any, error) {
		return "three orders", grpcinterceptor.Settle(ctx, 3)
	}
	for range 3 {
		answer, err := i.Unary(ctx, "list", info, list)
		fmt.Println(status.Code(err), answer)
	}
	// Output:
	// OK three orders
	// OK three orders
	// ResourceExhausted <nil>
}
