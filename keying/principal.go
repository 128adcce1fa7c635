package keying

import (
	"context"
	"fmt"

	"github.com/ration-go/ration/limiter"
)

type principalKey struct{}

// ErrInvalidPrincipal is the error for a request whose authentication called
// [WithPrincipal] with a principal that is not valid. It matches
// [limiter.ErrNobody], so adapters refuse the request as one of nobody.
var ErrInvalidPrincipal = fmt.Errorf("keying: WithPrincipal was called with an empty Kind or ID, "+
	"or with a reserved Kind: %w", limiter.ErrNobody)

// WithPrincipal returns a context that carries the authenticated caller. The
// service's authentication calls it once it has verified who calls, and only
// then: what it puts here is whom the limiter counts.
//
// A principal with an empty Kind or ID, or of a kind that only this package may
// give (address, certificate, shared), is not valid. The context then carries
// nobody, whatever it carried before, and a limiter that counts authenticated
// callers refuses the request with [ErrInvalidPrincipal]: it counts the request
// neither by certificate, nor by address, nor with all the others, because the
// service meant another account. For a caller without a principal, do not call
// WithPrincipal.
func WithPrincipal(ctx context.Context, p limiter.Principal) context.Context {
	if p.Nobody() || reserved(p.Kind) {
		p = limiter.Principal{}
	}
	return context.WithValue(ctx, principalKey{}, &p)
}

func reserved(kind string) bool {
	return kind == limiter.KindAddress || kind == limiter.KindCertificate ||
		kind == limiter.KindShared
}

// PrincipalFrom returns the caller that [WithPrincipal] put into the context,
// and whether there is one. It does not allocate.
func PrincipalFrom(ctx context.Context) (limiter.Principal, bool) {
	p, _ := stated(ctx)
	return p, !p.Nobody()
}

// stated returns what WithPrincipal put into the context, nobody if that was not
// valid, and whether it was called.
func stated(ctx context.Context) (limiter.Principal, bool) {
	p, ok := ctx.Value(principalKey{}).(*limiter.Principal)
	if !ok {
		return limiter.Principal{}, false
	}
	return *p, true
}
