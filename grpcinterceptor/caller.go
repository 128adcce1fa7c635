package grpcinterceptor

import (
	"context"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
)

// origin returns where a call came from: the address of its connection, and its
// metadata, which the caller writes and keying believes only of a proxy.
func origin(ctx context.Context) keying.Origin {
	from := keying.Origin{Header: func(name string) []string {
		return metadata.ValueFromIncomingContext(ctx, name)
	}}
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		from.Remote = p.Addr.String()
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

// Value returns the mark itself for markKey.
func (m *mark) Value(key any) any {
	if key == (markKey{}) {
		return m
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
