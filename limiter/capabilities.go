package limiter

import "context"

// Capabilities says what a [Store] can do beyond the interface. A Store may have
// one optional method that returns it:
//
//	Capabilities() Capabilities
//
// The method is called at any time and by many goroutines, and always returns the
// same value. The zero Capabilities stand for a Store without the method: it has
// no name, it can fail, and it can do nothing more.
type Capabilities struct {
	// Name is the metric label "store", such as "redis". Empty means that the
	// store has no name.
	Name string
	// NeverFails says that no call returns a *[StoreError]. A store that says
	// nothing can fail, and each [Budget] on it needs an OnError.
	NeverFails bool
	// Reset makes the accounts of the charges full, whatever was used of them; only
	// the keys count. Its error is a *StoreError, or ctx's own. Nil means that the
	// store cannot: [Limiter.Reset] then returns [errors.ErrUnsupported].
	Reset func(ctx context.Context, charges []Charge) error
	// Plan announces the names of the budgets that will be charged from now on, and
	// of those that will not, so that a store can divide its memory among the
	// budgets. Nil means that the store does not need to know.
	Plan func(add, remove []string)
	// Accounts returns the number of accounts that are not full, and of charges that
	// were decided on overflow accounts. Nil means that the store does not count.
	Accounts func() (live, overflowTakes int64)
}
