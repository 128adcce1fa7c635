package main

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/ration-go/ration/grpcinterceptor"
	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
)

// newServer returns a server that limits callers by their certificates, and by address
// the calls that no interceptor sees.
func newServer(creds credentials.TransportCredentials) (*grpc.Server, error) {
	store, err := memstore.New(memstore.Config{})
	if err != nil {
		return nil, err
	}
	calls, err := newInterceptor(store)
	if err != nil {
		return nil, err
	}
	guard, err := newTap(store)
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer(grpc.Creds(creds),
		// A unary call that never sends its message holds a goroutine, and no
		// interceptor sees it. The first option bounds such calls for each connection, and
		// the second for each address.
		grpc.MaxConcurrentStreams(100),
		grpc.InTapHandle(guard.Handle),
		// An authentication by tokens would come first in both chains.
		grpc.ChainUnaryInterceptor(calls.Unary),
		grpc.ChainStreamInterceptor(calls.Stream))
	server.RegisterService(&orders, struct{}{})
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())

	// All services are registered. Learn and Check return an error for a budget on a
	// method that does not exist.
	if err := guard.Learn(server); err != nil {
		return nil, err
	}
	return server, calls.Check(server)
}

// newInterceptor limits the calls and messages of each client.
func newInterceptor(store limiter.Store) (*grpcinterceptor.Interceptor, error) {
	l, err := limiter.New(store, []limiter.Budget{
		{Name: "lists", Scope: limiter.ByPrincipal, Limit: limiter.PerSecond(2),
			Routes: []string{listMethod}},
		{Name: "exports", Scope: limiter.ByPrincipal, Limit: limiter.PerMinute(1),
			Routes: []string{exportMethod}},
		{Name: "messages", Scope: limiter.ByPrincipal, Limit: limiter.PerMinute(3),
			Routes: []string{editMethod}},
	}, limiter.Config{Name: "calls"})
	if err != nil {
		return nil, err
	}
	who := keying.Authenticated(keying.Refuse("Certificate")).
		OrCertificate(keying.CertificateSubject)
	return grpcinterceptor.New(l, who, grpcinterceptor.Config{
		Messages: true, MaxPushback: 10 * time.Second, Domain: "orders.example",
	})
}

// newTap limits the calls that no interceptor sees: calls of unknown methods, and unary
// calls that never send a message.
func newTap(store limiter.Store) (*grpcinterceptor.Tap, error) {
	l, err := limiter.New(store, []limiter.Budget{
		{Name: "unknown", Scope: limiter.ByPrincipal, Limit: limiter.PerMinute(5),
			Routes: []string{keying.Unmatched}},
		{Name: "opens", Scope: limiter.ByPrincipal, Limit: limiter.PerSecond(200)},
	}, limiter.Config{Name: "guard"})
	if err != nil {
		return nil, err
	}
	return grpcinterceptor.NewTap(l, keying.Addresses{}, grpcinterceptor.Config{})
}
