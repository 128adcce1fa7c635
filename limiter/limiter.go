package limiter

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"
)

// Config is how a [Limiter] reports. The zero Config is usable.
type Config struct {
	// Name is the metric label "limiter", of the form of a budget's name; empty
	// means "default".
	Name string
	// Observer receives what the limiter does; the zero Observer receives nothing.
	Observer Observer
	// Logger receives warnings about what construction cannot know; nil means
	// slog.Default().
	Logger *slog.Logger
	// Gate is asked once for each request, before any budget, by Take, Peek and
	// Reserve: it may exempt the caller or block it. It sees the whole caller. It is
	// called with no lock held, by many goroutines. Nil means that all pass.
	Gate func(context.Context, Caller) GateResult
}

// Limiter decides requests by several budgets at once. One Take is one call to
// its Store, whatever the number of budgets. It is safe for concurrent use and
// has no goroutine. The zero Limiter is not usable: its methods that decide
// return a *[ConfigError]. See [New].
type Limiter struct {
	store     Store
	can       Capabilities
	name      string
	observer  Observer
	log       *slog.Logger
	gate      func(context.Context, Caller) GateResult
	incident  incident
	deadlines atomic.Bool // of callers have ended first, which is logged

	budgets  atomic.Pointer[[]*budget] // replaced whole by Reload
	requests sync.Pool                 // of *request
	mounts   atomic.Int64              // handlers that adapters have set up
	settling atomic.Bool               // one of them lets costs be corrected

	reload       sync.Mutex // one Reload at a time; guards what follows
	registration *registration
	checks       []budgetCheck // of adapters
	transports   []string      // of adapters, each once
}

// New returns a limiter over the budgets. Limiters may share a store: budgets of
// one name and scope then share their accounts, so names that differ keep them
// apart. If their limits or scopes differ, it is logged once under the code
// budget-shared. A limiter that nothing refers to any more is taken out of the
// store's plan by the garbage collector; its accounts stay until they are full.
//
// All configuration errors are reported here: the error is a *[ConfigError] that
// names the budget, the field, its value and what would be right.
func New(s Store, budgets []Budget, cfg Config) (*Limiter, error) {
	if isNil(s) {
		return nil, wrong("Store", nil, "want a store, not nil")
	}
	// A store that its constructor did not make refuses every limit.
	if err, ok := errors.AsType[*ConfigError](s.Check(PerSecond(1))); ok && err.Field == "Store" {
		return nil, err
	}
	if cfg.Name == "" {
		cfg.Name = "default"
	}
	if !validName(cfg.Name) {
		return nil, wrong("Config.Name", cfg.Name, nameForm)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Logger.Handler() == nil {
		return nil, wrong("Config.Logger", nil, "want a logger made by slog.New, or nil")
	}
	can := capabilities(s)
	l := &Limiter{
		store: s, can: can, name: cfg.Name, observer: cfg.Observer, log: cfg.Logger, gate: cfg.Gate,
		registration: &registration{store: s, plan: can.Plan, limiter: cfg.Name},
	}
	if err := l.Reload(budgets); err != nil {
		return nil, err
	}
	runtime.AddCleanup(l, (*registration).remove, l.registration)
	return l, nil
}

// isNil reports whether hook is nil, or a nil pointer or function in an interface.
func isNil(hook any) bool {
	v := reflect.ValueOf(hook)
	return !v.IsValid() || (v.Kind() == reflect.Pointer || v.Kind() == reflect.Func) && v.IsNil()
}

// Must returns v and panics on an error; for start-up code and examples.
func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Name returns the limiter's metric label. It is empty only for the zero Limiter.
func (l *Limiter) Name() string { return l.name }

// Take decides one request of c that costs cost tokens, and debits every budget
// that applies or none.
//
// The Decision is valid if the error is nil or a *[StoreError]; for a StoreError
// it is the answer of the failure policy already. Otherwise nothing was taken: a
// *[CostError] for a negative cost, [ErrNobody] if a budget needs a principal and
// c has none, a *[ConfigError] from the zero Limiter, or ctx's own error. Cost:
// one Store call; it does not allocate itself.
func (l *Limiter) Take(ctx context.Context, c Caller, cost int64) (d Decision, err error) {
	q := l.borrow(&c, cost)
	err = l.takeInto(ctx, q, &d)
	l.giveBack(q) // not if a hook panics: then q is not used again
	return d, err
}

// take decides q and debits its budgets. The decision is that of q.event.
func (l *Limiter) take(ctx context.Context, q *request) error {
	return l.takeInto(ctx, q, &q.event.Decision)
}

// takeInto is take with another place for the decision, which saves copies of it.
func (l *Limiter) takeInto(ctx context.Context, q *request, d *Decision) error {
	decided, err := q.prepare(ctx, l)
	if decided {
		*d = q.event.Decision
	} else {
		start := l.startTimer()
		*d, err = l.store.Take(ctx, q.charges)
		if err != nil || !l.can.NeverFails || !d.valid() {
			q.event.Decision = *d
			err = q.answered(ctx, l, start, err, Store.Take)
			*d = q.event.Decision
		}
	}
	if l.observer.Decided != nil && d.Outcome != 0 {
		q.event.Decision = *d
		l.decided(ctx, q, err)
	}
	return err
}

// Peek says what Take would say now, and changes no balance. An Observer gets no
// decision, but only the call of the store. Its errors are those of Take.
func (l *Limiter) Peek(ctx context.Context, c Caller, cost int64) (d Decision, err error) {
	q := l.borrow(&c, cost)
	err = l.peek(ctx, q)
	d = q.event.Decision
	l.giveBack(q) // not if a hook panics: then q is not used again
	return d, err
}

func (l *Limiter) peek(ctx context.Context, q *request) error {
	decided, err := q.prepare(ctx, l)
	if !decided {
		start := l.startTimer()
		q.event.Decision, err = l.store.Peek(ctx, q.charges)
		err = q.answered(ctx, l, start, err, Store.Peek)
	}
	return err
}

// Reset makes the accounts full again that a request of c would draw on and that
// are c's own: those of budgets ByPrincipal. Accounts that c shares with others
// stay as they are, and so do reservations: one that is settled later still gives
// back. It needs a store with the capability Reset; for another the error matches
// [errors.ErrUnsupported].
func (l *Limiter) Reset(ctx context.Context, c Caller) error {
	if l.store == nil {
		return errZero("Limiter", "New")
	}
	if l.can.Reset == nil {
		return errors.ErrUnsupported
	}
	if c.Principal.Nobody() {
		return ErrNobody
	}
	c.trim()
	var own []Charge
	for _, b := range l.loaded() {
		if b.Scope&ByPrincipal != 0 && b.applies(c.Route) {
			charge := Charge{Limit: b.Limit}
			b.key(&c, &charge.Key)
			own = append(own, charge)
		}
	}
	return l.can.Reset(ctx, own)
}

// warn logs and reports a misuse under a code that stays the same.
func (l *Limiter) warn(ctx context.Context, code, message string, attrs ...slog.Attr) {
	l.logCode(ctx, slog.LevelWarn, code, message, attrs...)
	if l.observer.Warned != nil {
		l.observer.Warned(l.name, code)
	}
}

// logCode logs a line under a code that stays the same.
func (l *Limiter) logCode(
	ctx context.Context, level slog.Level, code, message string, attrs ...slog.Attr,
) {
	log := l.log
	if log == nil { // the zero Limiter
		log = slog.Default()
	}
	log.LogAttrs(ctx, level, message, append([]slog.Attr{
		slog.String("code", code),
		slog.String("see", "https://github.com/ration-go/ration#warnings"),
		slog.String("limiter", l.name),
	}, attrs...)...)
}
