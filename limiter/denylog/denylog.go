// Package denylog logs the requests that limiters refuse, with log/slog.
//
//	denials, err := denylog.New(denylog.Config{Principals: denylog.Hashed, Secret: secret})
//	...
//	l, err := limiter.New(store, budgets, limiter.Config{Observer: counts.And(denials)})
//
// A line says which limiter and budget refused, by which limit, on which route, how long
// the wait is, and, if the service chooses so, who was refused:
//
//	level=INFO msg="request refused" limiter=user budget=exports outcome=deny
//	  limit="1/1s burst=2" route="GET /v1/exports/{id}" cost=1 retry_after=1s
//	  principal.kind=user principal.id=alice
//
// The zero Config leaves out who was refused, since that is personal data. In any second
// there are at most Config.PerSecond lines. The next line says in left_out how many
// denials have none; if no denial follows, a line of its own says so after a second.
// Values are cut to 256 bytes, and slog's handlers escape them, so a caller can forge no
// line. A denial that is not logged costs no lock and no allocation.
package denylog

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/ration-go/ration/limiter"
)

// Principals says how lines name who was refused.
type Principals uint8

const (
	// LeaveOut names nobody: neither the principal nor the workload.
	LeaveOut Principals = iota
	// Hashed names them by a keyed hash; see [Hash]. The kind stays readable.
	Hashed
	// Plain names them as they are. Logs then have personal data in them.
	Plain
)

// Config is what is logged. The zero Config is usable.
type Config struct {
	// Logger receives the lines; nil means slog.Default().
	Logger *slog.Logger
	// Level is the level of the lines; zero is INFO.
	Level slog.Level
	// PerSecond is how many lines there are at most in any second, up to 10,000; zero
	// means 10.
	PerSecond int
	// Principals says how lines name who was refused; zero leaves it out.
	Principals Principals
	// Secret is the key of the hash, at least 16 bytes. Only Hashed needs it. Processes
	// with the same secret write the same hashes.
	Secret []byte
	// Shadow also logs what shadow budgets would have refused, with shadow=true.
	Shadow bool
}

const (
	maxPerSecond = 10_000
	minSecret    = 16 // bytes
)

// log is the observer.
type log struct {
	cfg  Config
	pace *pace
}

// New returns an Observer that logs denials. Any number of limiters may share it; they
// then share its lines, too. The error is a *[limiter.ConfigError] that names the field.
// It has no goroutine and nothing to close.
func New(cfg Config) (limiter.Observer, error) {
	if err := cfg.validate(); err != nil {
		return limiter.Observer{}, err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.PerSecond == 0 {
		cfg.PerSecond = 10
	}
	cfg.Secret = slices.Clone(cfg.Secret)
	l := &log{cfg: cfg}
	l.pace = newPace(cfg.PerSecond, l.tellLeftOut)
	return limiter.Observer{
		// A method value would copy each event once more.
		Decided: func(ctx context.Context, e limiter.DecisionEvent) { l.decided(ctx, &e) },
	}, nil
}

func (c *Config) validate() error {
	wrong := func(field string, value any, reason string) error {
		return &limiter.ConfigError{Package: "denylog", Field: "Config." + field, Value: value,
			Reason: reason}
	}
	switch {
	case c.Logger != nil && c.Logger.Handler() == nil:
		return wrong("Logger", nil, "want a logger made by slog.New, or nil")
	case c.PerSecond < 0 || c.PerSecond > maxPerSecond:
		return wrong("PerSecond", c.PerSecond, "want 1 to 10000, or 0 for 10")
	case c.Principals > Plain:
		return wrong("Principals", uint8(c.Principals), "want LeaveOut, Hashed or Plain")
	case c.Principals == Hashed && len(c.Secret) < minSecret:
		return wrong("Secret", nil, "want at least 16 random bytes, since Principals is Hashed")
	case c.Principals != Hashed && c.Secret != nil:
		return wrong("Secret", nil, "want none, since Principals is not Hashed")
	}
	return nil
}

// decided logs a decision that is a denial, and the shadow budgets that would have made
// it one.
func (l *log) decided(ctx context.Context, e *limiter.DecisionEvent) {
	if !e.Decision.Allowed() {
		l.write(ctx, func() []slog.Attr { return l.denial(e) })
	}
	if !l.cfg.Shadow || e.Err != nil {
		return
	}
	for i := range e.Charges {
		charge := &e.Charges[i]
		if charge.Shadow && charge.Result.Outcome > limiter.Allow {
			l.write(ctx, func() []slog.Attr { return l.shadow(e, charge) })
		}
	}
}

// write logs a line if there is room for one now.
func (l *log) write(ctx context.Context, attrs func() []slog.Attr) {
	if !l.cfg.Logger.Enabled(ctx, l.cfg.Level) {
		return
	}
	leftOut, admitted := l.pace.admit()
	if !admitted {
		return
	}
	all := attrs()
	if leftOut > 0 {
		all = append(all, slog.Int64("left_out", leftOut))
	}
	l.cfg.Logger.LogAttrs(ctx, l.cfg.Level, "request refused", all...)
}

// tellLeftOut says how many denials have no line, if none follows that could say it.
func (l *log) tellLeftOut(leftOut int64) {
	l.cfg.Logger.LogAttrs(context.Background(), l.cfg.Level, "requests refused, not logged",
		slog.Int64("left_out", leftOut))
}

// denial returns what a line says about a refused request.
func (l *log) denial(e *limiter.DecisionEvent) []slog.Attr {
	d := &e.Decision
	attrs := l.line(e, d.Budget, d.Limit, d.Outcome, d.RetryAfter, e.Cost)
	if failed, ok := errors.AsType[*limiter.StoreError](e.Err); ok {
		attrs = append(attrs, slog.String("store_error", cut(failed.Reason)))
	}
	return attrs
}

// shadow returns what a line says about a shadow budget that could not pay.
func (l *log) shadow(e *limiter.DecisionEvent, c *limiter.Charge) []slog.Attr {
	return append(l.line(e, c.Key.Budget, c.Limit, c.Result.Outcome, c.Result.RetryAfter, c.Cost),
		slog.Bool("shadow", true))
}

func (l *log) line(
	e *limiter.DecisionEvent, budget string, limit limiter.Limit, outcome limiter.Outcome,
	wait time.Duration, cost int64,
) []slog.Attr {
	attrs := make([]slog.Attr, 0, 12)
	attrs = append(attrs, slog.String("limiter", cut(e.Limiter)))
	if budget != "" { // Config.Gate and the failure policy are no budget's
		attrs = append(attrs, slog.String("budget", cut(budget)))
	}
	attrs = append(attrs, slog.String("outcome", outcome.String()))
	if limit != (limiter.Limit{}) {
		attrs = append(attrs, slog.String("limit", limit.String()))
	}
	attrs = append(attrs, slog.String("route", cut(e.Caller.Route)), slog.Int64("cost", cost))
	if wait > 0 {
		attrs = append(attrs, slog.Duration("retry_after", wait))
	}
	return l.name(attrs, &e.Caller)
}
