// Command grpc shows what a gRPC client sees of a limiter. It starts a server with TLS on
// a free local port. A client with a certificate is refused; it retries by its retry
// policy and succeeds; it makes a call whose deadline is too near to wait; it sends too
// many messages on a stream; and it calls methods that the server does not have.
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

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := run(ctx, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run starts the server, runs the client and stops the server.
func run(ctx context.Context, out io.Writer) error {
	ca, err := newAuthority()
	if err != nil {
		return err
	}
	address, stop, err := serve(ca)
	if err != nil {
		return err
	}
	defer stop()
	fmt.Fprintf(out, "serving example.Orders on %s, with TLS and client certificates\n", address)

	creds, err := ca.client("alice")
	if err != nil {
		return err
	}
	c := &client{out: out}
	if c.plain, err = dial(address, creds); err != nil {
		return err
	}
	defer c.plain.Close()
	if c.patient, err = dial(address, creds, grpc.WithDefaultServiceConfig(obeyPushback)); err != nil {
		return err
	}
	defer c.patient.Close()
	for _, play := range []func(context.Context) error{
		c.untilRefused, c.letIn, c.tooLate, c.converse, c.flood,
	} {
		if err := play(ctx); err != nil {
			return err
		}
	}
	return nil
}

// serve starts the server on a free port.
func serve(ca *authority) (address string, stop func(), err error) {
	creds, err := ca.server()
	if err != nil {
		return "", nil, err
	}
	server, err := newServer(creds)
	if err != nil {
		return "", nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	go func() { _ = server.Serve(listener) }()
	return listener.Addr().String(), server.Stop, nil
}

func dial(
	address string, creds credentials.TransportCredentials, opts ...grpc.DialOption,
) (*grpc.ClientConn, error) {
	return grpc.NewClient(address, append(opts, grpc.WithTransportCredentials(creds))...)
}
