// Package redisstore keeps accounts in a Redis or Valkey server, so that any
// number of processes share them, with the same exact answers as memory:
//
//	client := redis.NewClient(&redis.Options{Addr: "localhost:6379", Dialer: redisstore.Dialer(nil)})
//	store, err := redisstore.New(client, redisstore.Config{})
//
// The example of [New] has all the options that are recommended.
//
// It works with one server (Redis 6.2 or later, Valkey) and with a master that
// Sentinels name (redis.NewFailoverClient); not with a Ring, and not with a
// Cluster yet. A decision is one script call and one round trip, whatever the number
// of budgets, at one instant of the server's clock.
//
// # Many requests at once
//
// Requests that arrive while others are in flight travel together in the next call.
// The script decides them one after the other, and each gets its own exact answer:
// nothing is leased, rounded or delayed. Requests that differ only in their cost
// share a line of the call, so thousands that a caller sends at once cost the server
// little more than one. A request that finds no other in flight is sent at once.
//
// Two to eight calls are in flight, one for each 2.5 ms of the round trip, but at most
// half of the client's PoolSize (and at least one). A call carries up to 128 lines; a run
// of equal costs counts as a line, each rolling log adds 7, and a correction of one 15.
// It has at most 64 KiB, unless one line is longer.
//
// Up to 8192 lines wait, at most 1024 of them for one principal (of addresses: for
// one network), and principals take turns. Corrections by Settle come first, in up to
// half of a call while others wait, and need no place: as many wait as were let in before. A request that
// cannot be answered before Config.Timeout has passed is not sent, which leaves the
// server's time for those that can: that is an error with the reason overload. If it is
// the caller's own deadline that comes too early, the error is storekit.ErrDeadline,
// which is a context.DeadlineExceeded, and may come before the context has ended: that
// is no failure of the store, so no OnError answers. A caller that leaves before its
// request is sent takes nothing. If it leaves later, the requests that still wait in its
// line for the same cost get the allowed decisions first.
//
// # Rolling logs
//
// A log has up to 10,000 entries, and no request reads all of them: a decision reads at
// most 2*log2(n) of n entries, and a correction rewrites about log2(n). So a request on
// a full log costs the server four to seven times what one on a bucket does. Now and then
// one that is allowed or corrected also drops what has left or has been given back in
// full. That is copied in bulk; only after thousands of corrections of old entries it
// takes the server some milliseconds.
//
// # Denials are remembered
//
// A caller that was denied and asks again is denied without a call, for up to a second
// (Config.RememberDenials), also while the server hangs. The store remembers the
// accounts of denied requests, at most 8192 of them in some 1.5 MB, as the latest reply
// has shown them. It denies a take by itself only if all its enforced accounts are
// remembered under its limits, and one of them cannot pay, even if the clocks differ by
// 0.1 %. When the wait has ended all ask, together. Before the second has ended one
// request asks, and the others are still denied. A take of a cost above the capacity of a
// remembered bucket or window is Never without a call, too.
//
// RetryAfter then counts from the last reply, so it can be one round trip too long, and it
// is too short only if others draw, or if a reply to a debit was lost. Settle, Reset and changed limits of this process
// are seen at once; those of other processes, and accounts that the server has
// forgotten, up to a second late. Remaining and ResetAfter of an account that does not
// deny are estimates from the last reply. A rolling log is remembered for one cost. If a shadow
// account is not remembered, one request asks, and the others count it as full.
// Peek always asks, a request of more than 16 charges too, and with Config.Now nothing is
// remembered.
//
// # What is exact
//
// The script counts in integers below 2^53 and rounds nothing; instants and waits
// are microseconds. Check refuses a limit that does not fit, and says why: that
// is a token bucket whose capacity times Per in microseconds passes 2^52 and
// whose Tokens and Per have no large common factor, such as 999,983 a day, and a window
// or a log whose Per is no whole number of microseconds.
//
// The latest instant (R2) is kept for each account and written by debits only.
// Where the server's clock was set back, or another server took over, an account
// stands still until the clock is there again; an instant more than
// Config.MaxAhead ahead is set to now, its balance kept, and counted in [Stats].
// RetryAfter and ResetAfter count from the latest instant, as R2 has it: while an
// account stands still they are too short by what the clock is behind, at most
// MaxAhead, and a caller that waits for as long as it was told is refused again.
//
// # When the server fails
//
// Each request is answered within Config.Timeout, whatever the client's options are,
// and its call goes on without a caller that leaves. A failure is a
// *[limiter.StoreError] with one of these reasons, and each budget's OnError answers; no
// reason is ever a denial, and a denial is never an error:
//
//	unavailable  nothing ran: no connection, or the server refuses (OOM,
//	             READONLY, LOADING, NOREPLICAS, ...)
//	timeout      nothing ran within the timeout, and nothing will
//	overload     nothing ran: too many requests wait for an answer in time
//	ambiguous    the command was sent and no reply came: debited or not
//	other        no rights, a foreign value, a misuse; nothing was debited,
//	             and nothing corrected
//
// A request is debited at most once. The client's own retries are refused; the
// store tries again, once for each cause, only after replies that say that nothing
// ran, such as NOSCRIPT after a restart. Each call carries its deadline in the server's time,
// so that a script that runs late, on a server that was stopped or cut off,
// debits nothing.
//
// If no call is answered for a whole Timeout, and at least three were made, the store
// stops asking: every request fails at once as unavailable, and the error says what the
// last failure was. Calls that wait for a connection, and calls that callers give up, do
// not count, nor do calls of a process that is late itself for lack of processor time, and
// any reply in time starts the count again. So callers can't cause it, however many they
// are and however short their deadlines.
//
// Requests then let the store probe the server, and a reply in time ends the incident. A
// server that refuses connections is probed at least every 150 ms. At a server that hangs,
// one probe keeps its connection and waits up to a minute for the reply, because a hung
// server keeps the connections that clients give up; other probes try new connections, at
// growing intervals of up to 30 seconds. Without requests there are no probes.
//
// # Client options
//
//   - Dialer: use [Dialer]. Without it the store can be back 1.2 s later than the server.
//   - PoolSize: 16 is enough. Calls use half of the pool, at most 8 connections. A client
//     whose other commands block or run long (BLPOP, big replies) is better not shared.
//   - ReadTimeout, WriteTimeout, MaxRetries and ContextTimeoutEnabled do not matter to the
//     store: Config.Timeout bounds every request.
//   - DialTimeout: how long to wait for a connection to a server that is not there, 500 ms
//     in one region. A probe is one dial, so this is also how late the store can notice that
//     a lost network is back.
//   - MinIdleConns: connections that are made before they are needed, if making one takes
//     longer than Config.Timeout (a far server, TLS). Otherwise the first requests fail:
//     their connection is finished beside them, and used by the next.
//   - DisableIdentity: saves a round trip for each connection, and a right (see Rights).
//   - Log lines: the client logs failed connections itself. redis.SetLogger sends its lines
//     elsewhere, for all clients of the process, and logging.Disable (of go-redis) drops
//     them. The limiter logs incidents itself.
//
// A connection of a *redis.Client whose call has timed out is given up at once, not
// after ReadTimeout; see [Client]. A caller whose context is cancelled while it makes a
// call itself may wait for the rest of the timeout.
//
// # What OnError decides
//
// While the store fails, Closed refuses every request of the budget, and Open lets every
// request through, without limit. So with Open, whoever can stop the server also switches
// the limit off: by a load on the server from elsewhere, or by filling its memory with
// accounts of invented callers. Choose Closed for what costs money or protects a system
// that is smaller than the traffic, and Open if refusing everybody is the greater harm.
//
// # What can be lost
//
// An account holds one capacity at most, so whatever the server forgets admits at most
// one capacity more for each account and event. If the server forgets k times in a time T,
// an account of capacity C and rate r allows at most (1+k)C + rT, whatever else fails. These
// count as forgetting: a restart without persistence, a failover (replication is
// asynchronous; min-replicas-to-write bounds it), a FLUSHALL, an eviction.
//
// Persistence: with appendonly yes and appendfsync everysec, a crash forgets the last second;
// with always, nothing. Without persistence every restart makes all accounts full, which is
// often good enough for limits of a minute or less.
//
// Eviction: a server with a maxmemory may evict accounts, by its maxmemory-policy. Of 500
// used-up accounts whose callers were away, so many were full again after others had
// filled the memory:
//
//	noeviction                       0   new accounts are errors (OOM): OnError answers
//	volatile-ttl                     0   evicts first what would be full soonest
//	allkeys-lru, volatile-lru      480   a caller who waits is forgotten first
//	allkeys-lfu, volatile-lfu      320
//	allkeys-random, ...            320
//
// Use noeviction, or volatile-ttl if invented callers are a greater danger than a forgotten
// account. Nothing grows for ever: every key expires when its account is full again, some
// milliseconds later at most, and never before.
//
// # Memory
//
// A bucket or a window takes 120 to 160 bytes of the server, its key included, and more
// if names of budgets and routes are long. A rolling log takes 16 more for each instant
// that it remembers, up to four times that while entries that have left are still there
// and Redis has room to append. Nothing but the server's memory bounds their number. Callers whom nobody authenticated can
// invent addresses faster than accounts expire, so budgets keyed by address
// belong in a memory store in front of this one: each process then bounds what
// strangers do to it, and examples/redis shows how.
//
// # Keys and values
//
// [KeyFor] tells where an account is. A key is
//
//	prefix{tag}budget:principal:route:workload
//	ration:{oGCw}orders:3gm9_Vv9CshC-RQjptzGFw:GET%20/orders/%7Bid%7D
//
// without colons at its end, and without braces if the key has no principal. The
// principal is 128 bits of an HMAC-SHA-256 under Config.Secret. The tag is the beginning
// of such a hash of the tenant, or of the principal if it has none: it keeps a tenant's
// keys together, and does not tell tenants apart. The other parts are percent-encoded, so
// that no id and no brace of a caller's is in a key; without a Secret the hash is
// unkeyed, and who can list the keys can search for ids. A change of Prefix or Secret is a fresh start for all accounts.
//
// A value begins with the version of its format, 2, and names the limit that it is
// counted under; ration.lua has the rest. Version 1 was never released: its keys had
// other names, so that each account starts full once, and what it left expires. A process that finds a version above
// its own leaves the value alone and answers other. If no newer process will come
// back, [Store.Reset] or the deletion of the key makes the account full.
//
// A later version of this package reads the formats of those before it, and writes
// a new format only from the version after the one that can read it. So upgrade one
// version at a time, and processes of neighbouring versions share their accounts.
//
// The same holds for limits: while two processes disagree, each request first
// carries the balance over to its own limit, the stricter clamps, and nothing is
// minted. If one of the limits is a rolling log and the other has another algorithm
// or Per, what the log holds counts as used now each time, so that a caller who keeps
// both processes busy is refused until they agree. Give such a budget another name
// instead, under which all accounts begin full.
//
// Anything else under a key of ours (another type, a cut value, not a number) is
// an error of reason other; the Take or Settle that finds it changes no account and
// deletes the key, so that the account is full for the next.
// A log is not read as a whole: if the damage is in an entry, the store answers from the
// rest, with a wait that may be too long, or finds it later.
//
// # Rights
//
// The client's user needs, on keys of the prefix, and nothing else:
//
//	ACL SETUSER ration on >secret ~ration:* -@all +evalsha +eval +time +get +mget
//	    +getrange +exists +set +setrange +pexpireat +del +hello
//
// Scripts are loaded by EVAL when a server does not know them, so no SCRIPT
// command is needed. A client without DisableIdentity also tries CLIENT SETINFO for each
// connection; that it may not is no error, but an entry in the server's ACL LOG.
//
// All of them are needed: a user that lacks one of the commands that write can see
// a script end halfway, with some accounts of a request changed and others not.
package redisstore
