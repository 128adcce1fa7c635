// Package routes says what routes look like: which of them may have been meant by
// one that does not exist, and which have the form of gRPC.
package routes

import (
	"slices"
	"strings"
)

// Nearest returns the known routes that are most like route: all that are the [Same];
// otherwise the one with the fewest letters to change in its path, if those are at
// most a third. It returns nil if there is none.
func Nearest(route string, known []string) []string {
	var same []string
	most := max(1, len(plain(route))/3)
	best, fewest := "", 0
	for _, k := range known {
		if Same(k, route) {
			same = append(same, k)
		}
		inPath, inAll := distance(plain(route), plain(k)), distance(route, k)
		if inPath <= most && (best == "" || inPath+inAll < fewest) {
			best, fewest = k, inPath+inAll
		}
	}
	switch {
	case same != nil:
		slices.Sort(same)
		return slices.Compact(same)
	case best != "":
		return []string{best}
	default:
		return nil
	}
}

// Same reports whether two routes differ only in the method, in letter case and in
// slashes at the ends.
func Same(a, b string) bool { return plain(a) == plain(b) }

// plain returns the route without a method, in lower case and without slashes at
// its ends.
func plain(route string) string {
	if i := strings.LastIndexAny(route, " \t"); i >= 0 {
		route = route[i+1:]
	}
	return strings.ToLower(strings.Trim(strings.TrimSuffix(route, "{$}"), "/"))
}

// distance returns how many bytes must be changed, added or removed to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// Quote lists routes in prose.
func Quote(routes []string) string { return `"` + strings.Join(routes, `" or "`) + `"` }

// IsFullMethod reports whether a route has the form of a gRPC method,
// "/pkg.Service/Method": two segments and neither a method of HTTP nor a wildcard.
// A pattern such as "/orders/list" has that form, too.
func IsFullMethod(route string) bool {
	rest, rooted := strings.CutPrefix(route, "/")
	service, method, two := strings.Cut(rest, "/")
	return rooted && two && service != "" && method != "" &&
		!strings.ContainsAny(method, "/*") && !strings.ContainsAny(route, " \t{")
}

// HasPackage reports whether a route is a gRPC method of a service in a package, as
// "/pkg.Service/Method" is: hardly a pattern of net/http.
func HasPackage(route string) bool {
	service, _, _ := strings.Cut(strings.TrimPrefix(route, "/"), "/")
	return IsFullMethod(route) && strings.Contains(service, ".")
}

// IsService reports whether an entry of Budget.Routes means a whole service,
// "/pkg.Service/*": all its methods and procedures. The service is in a package, because
// "/orders/*" is a pattern of a router.
func IsService(route string) bool {
	service, ok := strings.CutSuffix(strings.TrimPrefix(route, "/"), "/*")
	i := strings.LastIndexByte(service, '.')
	if !ok || route[0] != '/' || i < 1 || i+1 == len(service) ||
		strings.ContainsAny(service, "/ \t{}*") {
		return false
	}
	first := service[i+1]
	return first == '_' || 'a' <= first|0x20 && first|0x20 <= 'z'
}

// ServiceOf returns the entry of Budget.Routes that means the service of a route, if the
// route is a method, or the pattern of a service, "/pkg.Service/".
func ServiceOf(route string) (service string, ok bool) {
	i := strings.LastIndexByte(route, '/')
	if i < 1 || route[0] != '/' {
		return "", false
	}
	return route[:i], true
}
