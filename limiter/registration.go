package limiter

import (
	"context"
	"log/slog"
	"reflect"
	"sync"
)

// registration records which budgets a limiter uses in its store. It does not
// refer to the limiter, so that the garbage collector can find the limiter
// unused; remove then takes the budgets out of the store's plan.
type registration struct {
	store   Store
	plan    func(add, remove []string) // nil: the store has none
	limiter string                     // the name
	budgets []registered
}

// registered is what two budgets of one name must have in common if their
// limiters share a store.
type registered struct {
	name  string
	scope Scope
	limit Limit // with Burst spelled out
}

// conflict is a budget that another limiter of the store has with another limit
// or scope.
type conflict struct {
	own, other registered
	limiter    string // the name of the other
}

// usage is the limiters in use, by store and budget.
var usage = struct {
	mu       sync.Mutex // guards what follows
	limiters map[use]map[*registration]registered
	reported map[pair]struct{} // conflicts that were logged
}{limiters: map[use]map[*registration]registered{}, reported: map[pair]struct{}{}}

type use struct {
	store  Store
	budget string
}

type pair struct {
	one, other *registration
	budget     string
}

// replace registers budgets in place of those before, tells the store, and
// returns the conflicts that were not returned yet.
func (r *registration) replace(budgets []*budget) []conflict {
	old := r.budgets
	r.budgets = make([]registered, len(budgets))
	for i, b := range budgets {
		limit := b.Limit
		limit.Burst = limit.Capacity()
		r.budgets[i] = registered{b.Name, b.Scope, limit}
	}
	if r.plan != nil {
		r.plan(registeredNames(r.budgets), registeredNames(old))
	}
	if !reflect.ValueOf(r.store).Comparable() {
		return nil
	}
	usage.mu.Lock()
	defer usage.mu.Unlock()
	r.leave(old)
	return r.enter()
}

// remove takes everything back. It is the cleanup of a limiter that nothing
// refers to.
func (r *registration) remove() {
	if reflect.ValueOf(r.store).Comparable() {
		usage.mu.Lock()
		r.leave(r.budgets)
		for p := range usage.reported {
			if p.one == r || p.other == r {
				delete(usage.reported, p)
			}
		}
		usage.mu.Unlock()
	}
	if r.plan != nil {
		r.plan(nil, registeredNames(r.budgets))
	}
}

// enter adds the budgets to usage, whose lock is held, and returns the new
// conflicts.
func (r *registration) enter() []conflict {
	var found []conflict
	for _, own := range r.budgets {
		at := use{r.store, own.name}
		for other, theirs := range usage.limiters[at] {
			p, q := pair{r, other, own.name}, pair{other, r, own.name}
			_, reported := usage.reported[p]
			_, byOther := usage.reported[q]
			if own != theirs && !reported && !byOther {
				usage.reported[p] = struct{}{}
				found = append(found, conflict{own, theirs, other.limiter})
			}
		}
		if usage.limiters[at] == nil {
			usage.limiters[at] = map[*registration]registered{}
		}
		usage.limiters[at][r] = own
	}
	return found
}

// leave removes budgets from usage, whose lock is held.
func (r *registration) leave(budgets []registered) {
	for _, b := range budgets {
		at := use{r.store, b.name}
		if delete(usage.limiters[at], r); len(usage.limiters[at]) == 0 {
			delete(usage.limiters, at)
		}
	}
}

func registeredNames(budgets []registered) []string {
	names := make([]string, len(budgets))
	for i, b := range budgets {
		names[i] = b.name
	}
	return names
}

// warnConflicts logs the budgets that the limiter shares with another one under
// different rules.
func (l *Limiter) warnConflicts(found []conflict) {
	for _, c := range found {
		l.warn(context.Background(), "budget-shared", "another limiter of this store has a "+
			"budget of this name with a different limit or scope, and both use the same "+
			"accounts; rename one of them, or give both the same limit and scope",
			slog.String("budget", c.own.name),
			slog.String("limit", c.own.limit.String()), slog.String("scope", c.own.scope.names()),
			slog.String("other_limiter", c.limiter),
			slog.String("other_limit", c.other.limit.String()),
			slog.String("other_scope", c.other.scope.names()))
	}
}
