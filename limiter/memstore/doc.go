// Package memstore keeps accounts in the memory of one process. It is exact, its memory
// is bounded, and it starts no goroutine.
//
// # How an account is kept
//
// An account is a record of 32 bytes without pointers: a fingerprint of its key,
// the number of its limit, and the instant at which it is full again. Records
// are in up to 256 shards with a lock each, in small blocks that grow and split one
// at a time. A request copies at most one block, and the directory of a shard if
// that must double: 24 bytes for each block, so about 400 kB if a shard holds a
// million records. Only full accounts are dropped, since a full account is the same as
// none. They are dropped when their block needs room, a block at a time.
//
// Keys are not kept. The fingerprint is 96 bits of a hash whose seeds are random for
// each Store and never leave it, so nobody can search for two keys with the same
// fingerprint. The chance that any two of n accounts have the same one is below
// n*n/2^97: for a million accounts, 1 in 10^17. (The names that the service chooses,
// which are budget, kind and route, are hashed to 64 bits.)
//
// # How memory is bounded
//
// Config.MaxAccounts is the cap. A quarter of it is for callers known by address
// only, three quarters for all others, and each budget has an equal share of both
// parts. So a flood of one budget's keys never evicts another budget's accounts, and
// addresses never evict authenticated callers. In each share, places are reserved for
// overflow accounts: one in each shard. The number of shards is the cap divided by 128,
// rounded down to a power of two, at least 1 and at most 256.
//
// While a share has plenty of room, a shard takes places from it in batches of 16. When
// the share is used up, the shards give back what they have not used, so that a budget
// keeps exactly as many accounts as its share.
//
// A rolling log counts as one account, plus half of one for each entry that it has room
// for, at least two. The room grows by half as entries are added, and shrinks when less
// than an eighth of it is in use. If the share is used up, the log does not grow: its
// latest entries are merged. They may leave the log too late, but never too early.
//
// A share can be exceeded in two ways. After a Reload that adds budgets, the shares are
// smaller, and accounts of other budgets above their new shares are dropped only when
// they are full. Until then the overflow accounts of the new budgets, at most 512 each,
// exceed the cap. And an account that becomes a rolling log by a Reload takes one place
// more, even if there is no room.
//
// # When a share is used up
//
// The request of a new key first searches for full accounts to drop: in the block of the
// key and in eight more. If there are none, it uses an overflow account of its budget,
// which all such requests in the same shard share. If their limits differ, the strictest
// applies. A rolling log keeps only two entries there, and is stricter because of it. So
// invented keys neither reset a spent account nor use more memory. But new, idle callers
// of the same budget and part share the overflow accounts until other accounts are full.
// Stats counts the takes on overflow accounts, and Result.Overflow marks them.
//
// The shard of an authenticated key is chosen by its tenant and id together. The shard
// of an address is chosen by its network (the tenant: IPv4 /24, IPv6 /48), so that
// all addresses of a network share one overflow account and cannot use up those of
// other networks. But if k networks flood, they use up k of the 256 overflow accounts,
// and new addresses of other networks in the same shards are refused. Measured: 2 % of
// new addresses for four networks, 6 % for 16, 24 % for 64. The new addresses of all
// other networks share the remaining accounts.
//
// An overflow account is never in debt. If Settle debits more than was taken, the debit
// goes to the caller's own account, a new one if there is room. If there is no room, it
// takes what the overflow account has left, and the rest is dropped. A credit goes to
// the account that was debited.
package memstore
