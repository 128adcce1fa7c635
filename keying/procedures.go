package keying

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/ration-go/ration/internal/routes"
)

// Procedures makes procedures of Connect, such as "/pkg.Orders/Get", routes of their own.
// A handler of Connect is mounted once for its service, so that a router sees only
// "/pkg.Orders/". Generated code names the procedures, in constants or descriptors.
//
//	route := keying.Procedures(keying.Mux(mux),
//		ordersconnect.OrdersGetProcedure, ordersconnect.OrdersListProcedure)
//
// A request counts on a procedure if that is its path, and if the pattern that serves it,
// as route says, is the procedure or its service: "/pkg.Orders/", or "/pkg.Orders/*" in
// chi. GET and POST share the procedure. All other requests count on their pattern.
//
// Procedures panics if route is nil or a name does not have the form of a procedure.
// The Route that it returns does not allocate, besides what route allocates.
func Procedures(route Route, names ...string) Route {
	if route == nil {
		panic("keying: Procedures of a nil route")
	}
	p := procedures{route, make(map[string]string, len(names))}
	for _, name := range names {
		if !routes.IsFullMethod(name) {
			panic(fmt.Sprintf("keying: Procedures: %q: want the form \"/pkg.Service/Method\"", name))
		}
		p.known[name] = name
	}
	return p.find
}

type procedures struct {
	route Route
	known map[string]string // by path; the value does not keep the request's memory alive
}

func (p *procedures) find(r *http.Request) (pattern string, ok bool) {
	if probe := probeOf(r); probe != nil {
		return p.answer(probe)
	}
	pattern, ok = p.route(r)
	if !ok {
		return pattern, false
	}
	if name, found := p.known[r.URL.Path]; found && servedBy(name, pattern) {
		return name, true
	}
	return pattern, true
}

// servedBy reports whether a pattern is a procedure or its service.
func servedBy(name, pattern string) bool {
	if pattern == name {
		return true
	}
	service := serviceOf(name)
	rest, ok := strings.CutPrefix(pattern, service)
	return ok && (rest == "" || rest == "*")
}

// serviceOf returns the pattern of a procedure's service, "/pkg.Service/".
func serviceOf(name string) string { return name[:strings.LastIndexByte(name, '/')+1] }

// answer answers a probe. A procedure, or a whole service, exists if the router has it or
// its service, or if the router's routes are not known.
func (p *procedures) answer(probe *probe) (pattern string, ok bool) {
	registered, known, nearest := p.route.Registered(probe.pattern)
	listed := p.route.List()
	if listed != nil {
		probe.listed = p.all(listed)
	}
	for name := range p.known {
		wanted := name == probe.pattern || routes.IsService(probe.pattern) &&
			serviceOf(name) == strings.TrimSuffix(probe.pattern, "*")
		if wanted && (!known || p.isServed(name, listed)) {
			return probe.pattern, true
		}
	}
	if !known {
		return "", false
	}
	probe.nearest = nearest
	if meant := routes.Nearest(probe.pattern, p.served(listed)); meant != nil && !registered {
		probe.nearest = meant
	}
	return probe.pattern, registered
}

// isServed reports whether the router has a pattern that serves a procedure. listed are
// the router's routes, or nil if it cannot list them.
func (p *procedures) isServed(name string, listed []string) bool {
	service := serviceOf(name)
	return slices.ContainsFunc([]string{name, service, service + "*"}, func(pattern string) bool {
		if listed != nil {
			return slices.Contains(listed, pattern)
		}
		registered, _, _ := p.route.Registered(pattern)
		return registered
	})
}

// served returns the procedures that the router serves.
func (p *procedures) served(listed []string) (names []string) {
	for name := range p.known {
		if p.isServed(name, listed) {
			names = append(names, name)
		}
	}
	return names
}

// all returns the listed routes and the procedures that are not among them, sorted.
func (p *procedures) all(listed []string) []string {
	all := slices.Concat(listed, p.served(listed))
	slices.Sort(all)
	return slices.Compact(all)
}
