package limiter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/ration-go/ration/internal/routes"
)

// FailurePolicy says what a budget answers while its store cannot.
type FailurePolicy uint8

const (
	// Local lets this process decide by its share of the limit, in memory of its own.
	// A store that can fail needs a local side for it: see package resilient.
	Local FailurePolicy = iota + 1
	// Open allows.
	Open
	// Closed refuses. Where several budgets apply, the strictest policy answers:
	// Closed, then Local, then Open.
	Closed
)

// stricter returns the stricter of two policies: [Closed], then [Local], then [Open].
func stricter(a, b FailurePolicy) FailurePolicy {
	if a == Closed || b == Open {
		return a
	}
	return b
}

// policy returns how b answers for a store that failed. A store that never fails needs
// no policy; if it does fail, a budget is Closed.
func (l *Limiter) policy(b *budget) FailurePolicy {
	switch {
	case b.OnError == Local && l.can.Local != nil, b.OnError == Open:
		return b.OnError
	default:
		return Closed
	}
}

// Budget is a named limit and its scope: which parts of a request make its key.
type Budget struct {
	// Name is the metric label and the name in headers: a letter, then up to 63
	// letters, digits, dots, underscores or hyphens. Unique in its Limiter.
	Name string
	// Scope says whose account a request draws on; 0 is one for everybody.
	Scope Scope
	// Limit is the limit of each account.
	Limit Limit
	// LimitFor, if set, returns another limit for some callers: plans, overrides.
	// It sees only the parts in scope, so that one account has one limit. The zero
	// Limit means the field Limit. So does a limit that is not valid, which is
	// logged once for each budget under the code limit-for-invalid. LimitFor is
	// called with no lock held, by many goroutines, on every request. If it
	// panics, nothing is taken and the panic reaches the caller of Take.
	LimitFor func(context.Context, Caller) Limit
	// Routes are the only routes on which the budget applies; nil means all. The entry
	// "/pkg.Service/*" means all methods of a gRPC service and all procedures of a Connect
	// service, which is in a package; see keying.Procedures.
	Routes []string
	// PerRequest makes every request cost 1 here, whatever its cost.
	PerRequest bool
	// Shadow budgets are counted (shadow_allow when one could pay, shadow_deny when
	// it could not) and debited when the request is allowed and they can pay, but
	// never refuse. One whose two counts both stay 0 applies to no request.
	Shadow bool
	// OnError is the answer while the store cannot decide. It has no default: for
	// a store that can fail it must be set. It does not answer for a request whose own
	// deadline ends before the store's timeout: that is refused as cancelled.
	OnError FailurePolicy
	// Public budgets are told to every caller: what is left of them stands in
	// headers and details. Otherwise callers see only accounts that are their own,
	// because the account of others would show how much those use.
	Public bool
	// Unavailable makes a denial by this budget say that the service is used up: 503,
	// or UNAVAILABLE, instead of 429. All callers share its accounts, so its scope
	// has neither ByPrincipal nor ByTenant.
	Unavailable bool
}

// budget is a Budget as the limiter uses it.
type budget struct {
	Budget
	routes   map[string]struct{} // nil: all
	services map[string]struct{} // "/pkg.Service"; nil: none
	warned   *atomic.Bool        // an invalid answer of LimitFor was logged; kept by Reload
}

// key writes the key of the account that c draws on.
func (b *budget) key(c *Caller, k *Key) {
	k.Budget = b.Name
	switch {
	case b.Scope&ByPrincipal != 0:
		k.Principal = c.Principal
	case b.Scope&ByTenant != 0:
		k.Principal = tenant(c.Principal)
	default:
		k.Principal = Principal{}
	}
	k.Route, k.Workload = "", ""
	if b.Scope&ByRoute != 0 {
		k.Route = c.Route
	}
	if b.Scope&ByWorkload != 0 {
		k.Workload = c.Workload
	}
}

// limitFor returns what LimitFor answers for the parts of a caller in scope.
func (b *budget) limitFor(ctx context.Context, in Caller, l *Limiter) Limit {
	limit := b.LimitFor(ctx, in)
	if limit == (Limit{}) {
		return b.Limit
	}
	if limit == b.Limit || limit.Algorithm == unlimited || limit.Algorithm == blocked {
		return limit
	}
	err := l.store.Check(limit)
	if err == nil {
		return limit
	}
	if b.warned.CompareAndSwap(false, true) {
		l.warn(ctx, "limit-for-invalid", "LimitFor answered a limit that is not valid; "+
			"Budget.Limit applies", slog.String("budget", b.Name), slog.Any("error", err))
	}
	return b.Limit
}

// applies reports whether the budget is charged on the route.
func (b *budget) applies(route string) bool {
	if b.routes == nil {
		return true
	}
	if _, ok := b.routes[route]; ok || b.services == nil {
		return ok
	}
	service, ok := routes.ServiceOf(route)
	if ok {
		_, ok = b.services[service]
	}
	return ok
}

// validName reports whether a name can be a metric label and stand in headers.
var validName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._-]{0,63}$`).MatchString

const nameForm = "want a letter, then up to 63 letters, digits, dots, underscores or hyphens"

// field returns how errors name the budget at index i of a list.
func (b *budget) field(i int) string { return fmt.Sprintf("Budgets[%d] (%q)", i, b.Name) }

// compile validates the budgets of one limiter and prepares them.
func compile(s Store, budgets []Budget) ([]*budget, error) {
	if len(budgets) == 0 {
		return nil, wrong("Budgets", nil, "want at least one budget")
	}
	named := map[string]int{}
	compiled := make([]*budget, len(budgets))
	for i := range budgets {
		b := &budget{Budget: budgets[i], warned: new(atomic.Bool)}
		if !validName(b.Name) {
			return nil, wrong(fmt.Sprintf("Budgets[%d].Name", i), b.Name, nameForm)
		}
		if first, taken := named[b.Name]; taken {
			return nil, wrong(fmt.Sprintf("Budgets[%d].Name", i), b.Name,
				fmt.Sprintf("want a name of its own: Budgets[%d] has this one", first))
		}
		if err := b.validate(s); err != nil {
			return nil, within(b.field(i), err)
		}
		named[b.Name] = i
		b.index()
		compiled[i] = b
	}
	for i, b := range compiled {
		if err := bounded(b, compiled); err != nil {
			return nil, within(b.field(i), err)
		}
	}
	slices.SortStableFunc(compiled, func(a, b *budget) int {
		return int(a.Scope&ByWorkload) - int(b.Scope&ByWorkload)
	})
	return compiled, nil
}

func (b *budget) validate(s Store) error {
	switch {
	case b.Scope&^allScopes != 0:
		return wrong("Scope", b.Scope.names(),
			"want a combination of ByTenant, ByPrincipal, ByRoute and ByWorkload")
	case b.Scope&ByWorkload != 0 && b.Scope&ByPrincipal == 0:
		return wrong("Scope", b.Scope.names(), "ByWorkload needs ByPrincipal")
	case b.Routes != nil && len(b.Routes) == 0:
		return wrong("Routes", b.Routes, "want at least one route, or nil for all")
	case slices.Contains(b.Routes, ""):
		return wrong("Routes", b.Routes, "want no empty route")
	case b.Unavailable && b.Scope.principals():
		return wrong("Unavailable", true, "its accounts belong to one caller: want a scope "+
			"without ByTenant, ByPrincipal and ByWorkload, or false")
	case b.OnError > Closed:
		return wrong("OnError", uint8(b.OnError), "want Local, Open or Closed")
	}
	if can := capabilities(s); !can.NeverFails {
		switch {
		case b.OnError == 0:
			return wrong("OnError", "unset", "the store can fail: want Local, Open or Closed")
		case b.OnError == Local && can.Local == nil:
			return wrong("OnError", "Local", "the store has no local side: want one made by "+
				"resilient.New, or Open or Closed")
		case b.OnError == Local && can.Share == nil:
			return wrong("OnError", "Local", "the store has a local side, but no Capabilities.Share")
		}
	}
	if err := b.Limit.Validate(); err != nil {
		return err
	}
	if err := s.Check(b.Limit); err != nil {
		var config *ConfigError
		if errors.As(err, &config) && strings.HasPrefix(config.Field, "Limit") {
			return err
		}
		return within("Limit", err)
	}
	return nil
}

func (b *budget) index() {
	b.Routes = slices.Clone(b.Routes)
	if b.Routes == nil {
		return
	}
	b.routes = make(map[string]struct{}, len(b.Routes))
	for _, route := range b.Routes {
		b.routes[route] = struct{}{}
		if !routes.IsService(route) {
			continue
		}
		if b.services == nil {
			b.services = map[string]struct{}{}
		}
		service, _ := routes.ServiceOf(route)
		b.services[service] = struct{}{}
	}
}

// bounded says whether a caller who invents workloads is held by another budget:
// an enforced one by principal, not by workload, on all the routes of b.
func bounded(b *budget, all []*budget) error {
	if b.Scope&ByWorkload == 0 {
		return nil
	}
	for _, other := range all {
		if other.bounds(b) {
			return nil
		}
	}
	return wrong("Scope", b.Scope.names(), "a caller chooses its workloads: add an enforced "+
		"budget ByPrincipal and not ByWorkload on the same routes")
}

func (b *budget) bounds(other *budget) bool {
	if b.Shadow || b.Scope&ByPrincipal == 0 || b.Scope&ByWorkload != 0 {
		return false
	}
	if b.routes == nil {
		return true
	}
	return other.routes != nil && !slices.ContainsFunc(other.Routes, func(route string) bool {
		return !b.applies(route)
	})
}
