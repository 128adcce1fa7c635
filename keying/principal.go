package keying

import (
	"context"
	"fmt"
	"strconv"

	"github.com/ration-go/ration/internal/kind"
	"github.com/ration-go/ration/limiter"
)

// The reserved kinds of principals, which only this package uses.
const (
	KindAddress     = kind.Address     // a network address
	KindCertificate = kind.Certificate // a verified client certificate
	KindShared      = kind.Shared      // the one account of all unauthenticated callers
)

type principalKey struct{}

// ErrInvalidPrincipal is the error for a request whose authentication called
// [WithPrincipal] with a principal that is not valid. It matches
// [limiter.ErrNobody], so adapters refuse the request as unauthenticated.
var ErrInvalidPrincipal = fmt.Errorf("keying: WithPrincipal was called with an empty Kind or ID, "+
	"or with a reserved Kind: %w", limiter.ErrNobody)

// WithPrincipal returns a context that carries the principal of an authenticated
// caller. The service's authentication calls it after it has verified the caller, and
// only then: the limiter charges the accounts of this principal.
//
// A principal is not valid if its Kind or ID is empty, or if its Kind is reserved
// (address, certificate, shared). The context then carries no principal, whatever it
// carried before, and a limiter that counts authenticated callers refuses the request
// with [ErrInvalidPrincipal]. It does not count the request by certificate, by address
// or with all others instead, because the service meant another account. For a
// caller without a principal, do not call WithPrincipal.
func WithPrincipal(ctx context.Context, p limiter.Principal) context.Context {
	if fault := faultOf(&p); fault != "" {
		return context.WithValue(ctx, principalKey{}, fault)
	}
	return context.WithValue(ctx, principalKey{}, &p)
}

// fault says what is wrong with a principal that is not valid. The context carries
// it in place of the principal.
type fault string

// faultOf returns "" for a valid principal.
func faultOf(p *limiter.Principal) fault {
	switch {
	case p.Kind == "" && p.ID == "":
		return "an empty Kind and an empty ID"
	case p.Kind == "":
		return "an empty Kind"
	case p.ID == "":
		return "an empty ID"
	case kind.Reserved(p.Kind):
		return fault("the reserved Kind " + strconv.Quote(p.Kind))
	default:
		return ""
	}
}

// PrincipalFrom returns the principal that [WithPrincipal] put into the context, and
// whether there is a valid one. It does not allocate.
func PrincipalFrom(ctx context.Context) (limiter.Principal, bool) {
	p, ok := ctx.Value(principalKey{}).(*limiter.Principal)
	if !ok {
		return limiter.Principal{}, false
	}
	return *p, true
}
