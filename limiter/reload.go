package limiter

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
)

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
// The error is that of New, or that of an adapter which knows that the service does
// not have a route of a budget; then nothing changes. Reload may run beside
// requests and other Reloads; the last one counts.
func (l *Limiter) Reload(budgets []Budget) error {
	if l.store == nil {
		return errZero("Limiter", "New")
	}
	if err := l.check(budgets); err != nil {
		return err
	}
	old, compiled, conflicts, err := l.replace(budgets)
	if err != nil {
		return err
	}
	l.warnScopes(old, compiled) // with no lock held
	l.warnConflicts(conflicts)
	if l.observer.Configured != nil {
		l.observer.Configured(l.name, asGiven(compiled), l.store, l.can)
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

// loaded returns the budgets of the latest Reload; none for the zero Limiter.
func (l *Limiter) loaded() []*budget {
	if budgets := l.budgets.Load(); budgets != nil {
		return *budgets
	}
	return nil
}

// byName returns the budget of that name, or nil.
func byName(budgets []*budget, name string) *budget {
	for _, b := range budgets {
		if b.Name == name {
			return b
		}
	}
	return nil
}

// asGiven returns the budgets as New or Reload got them, sorted by name.
func asGiven(compiled []*budget) []Budget {
	budgets := make([]Budget, len(compiled))
	for i, b := range compiled {
		budgets[i] = b.Budget
	}
	slices.SortFunc(budgets, func(a, b Budget) int { return cmp.Compare(a.Name, b.Name) })
	return budgets
}

// warnScopes logs the budgets whose accounts have new keys after a Reload.
func (l *Limiter) warnScopes(old, compiled []*budget) {
	for _, b := range compiled {
		before := byName(old, b.Name)
		if before == nil || before.Scope.keys() == b.Scope.keys() {
			continue
		}
		l.warn(context.Background(), "scope-changed", "Reload changed the scope of a budget: its "+
			"accounts have new keys, so everybody starts with a full account; to avoid that, add a "+
			"budget of another name first and remove this one later",
			slog.String("budget", b.Name), slog.String("old", before.Scope.names()),
			slog.String("new", b.Scope.names()))
	}
}

// budgetCheck is the opinion of an adapter; see [Adapter.Setup].
type budgetCheck = func(budgets []Budget, store Capabilities, transports []string) error

// setup adds a handler of an adapter, and its check of the budgets.
func (l *Limiter) setup(
	transport string, settles bool, check budgetCheck,
) (shared func() bool, err error) {
	if l.store == nil {
		return nil, errZero("Limiter", "New")
	}
	if check != nil {
		l.reload.Lock()
		transports := with(l.transports, transport)
		l.reload.Unlock()
		if err := check(asGiven(l.loaded()), l.can, transports); err != nil { // with no lock held
			return nil, err
		}
	}
	l.reload.Lock()
	l.transports = with(l.transports, transport)
	if check != nil {
		l.checks = append(l.checks, check)
	}
	l.reload.Unlock()
	l.mounts.Add(1)
	if settles {
		l.settling.Store(true)
	}
	return l.shared, nil
}

// with returns transports, which it does not change, with one more.
func with(transports []string, transport string) []string {
	if slices.Contains(transports, transport) {
		return transports
	}
	return append(slices.Clip(transports), transport)
}

// check calls the checks of adapters, with no lock held.
func (l *Limiter) check(budgets []Budget) error {
	l.reload.Lock()
	checks, transports := l.checks, l.transports
	l.reload.Unlock()
	var errs []error
	for _, check := range checks {
		if err := check(budgets, l.can, transports); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}
