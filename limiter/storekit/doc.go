// Package storekit makes a [limiter.Store] of a database. Its author writes a
// [Backend] of two methods, which lock, load and write bytes; this package does the
// rest: exact arithmetic, checks, deadlines, receipts and errors.
//
//	store, err := New(&backend{pool}, Config{Name: "postgres"})
//
// The example of [New] is a whole Backend in memory. The directory examples/postgres
// has one for PostgreSQL.
//
// # What Update does
//
//  1. Begin a transaction.
//  2. Lock each key, in the order given. Every process locks in this order, so two
//     requests cannot wait for each other. A key must be locked even if nothing is
//     stored under it, or two first requests of one caller both find a full account.
//  3. Read the clock of the database. A clock that was read before the locks can be
//     late by the whole wait for them.
//  4. Load the bytes of every key, as the last commit left them; nil if there are
//     none.
//  5. Call decide with the clock and the bytes. If it returns an error, roll back
//     and return the error.
//  6. Write each record: replace the stored bytes by Record.State, or delete the row
//     if State is nil. Other rows stay as they are.
//  7. Commit. If that fails and the transaction may still be committed, return
//     a *[limiter.StoreError] with the reason [Ambiguous].
//
// If the database asks to try the transaction again, as after a serialization
// failure, start again at step 1. Decide may run any number of times. The results of
// the last time count, and they reach the caller only after Update has returned nil.
//
// View is Update without step 6 and may call Update. If one statement reads all keys
// from one snapshot, it needs no locks. It reads the clock after the snapshot.
//
// # What goes wrong in SQL
//
//   - SELECT FOR UPDATE cannot lock a row that is not there. Use advisory locks.
//   - A statement sees the rows as they were when it started. One that locks and
//     loads can return what was there before it had to wait. Load in a second
//     statement.
//   - now() is the start of the transaction. Use clock_timestamp(), after the locks.
//   - At the levels REPEATABLE READ and SERIALIZABLE the whole transaction sees what
//     was there before the locks. Name READ COMMITTED in every transaction, since a
//     role or a pool can have another default.
//
// # Full accounts
//
// An account that is full again is the same as none. [Record.FullAt] says when: store
// it beside the bytes, delete such rows now and then, or pass it to a database whose
// rows expire. The statement that deletes must look at FullAt as it is then, so
// that it does not delete a row that has just been written, and must skip rows that
// are locked, so that it does not wait for a request that waits for it. If rows are
// never deleted, the table grows with the number of callers.
//
// # Time
//
// Each stored account has the last instant at which it was written, and the clock
// never goes back for it. If the clock of the database is set back, accounts that
// were used since then refill only once it has caught up; a Reset ends that.
//
// # Errors
//
// Stored bytes that are malformed, or were written by a newer version of this
// package, are a *[limiter.StoreError] with the reason [Other]. They never
// count as a full account. [Store.Reset] deletes them without reading them, and the
// account is full then. Versions of this package read what older ones have written.
//
// # Testing
//
// Package storetest holds the result to the promise of [limiter.Store]. Stores with
// different secrets share no accounts, so one table serves all tests:
//
//	storetest.Run(t, storetest.Harness{
//		New: func(t testing.TB, now func() time.Time) limiter.Store {
//			return limiter.Must(New(&backend{pool}, Config{
//				Now: now, Secret: []byte(rand.Text()), Timeout: time.Minute,
//			}))
//		},
//		AccountClock: true, // the last instant is kept for each account
//	})
//
// That tests the Backend in one process only. Set Harness.Shared as well, as the
// tests of examples/postgres do: it is what finds missing locks, a clock that was
// read too early, and errors of a commit that are not Ambiguous.
//
// # Without a Backend
//
// If a database does not fit [Backend], the pure layer below it can be used alone:
// [Prepare] checks the charges and names the accounts, [Request.Decide] decides over
// their bytes, and [Request.Finish] writes results and receipts. Deadlines, errors
// and callers that leave are then up to the author.
package storekit
