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

// Check returns an error for a budget on a route that the router does not have,
// which would limit nothing: a *[limiter.ConfigError] that names the budget and
// the nearest route. Call it when all routes are registered. From then on, and from
// the first request on, Reload of the limiter refuses such budgets, too.
//
// It returns nil if the finder does not know the routes, as [keying.Pattern] does
// not. It does not check gRPC methods, "/pkg.Service/Method", since a limiter may
// serve both; "/a/b" counts as one unless the router has that path with a method
// or another ending.
func (m *Middleware) Check() error {
	m.watch.complete.Store(true)
	return first(m.unknown(m.limiter.Budgets()))
}

// checkHEAD returns an error for a budget on a route that no request has.
func checkHEAD(budgets []limiter.Budget) error {
	for _, b := range budgets {
		for i, route := range b.Routes {
			if rest, ok := strings.CutPrefix(route, http.MethodHead+" "); ok {
				return wrongRoute(b, i, fmt.Sprintf("HEAD shares GET's route: want %q", "GET "+rest))
			}
		}
	}
	return nil
}

// checkOnReload makes the limiter check the routes of new budgets. It does not keep
// m alive.
func (m *Middleware) checkOnReload() {
	w := weak.Make(m)
	m.limiter.CheckRoutes(func(budgets []limiter.Budget) error {
		if m := w.Value(); m != nil {
			return m.check(budgets)
		}
		return nil
	})
}

// check returns an error for a budget on a route that no request has. While routes
// may still be registered, it relies only on a router that lists some: its
// middleware is made before the first route or after the last.
func (m *Middleware) check(budgets []limiter.Budget) error {
	if err := checkHEAD(budgets); err != nil {
		return err
	}
	if !m.watch.complete.Load() && !m.route.Lists() {
		return nil
	}
	return first(m.unknown(budgets))
}

func first(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return errs[0]
}

// warnOfRoutes checks the routes of all budgets at the first request, when the
// router is complete.
func (m *Middleware) warnOfRoutes(ctx context.Context) {
	m.watch.complete.Store(true)
	if errs := m.unknown(m.limiter.Budgets()); errs != nil {
		m.limiter.Warn(ctx, "route-unknown", "budgets name routes that the router does not have, "+
			"and do not limit them", slog.Any("error", errors.Join(errs...)))
	}
}

// unknown returns an error for each route of a budget that the router does not
// have.
func (m *Middleware) unknown(budgets []limiter.Budget) (errs []error) {
	for _, b := range budgets {
		for i, route := range b.Routes {
			if route == keying.Unmatched || routes.HasPackage(route) {
				continue
			}
			registered, known, nearest := m.route.Registered(route)
			if registered || !known || routes.IsFullMethod(route) && !similar(route, nearest) {
				continue
			}
			reason := "want a route that the router has"
			if nearest != nil {
				reason += ": " + routes.Quote(nearest)
			}
			errs = append(errs, wrongRoute(b, i, reason))
		}
	}
	return errs
}

// similar reports whether one of the routes is another spelling of route.
func similar(route string, nearest []string) bool {
	return slices.ContainsFunc(nearest, func(n string) bool { return routes.Same(n, route) })
}

func wrongRoute(b limiter.Budget, i int, reason string) error {
	return wrong(fmt.Sprintf("Budget %q.Routes[%d]", b.Name, i), b.Routes[i], reason)
}
