package middleware

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"weak"

	"github.com/ration-go/ration/internal/routes"
	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
)

// Check returns an error if budgets name routes that the router does not have, since
// they would limit nothing there. The error is a *[limiter.ConfigError] that names
// the budget and the nearest route, or several of them joined. Call Check when all
// routes are registered. From then on, or from the first request on, Reload of the
// limiter refuses such budgets, too, and the metrics of all routes exist if the
// router can list them.
//
// It returns nil if the finder does not know the routes, as with [keying.Pattern].
// If a gRPC adapter uses the limiter, too, routes in the form of its methods,
// "/pkg.Service/Method", may be its own and are not checked. "/a/b" has that form
// unless the router has that path with a method or another ending.
func (m *Middleware) Check() error {
	m.watch.complete.Store(true)
	m.adapter.Routes(transport, m.route.List()...)
	return m.adapter.Check()
}

// check returns the function that checks budgets at New, Check and each Reload. The
// function does not keep m alive.
func (m *Middleware) check() func([]limiter.Budget, limiter.Capabilities, []string) error {
	w := weak.Make(m)
	return func(budgets []limiter.Budget, _ limiter.Capabilities, transports []string) error {
		if m := w.Value(); m != nil {
			return m.checkBudgets(budgets, transports)
		}
		return nil
	}
}

// checkBudgets returns an error for budgets that this middleware cannot serve. Before
// all routes are registered, it checks them only if the router lists some: the
// middleware is made before the first route or after the last.
func (m *Middleware) checkBudgets(budgets []limiter.Budget, transports []string) error {
	m.watch.routed.Store(slices.ContainsFunc(budgets, func(b limiter.Budget) bool {
		return b.Routes != nil || b.Scope&limiter.ByRoute != 0
	}))
	if err := m.workloads.Check(budgets); err != nil {
		return err
	}
	complete := m.watch.complete.Load() || m.route.List() != nil
	mixed := len(transports) > 1 // another adapter may know the route
	var errs []error
	for _, b := range budgets {
		for i, route := range b.Routes {
			if reason := m.wrong(route, complete, mixed); reason != "" {
				errs = append(errs, wrongRoute(b, i, reason))
			}
		}
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// wrong returns why no request can have the route, or "" if one can.
func (m *Middleware) wrong(route string, complete, mixed bool) string {
	if rest, ok := strings.CutPrefix(route, http.MethodHead+" "); ok {
		return fmt.Sprintf("HEAD shares GET's route: want %q", http.MethodGet+" "+rest)
	}
	if !complete || route == keying.Unmatched ||
		mixed && (routes.HasPackage(route) || routes.IsService(route)) {
		return ""
	}
	if routes.IsService(route) && m.serves(route) {
		return ""
	}
	registered, known, nearest := m.route.Registered(route)
	if registered || !known || mixed && routes.IsFullMethod(route) && !similar(route, nearest) {
		return ""
	}
	if nearest == nil {
		return "want a route that the router has"
	}
	return "want a route that the router has: " + routes.Quote(nearest)
}

// serves reports whether the router has the pattern of a service, "/pkg.Service/".
func (m *Middleware) serves(service string) bool {
	registered, _, _ := m.route.Registered(strings.TrimSuffix(service, "*"))
	return registered
}

// warnOfRoutes checks the routes of all budgets at the first request, when the
// router is complete.
func (m *Middleware) warnOfRoutes(ctx context.Context) {
	if m.watch.complete.Swap(true) {
		return // Check was called
	}
	m.adapter.Routes(transport, m.route.List()...)
	if err := m.adapter.Check(); err != nil {
		m.adapter.Warn(ctx, "route-unknown", "budgets name routes that the router does not have, "+
			"so they limit nothing there: correct the routes", slog.Any("error", err))
	}
}

// similar reports whether one of the routes is another spelling of route.
func similar(route string, nearest []string) bool {
	return slices.ContainsFunc(nearest, func(n string) bool { return routes.Same(n, route) })
}

func wrongRoute(b limiter.Budget, i int, reason string) error {
	return wrong(fmt.Sprintf("Budget %q.Routes[%d]", b.Name, i), b.Routes[i], reason)
}
