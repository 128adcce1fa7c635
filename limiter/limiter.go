package limiter

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Config is how a [Limiter] reports. The zero Config is usable.
type Config struct {
	// Name is the metric label "limiter", of the form of a budget's name; empty
	// means "default".
	Name string
	// Observer receives every decision; nil means none.
	Observer Observer
	// Logger receives warnings about what construction cannot know; nil means
	// slog.Default().
	Logger *slog.Logger
}

// Limiter decides requests by several budgets at once. One Take is one call to
// its Store, whatever the number of budgets. It is safe for concurrent use and
// has no goroutine. The zero Limiter is not usable: its methods that decide
// return a *[ConfigError]. See [New].
type Limiter struct {
	store    Store
	name     string
	observer Observer
	log      *slog.Logger
	made     time.Time

	watcher   StoreObserver // nil: the store cannot fail, or nobody asks
	storeName string

	budgets       atomic.Pointer[[]*budget] // replaced whole by Reload
	reload        sync.Mutex                // one Reload at a time; guards checks
	registration  *registration             // guarded by reload
	checks        []func([]Budget) error    // of adapters, see CheckRoutes
	requests      sync.Pool                 // of *request
	invalidLimits atomic.Int64
	outage        outage
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
	if cfg.Observer != nil && isNil(cfg.Observer) {
		return nil, wrong("Config.Observer", nil, "want an observer, or no value at all")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Logger.Handler() == nil {
		return nil, wrong("Config.Logger", nil, "want a logger made by slog.New, or nil")
	}
	l := &Limiter{store: s, name: cfg.Name, observer: cfg.Observer, log: cfg.Logger, made: time.Now(),
		registration: &registration{store: s, limiter: cfg.Name}}
	if err := l.Reload(budgets); err != nil {
		return nil, err
	}
	runtime.AddCleanup(l, (*registration).remove, l.registration)
	l.introduce()
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

// InvalidLimits returns how often a LimitFor answered a limit that is not valid.
func (l *Limiter) InvalidLimits() int64 { return l.invalidLimits.Load() }

// Reload replaces the budgets, for requests that begin after it. Nobody is
// refilled: what a token bucket has left stays, at most the new capacity, and
// refills by the new limit; what was used of a window or a log stays used; an
// account that was full is full (R10). Equal limits are no change.
//
// The name and the scope of a budget make the keys of its accounts. A budget with
// a new name has new accounts, which are full. So has a budget whose scope
// changes: everybody starts again with a full account, and Reload logs a warning
// under the code scope-changed. An account is found again if its budget gets the
// old name and scope back.
//
// The error is that of New, and then nothing changes. A budget on a route that the
// service does not have is an error, too, if the adapters know its routes. Reload may run beside
// requests and other Reloads; the last one counts.
func (l *Limiter) Reload(budgets []Budget) error {
	if l.store == nil {
		return errZero("Limiter", "New")
	}
	if err := l.checkRoutes(budgets); err != nil {
		return err
	}
	old, compiled, conflicts, err := l.replace(budgets)
	if err != nil {
		return err
	}
	l.warnScopes(old, compiled) // with no lock held
	l.warnConflicts(conflicts)
	if l.observer != nil {
		l.observer.Configured(l.name, names(compiled))
	}
	return nil
}

func (l *Limiter) replace(
	budgets []Budget,
) (old, compiled []*budget, conflicts []conflict, err error) {
	l.reload.Lock()
	defer l.reload.Unlock()
	compiled, err = compile(l.store, budgets)
	if err != nil {
		return nil, nil, nil, err
	}
	old = l.loaded()
	for _, b := range compiled {
		if before := byName(old, b.Name); before != nil {
			b.warned = before.warned
		}
	}
	l.budgets.Store(&compiled)
	return old, compiled, l.registration.replace(compiled), nil
}

// CheckRoutes is for adapters: Reload calls check with the new budgets, with no lock
// held, and returns its error in place of replacing any. The limiter holds check for
// its own life.
func (l *Limiter) CheckRoutes(check func([]Budget) error) {
	l.reload.Lock()
	defer l.reload.Unlock()
	l.checks = append(l.checks, check)
}

func (l *Limiter) checkRoutes(budgets []Budget) error {
	l.reload.Lock()
	checks := l.checks
	l.reload.Unlock()
	for _, check := range checks {
		if err := check(budgets); err != nil {
			return err
		}
	}
	return nil
}

// Take decides one request of c that costs cost tokens, and debits every budget
// that applies or none.
//
// The Decision is valid if the error is nil or a *[StoreError]; for a StoreError
// it is the answer of the failure policy already. Otherwise nothing was taken: a
// *[CostError] for a negative cost, [ErrNobody] if a budget needs a principal and
// c has none, a *[ConfigError] from the zero Limiter, or ctx's own error. Cost:
// one Store call; it does not allocate itself.
func (l *Limiter) Take(ctx context.Context, c Caller, cost int64) (d Decision, err error) {
	q := l.borrow()
	defer l.giveBack(q)
	err = l.take(ctx, q, &c, cost, &d)
	return d, err
}

func (l *Limiter) take(
	ctx context.Context, q *request, c *Caller, cost int64, d *Decision,
) error {
	decided, err := q.prepare(ctx, l, c, cost, d)
	if !decided {
		start := l.asking()
		*d, err = l.store.Take(ctx, q.charges)
		l.asked(start, err)
		if err != nil {
			*d, err = q.fail(ctx, l, err)
		}
	}
	if l.observer != nil && err == nil {
		l.observe(q, d)
	}
	return err
}

// Peek says what Take would say now, and changes nothing: no balance, no metric.
// Its errors are those of Take.
func (l *Limiter) Peek(ctx context.Context, c Caller, cost int64) (d Decision, err error) {
	q := l.borrow()
	defer l.giveBack(q)
	decided, err := q.prepare(ctx, l, &c, cost, &d)
	if !decided {
		start := l.asking()
		d, err = l.store.Peek(ctx, q.charges)
		l.asked(start, err)
		if err != nil {
			return q.fail(ctx, l, err)
		}
	}
	return d, err
}

// Reset makes the accounts full again that a request of c would draw on and that
// are c's own: those of budgets ByPrincipal. Accounts that c shares with others
// stay as they are, and so do reservations: one that is settled later still gives
// back. It needs a store that is a [Resetter]; for another the error matches
// [errors.ErrUnsupported].
func (l *Limiter) Reset(ctx context.Context, c Caller) error {
	if l.store == nil {
		return errZero("Limiter", "New")
	}
	store, ok := l.store.(Resetter)
	if !ok {
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
	return store.Reset(ctx, own)
}

// request is the charges of one request and the budgets that they belong to. It is
// pooled; elements beyond the length of its slices are stale.
type request struct {
	charges []Charge
	budgets []*budget
	blocked *budget   // the first by name whose LimitFor answered Blocked
	shadows []*budget // shadow budgets whose LimitFor did
	more    bool      // the rest of a request that budgets PerRequest have counted
}

func (l *Limiter) borrow() *request {
	if q, ok := l.requests.Get().(*request); ok {
		return q
	}
	return new(request)
}

func (l *Limiter) giveBack(q *request) {
	q.charges, q.budgets, q.shadows = q.charges[:0], q.budgets[:0], q.shadows[:0]
	q.blocked, q.more = nil, false
	l.requests.Put(q)
}

// prepare makes the charges of a request. decided is true if no store call is
// needed, because d is written or err is not nil.
func (q *request) prepare(
	ctx context.Context, l *Limiter, c *Caller, cost int64, d *Decision,
) (decided bool, err error) {
	if l.store == nil {
		return true, errZero("Limiter", "New")
	}
	if err := checkCost(cost); err != nil {
		return true, err
	}
	if err := ctx.Err(); err != nil {
		return true, err
	}
	if err := q.fill(ctx, l, c, cost); err != nil {
		return true, err
	}
	switch {
	case q.blocked != nil:
		*d = Decision{Outcome: Never, Budget: q.blocked.Name, Limit: Blocked}
	case len(q.charges) == 0:
		d.Outcome = Allow
	default:
		return false, nil
	}
	return true, nil
}

// fill makes one charge for each budget that applies to c. Budgets by workload
// come after those that bound them, and only with one of those.
func (q *request) fill(ctx context.Context, l *Limiter, c *Caller, cost int64) error {
	nobody := c.Principal.Nobody()
	c.trim()
	for _, b := range l.loaded() {
		if !b.applies(c.Route) || b.Scope&ByWorkload != 0 && !q.bounds(b) {
			continue
		}
		if nobody && b.Scope.principals() {
			return ErrNobody
		}
		q.add(ctx, l, b, c, cost)
	}
	return nil
}

func (q *request) add(ctx context.Context, l *Limiter, b *budget, c *Caller, cost int64) {
	n := len(q.charges)
	q.charges = slices.Grow(q.charges, 1)
	charge := &q.charges[:n+1][n]
	b.key(c, &charge.Key)
	charge.Limit = b.Limit
	if b.LimitFor != nil {
		k := &charge.Key
		charge.Limit = b.limitFor(ctx, Caller{k.Principal, k.Route, k.Workload}, l)
	}
	switch charge.Limit.Algorithm {
	case unlimited:
		return
	case blocked:
		if b.Shadow {
			q.shadows = append(q.shadows, b)
		} else if q.blocked == nil || b.Name < q.blocked.Name {
			q.blocked = b
		}
		return
	}
	switch {
	case !b.PerRequest:
		charge.Cost = cost
	case q.more:
		charge.Cost = 0
	default:
		charge.Cost = 1
	}
	charge.Shadow = b.Shadow
	charge.Result, charge.Receipt = Result{}, Receipt{}
	q.charges = q.charges[:n+1]
	q.budgets = append(q.budgets, b)
}

// bounds reports whether a budget that bounds b is charged already.
func (q *request) bounds(b *budget) bool {
	for _, charged := range q.budgets {
		if charged.bounds(b) {
			return true
		}
	}
	return false
}

// closedRetry is the wait that a closed budget states: long enough to take the
// load off a store that fails, short enough to come back with it.
const closedRetry = time.Second

// fail answers for a store that could not decide, by the strictest policy.
func (q *request) fail(ctx context.Context, l *Limiter, err error) (Decision, error) {
	var cost *CostError
	var config *ConfigError
	var store *StoreError
	switch {
	case errors.As(err, &store):
	case errors.As(err, &cost), errors.As(err, &config), ctx.Err() != nil:
		return Decision{}, err
	default:
		store = &StoreError{Other, err}
	}
	l.outage.warn(ctx, l, store)
	strictest := -1
	for i, b := range q.budgets {
		if b.Shadow || b.OnError == Open {
			continue
		}
		if strictest < 0 || b.stricter(q.budgets[strictest]) {
			strictest = i
		}
	}
	if strictest < 0 {
		return Decision{Outcome: Allow}, store
	}
	return Decision{
		Outcome: Deny, Budget: q.budgets[strictest].Name, Limit: q.charges[strictest].Limit,
		RetryAfter: closedRetry,
	}, store
}

// observe reports the budget that decided, and what each shadow budget said.
func (l *Limiter) observe(q *request, d *Decision) {
	if d.Budget != "" {
		l.observer.Decided(DecisionEvent{l.name, d.Budget, verdict(d)})
	}
	for _, b := range q.shadows {
		l.observer.Decided(DecisionEvent{l.name, b.Name, VerdictShadowDeny})
	}
	for i := range q.charges {
		if c := &q.charges[i]; c.Shadow && c.Result.Outcome != 0 {
			l.observer.Decided(DecisionEvent{l.name, c.Key.Budget, shadowVerdict(c.Result.Outcome)})
		}
	}
}

// Answered is for adapters: it reports one request that they have seen.
func (l *Limiter) Answered(transport, route string, a Answer) {
	if l.observer != nil {
		l.observer.Answered(RequestEvent{l.name, transport, route, a})
	}
}
