package grpcinterceptor

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ration-go/ration/internal/settlement"
	"github.com/ration-go/ration/limiter"
)

// Settle says what a call really cost, in tokens: handlers call it with the
// call's context where [Config.Settles]. It corrects what Cost reserved, down or
// up, in the accounts that paid it; budgets PerRequest keep their 1. More than
// was reserved is debited even below zero, and later calls wait for it.
//
// It works once, and until then what was reserved stands, whatever becomes of the
// call. ctx may have ended, and the handler may have returned. A stream has
// reserved the 1 of its open; with [Config.Messages], Settle settles the message
// received last, once each, and those before it stand: before any is received, the
// open, which then pays nothing of the first. Where several limiters in
// a chain let handlers settle, one call settles all of them.
//
// A negative cost is a *[limiter.CostError] and settles nothing. The error is
// [limiter.ErrReceipt] where nothing was reserved or it is settled already, else
// the store's, and what was reserved stands.
func Settle(ctx context.Context, cost int64) error { return settlement.Settle(ctx, cost) }

// settles reports whether the cost of a call may be corrected later.
func (c Config) settles() bool { return c.Settles || c.ByCode != nil }

// hold is what a call has reserved so far and may settle.
type hold struct{ atomic.Pointer[reserved] }

// reserved is a cost and its reservation.
type reserved struct {
	*limiter.Reservation
	cost    int64
	open    *limiter.Reservation // has paid 1 of the cost, of a first message; or nil
	settled atomic.Bool
}

// Settle books the actual cost, and then no longer what the open has paid of it.
func (r *reserved) Settle(ctx context.Context, actual int64) error {
	err := r.Reservation.Settle(ctx, actual)
	if err != nil {
		return err
	}
	r.settled.Store(true)
	if r.open == nil {
		return nil
	}
	return r.open.Settle(ctx, 0)
}

// Settle settles what is held; see [Settle].
func (h *hold) Settle(ctx context.Context, actual int64) error {
	return h.Load().Settle(ctx, actual)
}

// take charges a caller, and returns what it has reserved where that was asked
// for, since the cost may be corrected.
func (i *Interceptor) take(
	ctx context.Context, c limiter.Caller, cost int64, reserve bool,
) (limiter.Decision, *limiter.Reservation, error) {
	if !reserve {
		d, err := i.limiter.Take(ctx, c, cost)
		return d, nil, err
	}
	r, err := i.limiter.Reserve(ctx, c, cost)
	return r.Decision, r, err
}

// hold makes the mark hold what the call has reserved.
func (m *mark) hold(r *limiter.Reservation, cost int64) {
	if r != nil {
		m.held = new(hold)
		m.held.Store(&reserved{Reservation: r, cost: cost})
	}
}

// within returns the context to run the handler of an admitted call in.
func (i *Interceptor) within(m *mark) context.Context {
	if m.held == nil || !i.cfg.Settles {
		return m
	}
	return settlement.With(m, m.caller.Route, m.held)
}

// settle settles a call by the code that its handler has returned, unless that
// may be the caller's doing. A panic does not come here.
func (i *Interceptor) settle(m *mark, err error) {
	if m.held == nil || i.cfg.ByCode == nil || m.Err() != nil {
		return
	}
	code := sent(err)
	if code == codes.Canceled || code == codes.DeadlineExceeded {
		return
	}
	err = m.held.Settle(m, i.cfg.ByCode(code, m.held.Load().cost))
	if err != nil && !errors.Is(err, limiter.ErrReceipt) && !i.lost.Swap(true) {
		i.limiter.Warn(m, "settle-failed", "what a call really cost by its code could not be "+
			"booked: what was reserved stands", slog.Any("error", err))
	}
}

// sent returns the code that grpc-go sends for the error of a handler.
func sent(err error) codes.Code {
	if s, ok := status.FromError(err); ok {
		return s.Code()
	}
	return status.FromContextError(err).Code()
}
