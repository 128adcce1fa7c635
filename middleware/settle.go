package middleware

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"

	"github.com/ration-go/ration/internal/settlement"
	"github.com/ration-go/ration/limiter"
)

// Settle says what a request really cost, in tokens: handlers call it with the
// request's context where Config.Settles. It corrects what Config.Cost reserved,
// down or up, in the accounts that paid it; budgets PerRequest keep their 1. More
// than was reserved is debited even below zero, and later requests wait for it.
//
// It works once, and until then what was reserved stands, whatever becomes of the
// request. ctx may have ended, and the handler may have returned. Where several
// limiters in a chain let handlers settle, one call settles all of them; in a
// request that a handler made up, those of that one only.
//
// A negative cost is a *[limiter.CostError] and settles nothing. The error is
// [limiter.ErrReceipt] where nothing was reserved or it is settled already, else
// the store's, and what was reserved stands.
func Settle(ctx context.Context, cost int64) error { return settlement.Settle(ctx, cost) }

// settles reports whether the cost of a request may be corrected later.
func (c *Config) settles() bool { return c.Settles || c.ByStatus != nil }

// settler is a reservation as handlers see it: it records whether they settled it.
type settler struct {
	held   *limiter.Reservation
	called atomic.Bool
}

// Settle settles the reservation.
func (s *settler) Settle(ctx context.Context, actual int64) error {
	s.called.Store(true)
	return s.held.Settle(ctx, actual)
}

// used reports whether a handler has called Settle; s is nil if none can.
func (s *settler) used() bool { return s != nil && s.called.Load() }

// run runs the handler of a request that has paid, or reserved, its cost.
func (m *Middleware) run(
	w http.ResponseWriter, r *http.Request, route string, next http.Handler,
	held *limiter.Reservation, cost int64,
) {
	var handlers *settler
	if m.cfg.Settles {
		handlers = &settler{held: held}
		given := r
		r = given.WithContext(settlement.With(given.Context(), identify(given), handlers))
		defer copyBack(given, r)
	}
	if m.cfg.ByStatus == nil {
		m.pass(w, r, route, next)
		return
	}
	// A panic skips the rest: an outer layer chooses the status.
	ctx := r.Context()
	sent := &recorder{inner: w}
	m.pass(sent.writer(), r, route, next)
	if ctx.Err() != nil {
		return
	}
	status, ok := sent.final()
	if !ok {
		if !handlers.used() {
			m.statusUnknown(ctx, sent)
		}
		return
	}
	err := held.Settle(ctx, m.cfg.ByStatus(status, cost))
	if err != nil && !errors.Is(err, limiter.ErrReceipt) { // the handler was first
		m.lost(ctx, err)
	}
}

// statusUnknown warns, once, that a handler has returned without a status of its
// own. An answer that was cut off, a connection that was taken over and an RPC are
// no mistakes of the service.
func (m *Middleware) statusUnknown(ctx context.Context, sent *recorder) {
	if sent.written() && !sent.twice || sent.lost || m.watch.unknown.Swap(true) {
		return
	}
	m.limiter.Warn(ctx, "status-unknown", "a handler returned without writing a status, or wrote "+
		"two: an outer handler may choose another, so ByStatus is not asked and the cost stands; "+
		"write one status inside the limiter, or use Settle")
}

// lost warns, once, that what a request has reserved could not be corrected.
func (m *Middleware) lost(ctx context.Context, err error) {
	if !m.watch.lost.Swap(true) {
		m.limiter.Warn(ctx, "settle-failed", "what a request really cost by its status could not "+
			"be booked: what was reserved stands", slog.Any("error", err))
	}
}
