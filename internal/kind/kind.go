// Package kind has the kinds of principals that a service's own authentication
// cannot use. Package keying exports them.
package kind

// The kinds.
const (
	Address     = "address"     // a network address that nobody authenticated
	Certificate = "certificate" // a verified client certificate
	Shared      = "shared"      // the one account of all unauthenticated callers
)

// Reserved reports whether only this module may use the kind.
func Reserved(kind string) bool {
	return kind == Address || kind == Certificate || kind == Shared
}
