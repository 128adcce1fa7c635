package grpcinterceptor

import (
	"context"
	"errors"
	"log/slog"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/ration-go/ration/internal/misuse"
	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
)

// principal finds the caller. It looks at the connection only if the authentication
// has set no principal.
func (i *Interceptor) principal(ctx context.Context, p *limiter.Principal) (err error) {
	if named := i.who.Named(ctx); named != nil {
		i.nobody.Hit()
		*p = *named
		return nil
	}
	from := i.origin(ctx)
	*p, err = i.who.Principal(ctx, from)
	i.watchCaller(ctx, &from, p, err)
	return err
}

// watchCaller warns of an authentication that never sets a principal, and of
// certificates and addresses that identify nobody.
func (i *Interceptor) watchCaller(
	ctx context.Context, from *keying.Origin, p *limiter.Principal, err error,
) {
	code, message := i.who.Misuse(ctx, *from, err)
	if code != "" {
		i.warn(ctx, code, message)
	}
	switch {
	case p.Kind == keying.KindCertificate || errors.Is(err, keying.ErrInvalidPrincipal):
		i.nobody.Hit()
	case i.who.Expects() && i.nobody.Miss():
		i.warn(ctx, "no-principal", "no call so far had a principal: run the authentication "+
			"outside the limiter, and call keying.WithPrincipal in it",
			slog.Int("calls", misuse.Patience))
	}
}

// origin returns the address and TLS state of the connection, and the metadata. The
// caller writes the metadata; package keying trusts it only from a proxy.
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

// describe sets the address of a peer. Behind (*grpc.Server).ServeHTTP the remote
// address claims the network "tcp" on every connection, so the local address decides.
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
