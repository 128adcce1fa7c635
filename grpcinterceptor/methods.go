package grpcinterceptor

import (
	"fmt"
	"slices"
	"strings"
	"weak"

	"google.golang.org/grpc"

	"github.com/ration-go/ration/internal/routes"
	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
)

// Server is a *grpc.Server, or what else knows which services are registered.
type Server interface {
	GetServiceInfo() map[string]grpc.ServiceInfo
}

// Routes returns the routes of a server, sorted: the full methods of all
// registered services and those of [Config.Methods]. Metrics that are told them
// start at 0:
//
//	m.Routes(l.Name(), "grpc", i.Routes(server)...)
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

// Check returns an error for a budget on a method that the server does not have,
// which would limit nothing: a *[limiter.ConfigError] that names the budget and
// the nearest method. Call it when all services are registered, with the
// *grpc.Server; from then on Reload of the limiter refuses such budgets, too.
//
// It does not check routes of net/http, since a limiter may serve both. "/a/b"
// counts as one, unless the server has a service "a" or a method of that spelling.
func (i *Interceptor) Check(server Server) error {
	known := i.Routes(server)
	i.known.Store(&known)
	return i.check(i.limiter.Budgets())
}

// checkOnReload makes the limiter check the methods of new budgets. It does not
// keep i alive.
func (i *Interceptor) checkOnReload() {
	w := weak.Make(i)
	i.limiter.CheckRoutes(func(budgets []limiter.Budget) error {
		if i := w.Value(); i != nil {
			return i.check(budgets)
		}
		return nil
	})
}

// check returns an error for a budget on a method that the server of the last Check
// does not have.
func (i *Interceptor) check(budgets []limiter.Budget) error {
	known := i.known.Load()
	if known == nil {
		return nil
	}
	for _, b := range budgets {
		for n, route := range b.Routes {
			if reason := unreachable(route, *known); reason != "" {
				return wrong(fmt.Sprintf("Budget %q.Routes[%d]", b.Name, n),
					route, reason)

			}
		}
	}
	return nil
}

// unreachable returns why no call has the route, or "" if one may.
func unreachable(route string, known []string) string {
	if slices.Contains(known, route) || strings.ContainsAny(route, " {") {
		return ""
	}
	nearest := routes.Nearest(route, known)
	meant := slices.ContainsFunc(nearest, func(n string) bool { return routes.Same(n, route) })
	if !meant && !routes.HasPackage(route) && !hasService(known, route) {
		return "" // a route of net/http
	}
	const reason = "want a method that the server has"
	if nearest == nil {
		return reason
	}
	return reason + ": " + routes.Quote(nearest)
}

// hasService reports whether the server has the service of a method.
func hasService(known []string, route string) bool {
	service := route[:strings.LastIndexByte(route, '/')+1]
	return routes.IsFullMethod(route) && slices.ContainsFunc(known, func(method string) bool {
		return strings.HasPrefix(method, service)
	})
}

// route returns the full method, where the caller did not make it up: the
// server has an implementation, or Config.Methods lists it.
func (i *Interceptor) route(srv any, fullMethod string) string {
	if srv != nil || slices.Contains(i.cfg.Methods, fullMethod) {
		return fullMethod
	}
	return keying.Unmatched
}
