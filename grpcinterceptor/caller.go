package grpcinterceptor

import (
	"context"
	"errors"
	"log/slog"
	"net"

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
	from := i.origin(ctx)
	p, err := i.who.Principal(ctx, from)
	code, message := i.who.Misuse(ctx, from, err)
	if code != "" && i.callers.First(code) {
		i.limiter.Warn(ctx, code, message)
	}
	switch {
	case p.Kind == limiter.KindCertificate || errors.Is(err, keying.ErrInvalidPrincipal):
		i.nobody.Hit()
	case i.who.Expects() && i.nobody.Miss():
		i.limiter.Warn(ctx, "no-principal", "no call so far had a principal: the "+
			"authentication has to be outside the limiter and to call keying.WithPrincipal",
			slog.Int("calls", misuse.Patience))
	}
	return p, err
}

// origin returns where a call came from: the connection's address and state, and
// the metadata, which the caller writes and keying believes only of a proxy.
func (i *Interceptor) origin(ctx context.Context) (from keying.Origin) {
	if i.who.ReadsHeader() {
		from.Header = func(name string) []string {
			return metadata.ValueFromIncomingContext(ctx, name)
		}
	}
	p, ok := peer.FromContext(ctx)
	if !ok {
		return from
	}
	if p.Addr != nil {
		describe(&from, p)
	}
	if p.AuthInfo != nil {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			from.TLS = &info.State
		}
	}
	return from
}

// describe notes the address of a peer. The peers of (*grpc.Server).ServeHTTP
// claim the network "tcp" on every connection, so the local end decides for them.
func describe(from *keying.Origin, p *peer.Peer) {
	if addr, ok := p.Addr.(*net.TCPAddr); ok {
		from.Addr = addr.AddrPort().Addr()
		return
	}
	from.Remote, from.Network = p.Addr.String(), keying.NetworkOf(p.Addr)
	if from.Network == "tcp" && p.LocalAddr != nil {
		from.Network = keying.NetworkOf(p.LocalAddr)
	}
}

// mark is a context that says whom a limiter was asked about already. It is a
// context itself, rather than the value of one, to save an allocation.
type mark struct {
	context.Context
	limiter  *limiter.Limiter
	caller   limiter.Caller
	messages bool  // are charged already, or free
	held     *hold // nil where the cost is final
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

// asked returns the mark of a limiter that was asked about the caller in this
// call, further out, or nil.
func asked(ctx context.Context, l *limiter.Limiter, caller limiter.Caller) *mark {
	for {
		m, ok := ctx.Value(markKey{}).(*mark)
		if !ok {
			return nil
		}
		if m.limiter == l && m.caller == caller {
			return m
		}
		ctx = m.Context
	}
}
