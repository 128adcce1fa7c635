package limiter

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
