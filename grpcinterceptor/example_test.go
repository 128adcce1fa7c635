package grpcinterceptor_test

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

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
