// Package memstore keeps accounts in this process: exact, bounded, and without a
// goroutine.
//
// # How an account is kept
//
// An account is a record of 32 bytes without pointers: a fingerprint of its key,
// the number of its limit, and the instant at which it is full again. Records
// live in up to 256 shards with a lock each, in small blocks that grow and split one
// at a time, so that no request waits for more than one block's copy. Only an
// account that is full again is ever dropped, since a full account is the same
// as none; it is dropped where its block needs room, a block at a time.
//
// Keys are not kept. The fingerprint has 96 bits of a hash whose seeds are drawn
// for each Store and never leave it, so nobody can search for two keys that
// share one. That any two of n accounts do by accident has a chance below
// n*n/2^97: for a million accounts, 1 in 10^17. (Of the names that the service
// gives, budget, kind and route, 64 bits count.)
//
// # How memory is bounded
//
// Config.MaxAccounts is the cap. A quarter of it is for callers known by address
// only, three quarters for the others, and each budget has an equal share of
// both: a flood of one budget's keys never displaces another's, and addresses
// never displace the authenticated. Of a share, room for the overflow accounts is
// set aside: one in each shard, and there is a shard for every 128 accounts of the
// cap, rounded down to a power of two, or 256. A rolling log counts as one account
// and half a one for each of its Tokens. A Reload that adds budgets makes shares
// smaller; what others hold above theirs goes only as it fills up, and until then
// the overflow accounts of the new ones, at most 512 each, exceed the cap.
//
// A new key that finds its share used up first looks for a full account to drop
// in its own block and in eight more. Where there is none it draws on an overflow
// account of its budget, one in each shard, which it shares with others in the
// same need, whatever their limits: the strictest clamps. A rolling log keeps two
// entries there, and is stricter for it. So invented keys neither reset a spent
// account nor grow memory; they can make new, idle callers of that budget and
// kind share those few until accounts fill up again. Stats counts those takes.
package memstore
