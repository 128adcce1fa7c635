// Command connect limits a service of Connect by net/http middleware, each procedure as a
// route of its own. Clients of Connect, gRPC and gRPC-Web are refused in their protocols:
//
//	go run .
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
	"github.com/ration-go/ration/middleware"
)

// Procedures of the service. Generated code has such constants.
const (
	service        = "/example.Orders/"
	getProcedure   = service + "Get"
	watchProcedure = service + "Watch"
)

func main() {
	if err := run(os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// orders answers the calls of the service.
func orders() http.Handler {
	get := func(_ context.Context, r *connect.Request[emptypb.Empty]) (
		*connect.Response[wrapperspb.StringValue], error,
	) {
		return connect.NewResponse(wrapperspb.String("an order")), nil
	}
	watch := func(
		_ context.Context, _ *connect.Request[emptypb.Empty],
		stream *connect.ServerStream[wrapperspb.StringValue],
	) error {
		return stream.Send(wrapperspb.String("an order"))
	}
	mux := http.NewServeMux()
	mux.Handle(getProcedure, connect.NewUnaryHandler(getProcedure, get,
		connect.WithIdempotency(connect.IdempotencyNoSideEffects)))
	mux.Handle(watchProcedure, connect.NewServerStreamHandler(watchProcedure, watch))
	return mux
}

// newHandler limits each procedure to a rate of its own, for each caller by address.
// now is nil, for the real clock.
func newHandler(
	orders http.Handler, now func() time.Time, budgets ...limiter.Budget,
) (http.Handler, error) {
	store, err := memstore.New(memstore.Config{Now: now})
	if err != nil {
		return nil, err
	}
	l, err := limiter.New(store, budgets, limiter.Config{})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle(service, orders)
	// A handler of Connect is mounted once for its service; only the names of its
	// procedures make them routes.
	route := keying.Procedures(keying.Mux(mux), getProcedure, watchProcedure)
	limit, err := middleware.New(l, keying.ByAddress(keying.Addresses{}), route,
		middleware.Config{Domain: "orders.example"})
	if err != nil {
		return nil, err
	}
	return limit.Handler(mux), limit.Check()
}

// perProcedure is a budget for each procedure, on all procedures of the service.
func perProcedure(limit limiter.Limit) limiter.Budget {
	return limiter.Budget{Name: "calls", Scope: limiter.ByPrincipal | limiter.ByRoute, Limit: limit,
		Routes: []string{service + "*"}}
}

// run calls each procedure until it is refused, waits as it is told, and calls again.
func run(out io.Writer) error {
	handler, err := newHandler(orders(), nil, perProcedure(limiter.Limit{Tokens: 5, Per: time.Second, Burst: 2}))
	if err != nil {
		return err
	}
	server := httptest.NewServer(handler)
	defer server.Close()
	client := connect.NewClient[emptypb.Empty, wrapperspb.StringValue](server.Client(),
		server.URL+getProcedure)
	for range 4 {
		answer, err := client.CallUnary(context.Background(), connect.NewRequest(&emptypb.Empty{}))
		if err == nil {
			fmt.Fprintln(out, answer.Msg.GetValue())
			continue
		}
		wait, ok := waitOf(err)
		if !ok {
			return err
		}
		fmt.Fprintln(out, "refused:", connect.CodeOf(err))
		time.Sleep(wait)
	}
	return nil
}

// waitOf returns the wait that a refusal states. Clients of Connect do not retry by
// themselves.
func waitOf(err error) (time.Duration, bool) {
	var refused *connect.Error
	if !errors.As(err, &refused) {
		return 0, false
	}
	for _, detail := range refused.Details() {
		value, err := detail.Value()
		if info, ok := value.(*errdetails.RetryInfo); ok && err == nil {
			return info.GetRetryDelay().AsDuration(), true
		}
	}
	return 0, false
}
