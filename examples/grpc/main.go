// Command grpc shows what a gRPC client sees of a limiter: it starts a server on
// a free port of this machine, is refused, and is let in by its retry policy.
//
//	go run ./examples/grpc
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run starts the server, plays the client and stops the server.
func run(ctx context.Context, out io.Writer) error {
	server, err := newServer()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer server.Stop()
	go func() { _ = server.Serve(listener) }()

	address := listener.Addr().String()
	fmt.Fprintf(out, "serving %s on %s: 2 calls a second for each user\n", helloMethod, address)
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer alice-token")
	if err := untilRefused(ctx, out, address); err != nil {
		return err
	}
	return letIn(ctx, out, address)
}

// untilRefused calls until the budget is used up, and shows the refusal.
func untilRefused(ctx context.Context, out io.Writer, address string) error {
	conn, err := dial(address)
	if err != nil {
		return err
	}
	defer conn.Close()
	for n := 1; ; n++ {
		var trailer metadata.MD
		greeting, err := callHello(ctx, conn, grpc.Trailer(&trailer))
		if err == nil {
			fmt.Fprintf(out, "call %d: OK: %s\n", n, greeting)
			continue
		}
		refused := status.Convert(err)
		fmt.Fprintf(out, "call %d: %v: %s\n", n, refused.Code(), refused.Message())
		for _, detail := range refused.Details() {
			if retry, ok := detail.(*errdetails.RetryInfo); ok {
				fmt.Fprintf(out, "  RetryInfo: %v\n", retry.GetRetryDelay().AsDuration())
			}
		}
		for _, pushback := range trailer["grpc-retry-pushback-ms"] {
			fmt.Fprintf(out, "  grpc-retry-pushback-ms: %s\n", pushback)
		}
		return ctx.Err()
	}
}

// obeyPushback is all that a client needs to be let in by waiting: the listed
// code is retried when the server says so. The backoff is for servers that say
// nothing.
const obeyPushback = `{"methodConfig": [{
	"name": [{"service": "example.Greeter"}],
	"retryPolicy": {
		"maxAttempts": 4,
		"initialBackoff": "0.1s", "maxBackoff": "5s", "backoffMultiplier": 2,
		"retryableStatusCodes": ["RESOURCE_EXHAUSTED", "UNAVAILABLE"]
	}
}]}`

// letIn makes the same call with the retry policy.
func letIn(ctx context.Context, out io.Writer, address string) error {
	conn, err := dial(address, grpc.WithDefaultServiceConfig(obeyPushback))
	if err != nil {
		return err
	}
	defer conn.Close()
	begin := time.Now()
	greeting, err := callHello(ctx, conn)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "with a retry policy: OK after %v: %s\n",
		time.Since(begin).Round(time.Millisecond), greeting)
	return nil
}

func dial(address string, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	opts = append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))
	return grpc.NewClient(address, opts...)
}

func callHello(
	ctx context.Context, conn *grpc.ClientConn, opts ...grpc.CallOption,
) (string, error) {
	greeting := new(wrapperspb.StringValue)
	err := conn.Invoke(ctx, helloMethod, new(emptypb.Empty), greeting, opts...)
	return greeting.GetValue(), err
}
