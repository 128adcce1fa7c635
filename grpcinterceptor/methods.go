package grpcinterceptor

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc"

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
	routes := slices.Clone(i.cfg.Methods)
	for service, info := range server.GetServiceInfo() {
		for _, method := range info.Methods {
			routes = append(routes, "/"+service+"/"+method.Name)
		}
	}
	slices.Sort(routes)
	return slices.Compact(routes)
}

// Check returns an error for a budget on a method that the server does not have,
// which would limit nothing: a *[limiter.ConfigError]. Call it once all services
// are registered, with the *grpc.Server. Routes of net/http, with a method or a
// wildcard, are not looked at, since a limiter may serve both.
func (i *Interceptor) Check(server Server) error {
	known := i.Routes(server)
	for _, b := range i.limiter.Budgets() {
		for n, route := range b.Routes {
			if reason := unreachable(route, known); reason != "" {
				return &limiter.ConfigError{Field: fmt.Sprintf("Budget %q.Routes[%d]", b.Name, n),
					Value: route, Reason: reason}
			}
		}
	}
	return nil
}

// unreachable returns why no call has the route, or "" where one may.
func unreachable(route string, known []string) string {
	if slices.Contains(known, route) || strings.ContainsAny(route, " {") {
		return ""
	}
	if method := "/" + strings.Trim(route, "/"); slices.Contains(known, method) {
		return fmt.Sprintf("want %q", method)
	}
	if isFullMethod(route) {
		return "want a method that the server has"
	}
	return ""
}

// isFullMethod reports whether s has the form "/pkg.Service/Method".
func isFullMethod(s string) bool {
	service, method, found := strings.Cut(strings.TrimPrefix(s, "/"), "/")
	return found && strings.HasPrefix(s, "/") && service != "" && method != "" &&
		!strings.Contains(method, "/")
}

// route returns the full method, where the caller did not make it up: the
// server has an implementation, or Config.Methods lists it.
func (i *Interceptor) route(srv any, fullMethod string) string {
	if srv != nil || slices.Contains(i.cfg.Methods, fullMethod) {
		return fullMethod
	}
	return keying.Unmatched
}
