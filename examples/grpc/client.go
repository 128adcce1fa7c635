package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// obeyPushback makes a client wait and retry automatically: it retries the listed codes
// after the pushback that the server sends, or after the backoff if it sends none.
const obeyPushback = `{"methodConfig": [{
	"name": [{"service": "example.Orders"}],
	"retryPolicy": {
		"maxAttempts": 4,
		"initialBackoff": "0.1s", "maxBackoff": "5s", "backoffMultiplier": 2,
		"retryableStatusCodes": ["RESOURCE_EXHAUSTED", "UNAVAILABLE"]
	}
}]}`

// client makes calls and prints the answers.
type client struct {
	out            io.Writer
	plain, patient *grpc.ClientConn // without and with the retry policy
}

// untilRefused calls List until the budget is used up, and prints the refusal.
func (c *client) untilRefused(ctx context.Context) error {
	for n := 1; ctx.Err() == nil; n++ {
		var trailer metadata.MD
		answer, err := call(ctx, c.plain, listMethod, grpc.Trailer(&trailer))
		if err != nil {
			c.show(fmt.Sprintf("list %d", n), err, trailer)
			return nil
		}
		fmt.Fprintf(c.out, "list %d: OK: %s\n", n, answer)
	}
	return ctx.Err()
}

// letIn makes the same call with the retry policy.
func (c *client) letIn(ctx context.Context) error {
	begin := time.Now()
	answer, err := call(ctx, c.patient, listMethod)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.out, "list with a retry policy: OK after %v: %s\n",
		time.Since(begin).Round(time.Millisecond), answer)
	return nil
}

// tooLate makes a call that would have to wait longer than its deadline. It is refused at
// once, in spite of the retry policy.
func (c *client) tooLate(ctx context.Context) error {
	if _, err := call(ctx, c.patient, exportMethod); err != nil {
		return err
	}
	var trailer metadata.MD
	_, err := call(ctx, c.patient, exportMethod, grpc.Trailer(&trailer))
	c.show("export 2, at once though with a retry policy", err, trailer)
	return nil
}

// converse sends messages on one stream until one is refused.
func (c *client) converse(ctx context.Context) error {
	desc := &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	stream, err := c.patient.NewStream(ctx, desc, editMethod)
	if err != nil {
		return err
	}
	for n := 1; ctx.Err() == nil; n++ {
		change := wrapperspb.String(fmt.Sprintf("change %d", n))
		if err := stream.SendMsg(change); err != nil && err != io.EOF {
			return err
		}
		answer := new(wrapperspb.StringValue)
		if err := stream.RecvMsg(answer); err != nil {
			c.show(fmt.Sprintf("message %d", n), err, stream.Trailer())
			return nil
		}
		fmt.Fprintf(c.out, "message %d: OK: %s\n", n, answer.GetValue())
	}
	return ctx.Err()
}

// flood calls methods that the server does not have, and then its health check.
func (c *client) flood(ctx context.Context) error {
	count := map[codes.Code]int{}
	for n := range 100 {
		_, err := call(ctx, c.plain, fmt.Sprintf("/made.up.Service/Method%d", n))
		count[status.Code(err)]++
	}
	fmt.Fprintf(c.out, "100 unknown methods: %d %v, %d %v\n",
		count[codes.Unimplemented], codes.Unimplemented,
		count[codes.ResourceExhausted], codes.ResourceExhausted)
	health, err := grpc_health_v1.NewHealthClient(c.plain).
		Check(ctx, new(grpc_health_v1.HealthCheckRequest))
	if err != nil {
		return err
	}
	fmt.Fprintf(c.out, "health, always free: %v\n", health.GetStatus())
	return nil
}

// show prints what a client sees of a refusal.
func (c *client) show(what string, err error, trailer metadata.MD) {
	refused := status.Convert(err)
	fmt.Fprintf(c.out, "%s: %v: %s\n", what, refused.Code(), refused.Message())
	for _, detail := range refused.Details() {
		if retry, ok := detail.(*errdetails.RetryInfo); ok {
			fmt.Fprintf(c.out, "  RetryInfo: %v\n", retry.GetRetryDelay().AsDuration())
		}
	}
	for _, pushback := range trailer["grpc-retry-pushback-ms"] {
		fmt.Fprintf(c.out, "  grpc-retry-pushback-ms: %s\n", pushback)
	}
}

func call(
	ctx context.Context, conn *grpc.ClientConn, method string, opts ...grpc.CallOption,
) (string, error) {
	answer := new(wrapperspb.StringValue)
	err := conn.Invoke(ctx, method, new(emptypb.Empty), answer, opts...)
	return answer.GetValue(), err
}
