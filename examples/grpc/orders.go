package main

import (
	"context"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ration-go/ration/keying"
)

const (
	listMethod   = "/example.Orders/List"
	exportMethod = "/example.Orders/Export"
	editMethod   = "/example.Orders/Edit"
)

// orders is a service of three methods, written by hand; protoc would generate it.
var orders = grpc.ServiceDesc{
	ServiceName: "example.Orders",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{
		{MethodName: "List", Handler: unary(listMethod, "three orders")},
		{MethodName: "Export", Handler: unary(exportMethod, "all orders")},
	},
	Streams: []grpc.StreamDesc{
		{StreamName: "Edit", Handler: edit, ServerStreams: true, ClientStreams: true},
	},
}

// unary returns the handler of a method that answers its caller with a text.
func unary(method, text string) grpc.MethodHandler {
	answer := func(ctx context.Context, _ any) (any, error) {
		caller, _ := keying.CallerFrom(ctx)
		return wrapperspb.String(text + " of " + caller.Principal.ID), nil
	}
	return func(
		srv any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor,
	) (any, error) {
		req := new(emptypb.Empty)
		if err := decode(req); err != nil {
			return nil, err
		}
		return intercept(ctx, req, &grpc.UnaryServerInfo{Server: srv, FullMethod: method}, answer)
	}
}

// edit answers each message. The interceptor charges messages in RecvMsg, which returns
// an error for a message that is refused; that ends the stream.
func edit(_ any, stream grpc.ServerStream) error {
	for {
		change := new(wrapperspb.StringValue)
		if err := stream.RecvMsg(change); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if err := stream.SendMsg(wrapperspb.String(change.GetValue() + " done")); err != nil {
			return err
		}
	}
}
