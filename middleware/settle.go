package middleware

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"

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

// run runs the handler of a request that has paid, or reserved, its cost.
func (m *Middleware) run(
	w http.ResponseWriter, r *http.Request, route string, next http.Handler,
	held *limiter.Reservation, cost int64,
) {
	if m.cfg.Settles {
		given := r
		r = given.WithContext(settlement.With(given.Context(), identify(given), held))
		defer func() { given.Pattern = r.Pattern }() // as if the mux had got it itself
	}
	if m.cfg.ByStatus == nil {
		m.pass(w, r, route, next)
		return
	}
	// What leaves by a panic is not settled: whoever answers then is further out.
	ctx := r.Context()
	sent := &recorder{inner: w}
	m.pass(sent.writer(), r, route, next)
	status, ok := sent.final()
	if !ok || ctx.Err() != nil || answersGRPC(w.Header()) {
		return
	}
	err := held.Settle(ctx, m.cfg.ByStatus(status, cost))
	if err != nil && !errors.Is(err, limiter.ErrReceipt) { // the handler was first
		m.lost(ctx, err)
	}
}

// answersGRPC reports whether the answer is one of gRPC, whose status says
// nothing. What the request says of itself is the caller's word.
func answersGRPC(h http.Header) bool {
	return strings.HasPrefix(h.Get("Content-Type"), "application/grpc")
}

// lost warns, once, that what a request has reserved could not be corrected.
func (m *Middleware) lost(ctx context.Context, err error) {
	if !m.watch.lost.Swap(true) {
		m.limiter.Warn(ctx, "settle-failed", "what a request really cost by its status could not "+
			"be booked: what was reserved stands", slog.Any("error", err))
	}
}
