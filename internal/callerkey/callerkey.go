// Package callerkey is the name under which adapters keep the caller that they
// have charged in a request's context, where package keying finds it.
package callerkey

// Key is the key of a context's value, a *limiter.Caller.
type Key struct{}
