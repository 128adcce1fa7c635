// Package keying finds out who calls and where the call goes: the principal and
// the route of a request. Together they name the accounts that it draws on, so
// the one rule is that a caller can choose neither.
//
//	authenticated principal   WithPrincipal, by the service's authentication
//	network address           RemoteAddr, or a trusted proxy's word
//	route                     the registered pattern, never the raw path
//
// No header, cookie or query value is ever a principal. A caller who is nobody
// is refused, counted by address or counted with all the others: which of these
// is a required choice, see [Who].
//
// Everything here is safe for concurrent use.
package keying
