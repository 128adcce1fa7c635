// Package memstore keeps accounts in this process: exact, bounded, and without a
// goroutine.
//
// # How an account is kept
//
// An account is a record of 32 bytes without pointers: a fingerprint of its key,
// the number of its limit, and the instant at which it is full again. Records
// are in up to 256 shards with a lock each, in small blocks that grow and split one
// at a time. A request copies at most one block, and the directory of a shard if
// that must double: 24 bytes for each block, so about 400 kB if a shard holds a
// million records. Only an account that is full again is ever dropped, since a full account
// is the same as none. It is dropped when its block needs room, a block at a time.
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
// cap, rounded down to a power of two, or 256.
//
// A rolling log counts as what it holds: one account, and half a one for each entry
// that it has room for, at least two. The room grows by half as entries are added,
// and shrinks when less than an eighth of it is in use. If the share is used up it
// does not grow: then the latest entries of the log are merged, and leave it later
// than they might, never earlier.
//
// Two things exceed a share. After a Reload that adds budgets shares are smaller,
// and what others hold above theirs goes only as it fills up; until then the
// overflow accounts of the new ones, at most 512 each, exceed the cap. And an
// account that a Reload makes a rolling log takes one place more, room or not.
//
// # When a share is used up
//
// A new key first looks for a full account to drop, in its own block and in eight
// more. If there is none it uses an overflow account of its budget, one in each
// shard. Others in the same situation share it, whatever their limits: the strictest
// clamps. A rolling log keeps two entries there, and is stricter for it. So invented
// keys neither reset a spent account nor grow memory; they can make new, idle
// callers of that budget and kind share those few until accounts fill up again.
// Stats counts those takes, and Result.Overflow marks them.
//
// The shard of an authenticated key is chosen by its tenant and id together. That
// of an address is chosen by its network (the tenant: IPv4 /24, IPv6 /48), so that
// all addresses of a network share one overflow account and cannot use up those of
// other networks. What is left: if k networks flood, a new address is refused if
// its network shares an overflow account with one of them, which is so for about
// k in 256 networks: measured, 2 % for four networks, 6 % for 16, 24 % for 64. And
// new addresses of all other networks share the rest of the 256 accounts.
//
// A debt never goes to an overflow account. If Settle debits more than was taken,
// the debit goes to the caller's own account, and makes one if there is room. If
// there is none, it takes what the overflow account has left, and the rest is
// dropped. A credit goes to the account that was debited.
package memstore
