package keying

import (
	"context"

	"github.com/ration-go/ration/internal/callerkey"
	"github.com/ration-go/ration/limiter"
)

// CallerFrom returns the caller that the innermost limiter has charged for the
// request, and whether there is one: for handlers that charge by themselves, such
// as for the messages of a websocket or the items of a batch. Where the request
// was let pass unasked there is none. package grpcinterceptor always notes the
// caller, package middleware where its Config says so. It does not allocate.
//
//	caller, ok := keying.CallerFrom(ctx)
//	...
//	d, err := l.Take(ctx, caller, int64(len(batch.Items)))
//
// The limiter of the requests has already charged one token. A limiter of its
// own for items keeps the two apart.
func CallerFrom(ctx context.Context) (limiter.Caller, bool) {
	c, _ := ctx.Value(callerkey.Key{}).(*limiter.Caller)
	if c == nil || c.Principal.Nobody() {
		return limiter.Caller{}, false
	}
	return *c, true
}
