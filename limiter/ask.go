package limiter

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
)

// Budget is for adapters: it returns the budget of that name as New or Reload
// got it, so that an answer tells callers of their own budgets only. Its Routes
// are the limiter's: read them, do not change them. It does not allocate.
func (l *Limiter) Budget(name string) (Budget, bool) {
	if b := byName(l.loaded(), name); b != nil {
		return b.Budget, true
	}
	return Budget{}, false
}

// Budgets is for adapters: it returns all budgets as New or Reload got them,
// sorted by name. Their Routes are the limiter's.
func (l *Limiter) Budgets() []Budget {
	compiled := l.loaded()
	budgets := make([]Budget, len(compiled))
	for i, b := range compiled {
		budgets[i] = b.Budget
	}
	slices.SortFunc(budgets, func(a, b Budget) int { return cmp.Compare(a.Name, b.Name) })
	return budgets
}

// CanFail is for adapters: it reports whether the store can fail, as one does
// that has to ask another process, and so may keep its callers waiting.
func (l *Limiter) CanFail() bool { return canFail(l.store) }

// Warn is for adapters: it logs a misuse that construction could not know of,
// under a code that stays the same and is explained at the link that is logged
// with it. The caller sees to it that each code is logged once.
func (l *Limiter) Warn(ctx context.Context, code, message string, attrs ...slog.Attr) {
	log := l.log
	if log == nil { // the zero Limiter
		log = slog.Default()
	}
	log.LogAttrs(ctx, slog.LevelWarn, message, append([]slog.Attr{
		slog.String("code", code),
		slog.String("see", "https://github.com/ration-go/ration#"+code),
		slog.String("limiter", l.name),
	}, attrs...)...)
}

// Personal reports whether accounts of the scope belong to the caller, alone or
// with its tenant, and not to everybody.
func (s Scope) Personal() bool { return s&(ByTenant|ByPrincipal) != 0 }

// TakeEach is Take for adapters that tell callers how much they have left: it
// also shows each the budgets that were charged, with the charge and its Result,
// shadow budgets too, and none where the error is not nil or a budget is Blocked.
// Read both, change and keep neither. Its errors are those of Take, and it does
// not allocate.
func (l *Limiter) TakeEach(
	ctx context.Context, c Caller, cost int64, each func(*Budget, *Charge),
) (d Decision, err error) {
	q := l.borrow()
	defer l.giveBack(q)
	err = l.take(ctx, q, &c, cost, &d)
	if err == nil {
		q.show(each)
	}
	return d, err
}

// show shows the budgets of a request that was decided by its accounts.
func (q *request) show(each func(*Budget, *Charge)) {
	if q.blocked != nil {
		return
	}
	for i, b := range q.budgets {
		each(&b.Budget, &q.charges[i])
	}
}
