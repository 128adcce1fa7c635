package keying

import (
	"context"

	"github.com/ration-go/ration/limiter"
)

type principalKey struct{}

// WithPrincipal returns a context that carries the authenticated caller. The
// service's authentication calls it once it has verified who calls, and only
// then: what it puts here is whom the limiter counts.
//
// A principal with an empty Kind or ID, or of a kind that only this package may
// give (address, certificate, shared), is refused: the context then carries
// nobody, whatever it carried before, and the choice made for callers without a
// principal applies.
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
	p, _ := ctx.Value(principalKey{}).(*limiter.Principal)
	if p == nil || p.Nobody() {
		return limiter.Principal{}, false
	}
	return *p, true
}
