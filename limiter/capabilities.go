package limiter

import "context"

// Capabilities says what a [Store] can do beside deciding. A store tells by one
// optional method,
//
//	Capabilities() Capabilities
//
// whose answer never changes. A store without the method is one with the zero
// Capabilities: it can fail, and it can do nothing else.
type Capabilities struct {
	// Name is the metric label "store", such as "memory". Empty means "store".
	Name string
	// NeverFails says that the store does no I/O and always decides, so that no
	// failure policy is needed.
	NeverFails bool
	// Reset makes the accounts of the charges full; only Key and Limit are set.
	// Nil means that the store cannot; then [Limiter.Reset] fails.
	Reset func(ctx context.Context, charges []Charge) error
	// Plan is told which budgets are used from now on and which are no longer, by
	// name, so that the store can divide its memory among them. Limiters call it
	// once for each of their budgets; it counts. Nil means that the store does
	// not need to know.
	Plan func(add, remove []string)
	// Accounts returns the number of accounts that are not full, and of charges that
	// were decided on accounts which several keys share because MaxAccounts, or the
	// like, was reached. It may look at every account. Nil means not known.
	Accounts func() (live, overflowTakes int64)
	// BreakerOpen reports whether the store asks its server no more for now, because it
	// does not answer. Nil means that the store always asks.
	BreakerOpen func() bool
	// DeniedFromMemory returns the number of requests that the store has denied because
	// it remembered that they could not pay, without asking its server. Nil means that
	// it remembers nothing.
	DeniedFromMemory func() int64
	// Local decides in this process for budgets whose OnError is [Local], while the
	// store fails. Its charges have the limit that Share returns, so it keeps the share
	// of this process. Nil means that no budget can have OnError [Local].
	Local Store
	// Share returns the limit in Local for an account with the limit l; perRequest
	// says that every cost is 1. An error means that there is no share now; then the
	// budget answers as [Closed] does. It must be set if Local is.
	Share func(l Limit, perRequest bool) (Limit, error)
}

// capabilities returns what a store says of itself, with a name.
func capabilities(s Store) (c Capabilities) {
	if says, ok := s.(interface{ Capabilities() Capabilities }); ok {
		c = says.Capabilities()
	}
	if c.Name == "" {
		c.Name = "store"
	}
	return c
}
