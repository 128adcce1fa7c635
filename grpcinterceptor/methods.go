package grpcinterceptor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"weak"

	"google.golang.org/grpc"

	"github.com/ration-go/ration/internal/routes"
	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
)

// Server is a *grpc.Server, or another registry of services.
type Server interface {
	GetServiceInfo() map[string]grpc.ServiceInfo
}

// Routes returns the routes of a server, sorted: the full methods of all registered
// services, and [Config.Methods].
func (i *Interceptor) Routes(server Server) []string {
	methods := slices.Clone(i.cfg.Methods)
	for service, info := range server.GetServiceInfo() {
		for _, method := range info.Methods {
			methods = append(methods, "/"+service+"/"+method.Name)
		}
	}
	slices.Sort(methods)
	return slices.Compact(methods)
}

// Check returns an error if a budget names a method that the server does not have,
// because such a budget limits nothing. Call it with the *grpc.Server once all services
// are registered. From then on, the limiter's Reload refuses such budgets too, and
// metrics exist for all methods. If calls arrive before Check and budgets name methods,
// that is logged once under the code route-unknown.
//
// The error is a *[limiter.ConfigError] that names the budget and the nearest method. If
// several methods are wrong, it joins one such error for each; see [errors.Join].
//
// If the limiter also has adapters of other transports, make them before Check: it then
// passes over routes that may be theirs, such as "GET /orders". It also passes over
// "/a/b", unless the server has a service "a", or a method of that spelling in another
// letter case.
func (i *Interceptor) Check(server Server) error {
	if v := reflect.ValueOf(server); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return wrong("Server", nil, "want the *grpc.Server, not nil")
	}
	known := i.Routes(server)
	i.known.Store(&known)
	i.adapter.Routes(transport, known...)
	return i.adapter.Check()
}

// check returns the check that the limiter runs at New, Check and Reload. It also runs
// more, if not nil, on the capabilities of the store. It does not keep i alive.
func (i *Interceptor) check(
	more func(limiter.Capabilities) error,
) func([]limiter.Budget, limiter.Capabilities, []string) error {
	w := weak.Make(i)
	return func(budgets []limiter.Budget, store limiter.Capabilities, transports []string) error {
		i := w.Value()
		if i == nil {
			return nil
		}
		if more != nil {
			if err := more(store); err != nil {
				return err
			}
		}
		return i.checkBudgets(budgets, len(transports) > 1)
	}
}

// checkBudgets returns an error for budgets that this interceptor cannot serve. After
// Check, these include budgets on methods that the server does not have. mixed says
// that the limiter has adapters of other transports.
func (i *Interceptor) checkBudgets(budgets []limiter.Budget, mixed bool) error {
	i.budgets.Store(&budgets)
	if err := i.workloads.Check(budgets); err != nil {
		return err
	}
	known := i.known.Load()
	if known == nil {
		i.unchecked.Store(i.needCheck(budgets))
		return nil
	}
	i.unchecked.Store(nil)
	var errs []error
	for _, b := range budgets {
		for n, route := range b.Routes {
			if reason := unreachable(route, *known, mixed); reason != "" {
				errs = append(errs, wrong(fmt.Sprintf("Budget %q.Routes[%d]", b.Name, n), route, reason))
			}
		}
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// unreachable returns the reason why no call can have the route, or "" if one can.
func unreachable(route string, known []string, mixed bool) string {
	if slices.Contains(known, route) || route == keying.Unmatched || isServed(known, route) ||
		mixed && strings.ContainsAny(route, " {") {
		return ""
	}
	nearest := routes.Nearest(route, known)
	meant := slices.ContainsFunc(nearest, func(n string) bool { return routes.Same(n, route) })
	if mixed && (routes.IsService(route) ||
		!meant && !routes.HasPackage(route) && !hasService(known, route)) {
		return "" // a route of net/http
	}
	if len(known) == 0 {
		return "the server has no services yet: call Check once they are registered"
	}
	const reason = "want a method that the server has"
	if nearest == nil {
		return reason
	}
	return reason + ": " + routes.Quote(nearest)
}

// isServed reports whether a route is a whole service that the server has.
func isServed(known []string, route string) bool {
	return routes.IsService(route) && hasService(known, strings.TrimSuffix(route, "*")+"Any")
}

// needCheck returns the names of the budgets on methods that only Check can verify, or
// nil if there are none. Patterns of net/http are not among them.
func (i *Interceptor) needCheck(budgets []limiter.Budget) *[]string {
	var names []string
	for _, b := range budgets {
		if slices.ContainsFunc(b.Routes, func(route string) bool {
			return (routes.IsFullMethod(route) || routes.IsService(route)) &&
				!slices.Contains(i.cfg.Methods, route)
		}) {
			names = append(names, b.Name)
		}
	}
	if names == nil {
		return nil
	}
	return &names
}

// watchChecked warns at a call if Check was not called although budgets need it.
func (i *Interceptor) watchChecked(ctx context.Context) {
	names := i.unchecked.Load()
	if names != nil && i.unchecked.CompareAndSwap(names, nil) {
		i.warn(ctx, "route-unknown", "calls arrive before Interceptor.Check, so nothing has "+
			"verified that the server has the methods in Budget.Routes; a budget on a misspelt method "+
			"limits nothing: call Check once all services are registered",
			slog.Any("budgets", *names))
	}
}

// hasService reports whether the server has the service of a full method.
func hasService(known []string, route string) bool {
	service := route[:strings.LastIndexByte(route, '/')+1]
	return routes.IsFullMethod(route) && slices.ContainsFunc(known, func(method string) bool {
		return strings.HasPrefix(method, service)
	})
}

// route returns the full method if the server has an implementation or Config.Methods
// lists it. Other names are the caller's invention and share one route.
func (i *Interceptor) route(srv any, fullMethod string) string {
	if srv != nil || slices.Contains(i.cfg.Methods, fullMethod) {
		return fullMethod
	}
	// A service may be registered without an implementation.
	if known := i.known.Load(); known != nil && slices.Contains(*known, fullMethod) {
		return fullMethod
	}
	return keying.Unmatched
}
