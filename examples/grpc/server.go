package main

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ration-go/ration/grpcinterceptor"
	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
)

// newServer returns a server that lets each user greet twice a second.
func newServer() (*grpc.Server, error) {
	store, err := memstore.New(memstore.Config{})
	if err != nil {
		return nil, err
	}
	l, err := limiter.New(store, []limiter.Budget{{
		Name:  "per-user",
		Scope: limiter.ByPrincipal | limiter.ByRoute,
		Limit: limiter.PerSecond(2),
	}}, limiter.Config{})
	if err != nil {
		return nil, err
	}
	who := keying.Authenticated(keying.Refuse("Bearer"))
	limit, err := grpcinterceptor.New(l, who, grpcinterceptor.Config{Domain: "greeter.example"})
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer(
		// Authentication first: the limiter counts whom it has verified. A server
		// with streams adds grpc.ChainStreamInterceptor(..., limit.Stream).
		grpc.ChainUnaryInterceptor(authenticate, limit.Unary),
	)
	server.RegisterService(&greeter, struct{}{})
	return server, nil
}

var tokens = map[string]string{"Bearer alice-token": "alice", "Bearer bob-token": "bob"}

// authenticate stands for the service's own authentication. Callers that it does
// not know stay nobody, and the limiter refuses those.
func authenticate(
	ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	for _, token := range metadata.ValueFromIncomingContext(ctx, "authorization") {
		if user, ok := tokens[token]; ok {
			ctx = keying.WithPrincipal(ctx, limiter.Principal{Kind: "user", ID: user})
		}
	}
	return handler(ctx, req)
}

const helloMethod = "/example.Greeter/Hello"

// greeter is a service of one method, by hand where protoc would generate it.
var greeter = grpc.ServiceDesc{
	ServiceName: "example.Greeter",
	HandlerType: (*any)(nil),
	Methods:     []grpc.MethodDesc{{MethodName: "Hello", Handler: serveHello}},
}

func serveHello(
	srv any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor,
) (any, error) {
	req := new(emptypb.Empty)
	if err := decode(req); err != nil {
		return nil, err
	}
	info := &grpc.UnaryServerInfo{Server: srv, FullMethod: helloMethod}
	return interceptor(ctx, req, info, hello)
}

func hello(ctx context.Context, _ any) (any, error) {
	user, _ := keying.PrincipalFrom(ctx)
	return wrapperspb.String("hello, " + user.ID), nil
}
