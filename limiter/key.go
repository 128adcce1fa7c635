package limiter

import (
	"strings"

	"github.com/ration-go/ration/internal/kind"
)

// Principal is the authenticated caller. An empty Kind or ID is nobody; an
// empty Tenant is a tenant of its own.
type Principal struct{ Kind, Tenant, ID string }

// Nobody reports whether p names no caller.
func (p Principal) Nobody() bool { return p.Kind == "" || p.ID == "" }

// Caller is one request's caller, as the adapters resolve it.
type Caller struct {
	Principal Principal
	Route     string // the registered pattern, never the raw path
	Workload  string // a label of the caller's own choice; see [ByWorkload]
}

// trim drops the workload of an unauthenticated caller or an address: labels
// exist only below a principal.
func (c *Caller) trim() {
	if c.Principal.Nobody() || c.Principal.Kind == kind.Address {
		c.Workload = ""
	}
}

// Scope says which parts of a request make a budget's key; combine with |. The
// zero Scope is one account for everybody.
type Scope uint8

const (
	// ByTenant gives each tenant an account. A principal without a tenant is a
	// tenant of its own, and an address's tenant is never that of a user.
	ByTenant Scope = 1 << iota
	// ByPrincipal gives each principal an account: kind, tenant and id.
	ByPrincipal
	// ByRoute gives each route an account.
	ByRoute
	// ByWorkload splits a principal's account by a label that the caller itself
	// chooses. It needs ByPrincipal.
	ByWorkload

	allScopes = ByTenant | ByPrincipal | ByRoute | ByWorkload
)

// names returns the scope as "ByPrincipal|ByRoute", or "everybody" for 0.
func (s Scope) names() string {
	var parts []string
	for i, name := range [...]string{"ByTenant", "ByPrincipal", "ByRoute", "ByWorkload"} {
		if s&(1<<i) != 0 {
			parts = append(parts, name)
		}
	}
	if s&^allScopes != 0 {
		parts = append(parts, "unknown")
	}
	if len(parts) == 0 {
		return "everybody"
	}
	return strings.Join(parts, "|")
}

// keys returns the scope without the parts that change no key: a principal's key
// has its tenant already.
func (s Scope) keys() Scope {
	if s&ByPrincipal != 0 {
		s &^= ByTenant
	}
	return s
}

// principals reports whether the scope needs a principal.
func (s Scope) principals() bool { return s&(ByTenant|ByPrincipal|ByWorkload) != 0 }

// tenant returns the principal that stands for p's tenant.
func tenant(p Principal) Principal {
	switch {
	case p.Tenant == "":
		return p
	case kind.Reserved(p.Kind):
		return Principal{Kind: p.Kind, Tenant: p.Tenant}
	default:
		return Principal{Tenant: p.Tenant}
	}
}

// Key names one account: the budget and the scoped parts. It is comparable and
// never joined into a string, so no separator can be injected. Parts out of
// scope are empty.
type Key struct {
	Budget    string
	Principal Principal
	Route     string
	Workload  string
}
