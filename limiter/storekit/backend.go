package storekit

import (
	"context"
	"time"
)

// Backend keeps the bytes of accounts in a database. It understands neither
// limits nor budgets. The package comment says step by step what its methods do.
//
// Methods are called by many goroutines at once. Keys come without repetition, at
// least one, in the order in which every process locks them. ctx ends at the
// store's deadline and never because a caller has left, so it can be used for
// every step up to and including the commit.
//
// An error means that nothing was written. If that is not certain, as after a failed
// commit, the error is a *[limiter.StoreError] with the reason
// [Ambiguous]. Other reasons can be stated the same way; without one, an
// error of ctx or of a network timeout is [Timeout], any other *net.OpError
// [Unavailable], and all else [Other].
type Backend interface {
	// Update locks the accounts of keys, calls decide with their bytes, and writes
	// the records that decide returns, all of them or none.
	Update(ctx context.Context, keys []Key, decide DecideFunc) error
	// View calls decide with the bytes of the accounts of keys, all as they were at
	// one moment. There is nothing to write: decide returns no records. A Backend
	// without a cheaper way calls Update.
	View(ctx context.Context, keys []Key, decide DecideFunc) error
}

// DecideFunc decides one request. now is the Backend's clock, read after the
// accounts are locked; for one database, that is the clock of its server. states[i]
// is what is stored under keys[i], or nil if nothing is. It does not keep states,
// does no I/O and changes nothing outside, so a transaction that is tried again
// calls it again; the last call counts.
//
// The error is for the Backend to return, once it has rolled back.
type DecideFunc func(now time.Time, states [][]byte) ([]Record, error)

// Record is what a [Backend] writes for one account.
type Record struct {
	Key Key
	// State replaces the stored bytes. Nil means that the row is deleted, if there
	// is one.
	State []byte
	// FullAt is when the account is full again, rounded up to a whole second.
	// Once the Backend's clock has reached it, the row can be deleted: no row and a
	// full account are the same. It need not be. FullAt is zero if State is nil.
	FullAt time.Time
}
