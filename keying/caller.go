package keying

import (
	"context"

	"github.com/ration-go/ration/internal/callerkey"
	"github.com/ration-go/ration/limiter"
)

// CallerFrom returns the caller that the innermost limiter has charged for the
// request, and whether there is one. It is for handlers that charge by themselves,
// such as for the messages of a websocket or the items of a batch:
//
//	caller, ok := keying.CallerFrom(ctx)
//	...
//	d, err := l.Take(ctx, caller, int64(len(batch.Items)))
//
// The limiter of the requests has already charged the request itself. Use another
// limiter for the items to keep the two apart.
//
// Package grpcinterceptor always provides the caller. Package middleware provides it
// if Config.Caller is set, also to Config.Denied and Config.Failed for a request that
// was refused. There is none for a request that was skipped. CallerFrom does not
// allocate.
func CallerFrom(ctx context.Context) (limiter.Caller, bool) {
	c, _ := ctx.Value(callerkey.Key{}).(*limiter.Caller)
	if c == nil || c.Principal.Nobody() {
		return limiter.Caller{}, false
	}
	return *c, true
}

// WithCaller returns a context in which [CallerFrom] finds the caller. It is for
// adapters that let a service answer a refused request; for an allowed one,
// [limiter.Adapter.Take] returns such a context.
func WithCaller(ctx context.Context, c limiter.Caller) context.Context {
	return context.WithValue(ctx, callerkey.Key{}, &c)
}
