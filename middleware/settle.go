package middleware

import (
	"context"
	"errors"
	"net/http"

	"github.com/ration-go/ration/limiter"
)

// Settle states what a request really cost, in tokens. Handlers call it with the
// context of the request if Config.Settles is set. It is [limiter.Settle].
func Settle(ctx context.Context, cost int64) error { return limiter.Settle(ctx, cost) }

// settles reports whether the cost of a request may be corrected later.
func (c *Config) settles() bool { return c.Settles || c.ByStatus != nil }

// run runs the handler of an allowed request, and corrects the cost by the status.
func (m *Middleware) run(
	w http.ResponseWriter, r *http.Request, next http.Handler, req *limiter.Request,
) {
	var before served
	before.look(r, req)
	if m.cfg.ByStatus == nil || req.Skip {
		next.ServeHTTP(w, r)
		m.watchServed(r, &before, nil)
		return
	}
	// A panic skips the rest: the status is unknown.
	ctx := r.Context()
	sent := &recorder{inner: w}
	next.ServeHTTP(sent.writer(), r)
	m.watchServed(r, &before, m.correct(ctx, sent, req))
}

// correct settles a request by the status that was sent, if it is known and the
// handler has not called Settle. The error is errStatus, or why Settle failed.
func (m *Middleware) correct(ctx context.Context, sent *recorder, req *limiter.Request) error {
	if ctx.Err() != nil {
		return nil
	}
	status, err := sent.final()
	if status == 0 || req.Reservation == nil {
		return err
	}
	cost := m.cfg.ByStatus(status, req.Cost)
	if cost == req.Cost {
		return nil // what is reserved stands, also what another mount has added
	}
	err = req.Reservation.Settle(ctx, cost)
	if errors.Is(err, limiter.ErrReceipt) {
		return nil
	}
	return err
}
