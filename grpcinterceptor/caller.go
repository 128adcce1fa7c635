package grpcinterceptor

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/ration-go/ration/internal/callerkey"
	"github.com/ration-go/ration/internal/misuse"
	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
)

// principal returns who calls. Where a call came from is found out only if the
// authentication has named nobody.
func (i *Interceptor) principal(ctx context.Context) (limiter.Principal, error) {
	if p, ok := i.who.Named(ctx); ok {
		i.nobody.Hit()
		return p, nil
	}
	p, err := i.who.Principal(ctx, origin(ctx))
	switch {
	case p.Kind == limiter.KindCertificate:
		i.nobody.Hit()
	case i.who.Expects() && i.nobody.Miss():
		i.limiter.Warn(ctx, "no-principal", "no call so far had a principal: the "+
			"authentication has to be outside the limiter and to call keying.WithPrincipal",
			slog.Int("calls", misuse.Patience))
	}
	return p, err
}

// Check returns an error for a budget on a method that the server does not have,
// which would limit nothing: a *[limiter.ConfigError]. Call it once all services
// are registered, with the *grpc.Server. Routes of net/http, with a method or a
// wildcard, are not looked at, since a limiter may serve both.
func (i *Interceptor) Check(server interface {
	GetServiceInfo() map[string]grpc.ServiceInfo
}) error {
	known := slices.Clone(i.cfg.Methods)
	for service, info := range server.GetServiceInfo() {
		for _, method := range info.Methods {
			known = append(known, "/"+service+"/"+method.Name)
		}
	}
	for _, b := range i.limiter.Budgets() {
		for n, route := range b.Routes {
			if isFullMethod(route) && !strings.Contains(route, "{") && !slices.Contains(known, route) {
				return &limiter.ConfigError{Field: fmt.Sprintf("Budget %q.Routes[%d]", b.Name, n),
					Value: route, Reason: "want a method that the server has"}
			}
		}
	}
	return nil
}

// origin returns where a call came from: the connection's address and state, and
// the metadata, which the caller writes and keying believes only of a proxy.
func origin(ctx context.Context) keying.Origin {
	from := keying.Origin{Header: func(name string) []string {
		return metadata.ValueFromIncomingContext(ctx, name)
	}}
	p, ok := peer.FromContext(ctx)
	if !ok {
		return from
	}
	if p.Addr != nil {
		from.Remote = p.Addr.String()
	}
	if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
		from.TLS = &info.State
	}
	return from
}

// mark is a context that says whom a limiter was asked about already. It is a
// context itself, rather than the value of one, to save an allocation.
type mark struct {
	context.Context
	limiter *limiter.Limiter
	caller  limiter.Caller
}

type markKey struct{}

// Value returns the mark itself for markKey, and its caller for
// [keying.CallerFrom].
func (m *mark) Value(key any) any {
	switch key {
	case markKey{}:
		return m
	case callerkey.Key{}:
		return &m.caller
	}
	return m.Context.Value(key)
}

// asked reports whether l was asked about the caller in this call, further out.
func asked(ctx context.Context, l *limiter.Limiter, caller limiter.Caller) bool {
	for {
		m, ok := ctx.Value(markKey{}).(*mark)
		if !ok {
			return false
		}
		if m.limiter == l && m.caller == caller {
			return true
		}
		ctx = m.Context
	}
}
