package limiter

import (
	"context"
	"time"
)

// Charge is what one request takes from one account.
type Charge struct {
	Key    Key
	Limit  Limit
	Cost   int64 // tokens, at least 0; in Settle the correction
	Shadow bool  // counted and debited where it can pay, never enforced

	Result  Result  // written by Take and Peek
	Receipt Receipt // written by Take, consumed by Settle
}

// Result is what one account alone says to its charge. For an allowed request
// it is the state after the debit, else the state as it stands.
type Result struct {
	Outcome    Outcome
	Remaining  int64         // whole tokens left, at least 0
	RetryAfter time.Duration // 0 unless Deny
	ResetAfter time.Duration // until the account is full again
	// Overflow says that the account is an overflow account: the store has no room
	// for one of the key's own, and other keys use it too. Do not show its state to
	// callers.
	Overflow bool
}

// Receipt remembers what Take took, so that Settle can correct just that. It is
// written by stores and opaque to all others; the zero value says that nothing
// was taken. A copy is a second receipt: settle one of them.
type Receipt struct {
	At    int64  // the instant of the Take, in nanoseconds since the Unix epoch
	Taken int64  // tokens
	Place uint64 // which account: a number of the store's own
	Valid bool   // false: nothing was taken, or it is settled already
	Local bool   // taken in the local side of a store; see [Capabilities]
}

// Store keeps accounts. Package storetest is this promise as a test suite; the
// rules have the numbers that it prints.
//
//   - R1 Account arithmetic is exact: equal to rational arithmetic. Check says,
//     without I/O, whether the store can hold a limit exactly.
//   - R2 The instant of a request is the latest that the store has seen: a clock
//     that goes back neither drains nor credits.
//   - R3 An account starts full, refills lazily, and is full at its capacity.
//   - R4 A cost above the capacity is Never; one that the balance covers is
//     Allow; else Deny with the least wait. A store of several processes may remember a
//     denial: the wait is then up to a round trip too long, and what other processes
//     give back is seen up to a second late.
//   - R5 A request that is not allowed changes no balance and creates no account.
//   - R6 The charges of one request are decided together and debited together.
//     A key that appears twice adds up; with two different limits, or both
//     enforced and shadow, it is an error.
//   - R7 A cost of 0 is allowed, also in debt, and debits nothing. A negative
//     cost is a *[CostError] before any state is read.
//   - R8 Peek says what Take would say, and changes nothing.
//   - R9 Settle corrects by Charge.Cost what the receipt says was taken, in the
//     same account, and consumes the receipt; without one it is [ErrReceipt],
//     and a credit above what was taken is a *CostError, both before anything is
//     changed. A credit never lifts above the capacity, a debit never below minus
//     the capacity. If the window has ended or the log entry has left, under the
//     limit of the charge or under that of the account, a credit changes nothing
//     and a debit counts as taken now. An error with the reason
//     Unavailable, Timeout or Overload says that nothing was corrected: the receipts
//     stay valid, and Settle may be called again. A store that may have corrected one
//     of the charges consumes its receipt, or returns another reason. Settle does
//     not depend on its context. A Take that returns an error leaves no receipt.
//   - R10 A changed limit never mints: what is allowed at one instant, without
//     credits, is at most the largest capacity shown. Between a token bucket and
//     another algorithm what is left is carried, at most the new capacity; windows
//     and logs carry what was used. The first Take under the new limit that debits
//     the account or is denied carries the balance over; from then on the account
//     refills by the new limit.
//   - R11 Fixed windows are whole multiples of Per since the Unix epoch. An entry
//     of a rolling log leaves it when Per has passed.
//   - R12 Methods are safe for concurrent use and linearizable; hooks such as a
//     clock run with no lock held.
//   - K5 Keys that differ in any part are different accounts.
//   - R13 Memory is bounded, or the store says by what.
//   - R14 An error is a *CostError or *[ConfigError] (the caller's mistake),
//     ErrReceipt, a *[StoreError], or the context's own. A caller that leaves
//     breaks nothing: it gets its answer or its context's error, never a
//     *StoreError.
//
// Charges belong to the store until the call returns. A store that answers early
// copies them first and never writes after. A call with no charges is allowed.
//
// A Store may have one optional method; see [Capabilities]. Package storekit makes
// a Store of a database.
type Store interface {
	Check(l Limit) error
	Take(ctx context.Context, charges []Charge) (Decision, error)
	Peek(ctx context.Context, charges []Charge) (Decision, error)
	Settle(ctx context.Context, charges []Charge) error
}
