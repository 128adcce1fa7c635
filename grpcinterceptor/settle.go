package grpcinterceptor

import (
	"context"
	"errors"
	"log/slog"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ration-go/ration/limiter"
)

// Settle states what a call really cost, in tokens. Handlers call it with the context of
// the call, if [Config.Settles] is set; it is [limiter.Settle].
//
// A stream has reserved 1 when it opened, and Settle corrects that. With
// [Config.Messages], it corrects the cost of the message received last, once for each
// message. Called before the first message, it corrects the open, which then pays
// nothing of the first message. What [Config.SentCost] and [Charge] have charged stands.
func Settle(ctx context.Context, cost int64) error { return limiter.Settle(ctx, cost) }

// settles reports whether the cost of a call may be corrected later.
func (c Config) settles() bool { return c.Settles || c.ByCode != nil }

// correct settles a call by the code that its handler returned. It has no effect if the
// handler has settled the call, or if the caller may have caused the code by leaving. It
// is not called after a panic.
func (i *Interceptor) correct(ctx context.Context, r *limiter.Request, err error) {
	if r.Reservation == nil || i.cfg.ByCode == nil || ctx.Err() != nil {
		return
	}
	code := sent(err)
	if code == codes.Canceled || code == codes.DeadlineExceeded {
		return
	}
	cost := i.cfg.ByCode(code, r.Cost)
	if cost == r.Cost {
		return // what is reserved stands, also what another interceptor has added
	}
	err = r.Reservation.Settle(ctx, cost)
	if err != nil && !errors.Is(err, limiter.ErrReceipt) {
		i.warn(ctx, "settle-failed", "the cost of a call could not be corrected by its code; "+
			"the reserved cost stands", slog.Any("error", err))
	}
}

// sent returns the code that grpc-go sends for the error of a handler.
func sent(err error) codes.Code {
	if s, ok := status.FromError(err); ok {
		return s.Code()
	}
	return status.FromContextError(err).Code()
}
