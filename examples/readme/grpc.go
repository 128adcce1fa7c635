package main

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/ration-go/ration/grpcinterceptor"
	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
)

func newGRPCServer(limit *limiter.Limiter) (*grpc.Server, error) {
	// readme:grpc
	calls := limiter.Must(grpcinterceptor.New(limit,
		keying.Authenticated(keying.Refuse(`Bearer realm="api"`)), grpcinterceptor.Config{}))
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(authenticateCall, calls.Unary),
		grpc.ChainStreamInterceptor(authenticateStream, calls.Stream))
	// ... register your services, and then see that budgets name methods that exist
	err := calls.Check(server)
	// readme:end
	return server, err
}

func authenticateCall(
	ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	return handler(authenticated(ctx), req)
}

func authenticateStream(
	srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler,
) error {
	return handler(srv, &streamOf{stream, authenticated(stream.Context())})
}

// authenticated returns the context with the principal of its token, if it has one.
func authenticated(ctx context.Context) context.Context {
	for _, header := range metadata.ValueFromIncomingContext(ctx, "authorization") {
		if user, ok := verify(header); ok {
			return keying.WithPrincipal(ctx, limiter.Principal{Kind: "user", ID: user})
		}
	}
	return ctx
}

// streamOf is a stream with another context.
type streamOf struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *streamOf) Context() context.Context { return s.ctx }
