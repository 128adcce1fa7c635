package limiter

import (
	"context"
	"log/slog"
)

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

// warnScopes logs the budgets whose accounts have new keys after a Reload.
func (l *Limiter) warnScopes(old, compiled []*budget) {
	for _, b := range compiled {
		before := byName(old, b.Name)
		if before == nil || before.Scope.keys() == b.Scope.keys() {
			continue
		}
		l.Warn(context.Background(), "scope-changed", "Reload changed the scope of a budget: its "+
			"accounts have new keys, so everybody starts with a full account; to avoid that, add a "+
			"budget of another name first and remove this one later",
			slog.String("budget", b.Name), slog.String("old", before.Scope.String()),
			slog.String("new", b.Scope.String()))
	}
}

func names(budgets []*budget) []string {
	names := make([]string, len(budgets))
	for i, b := range budgets {
		names[i] = b.Name
	}
	return names
}
