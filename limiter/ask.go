package limiter

import "context"

// Budget is for adapters: it returns the budget of that name as New or Reload
// got it, so that an answer tells callers of their own budgets only. Its Routes
// are the limiter's: read them, do not change them. It does not allocate.
func (l *Limiter) Budget(name string) (Budget, bool) {
	for _, b := range *l.budgets.Load() {
		if b.Name == name {
			return b.Budget, true
		}
	}
	return Budget{}, false
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
) (Decision, error) {
	q := l.borrow()
	defer l.giveBack(q)
	d, err := l.take(ctx, q, c, cost)
	if err != nil || q.blocked != nil {
		return d, err
	}
	for i, b := range q.budgets {
		each(&b.Budget, &q.charges[i])
	}
	return d, nil
}
