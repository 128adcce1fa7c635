package limiter

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// outage tells of a store that fails: at once, and then once a minute while it goes
// on.
type outage struct {
	untold atomic.Int64 // failures
	told   atomic.Int64 // when, in nanoseconds since the limiter was made; 0 is never
}

func (o *outage) warn(ctx context.Context, l *Limiter, err *StoreError) {
	o.untold.Add(1)
	told, now := o.told.Load(), int64(time.Since(l.made))+1
	if told != 0 && now-told < int64(time.Minute) || !o.told.CompareAndSwap(told, now) {
		return
	}
	l.Warn(ctx, "store-failed", "the store could not decide: OnError does",
		slog.Any("error", err), slog.Int64("failures", o.untold.Swap(0)))
}
