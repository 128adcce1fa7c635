// Package resilient puts a store in front of two others, a shared one and a local one,
// so that requests are still limited while the shared store is hung, gone or lying:
//
//	shared, err := redisstore.New(client, redisstore.Config{})
//	...
//	local, err := memstore.New(memstore.Config{})
//	...
//	store, err := resilient.New(shared, local, resilient.Config{
//		Replicas: func() int { return 4 }, // processes that share the limits
//	})
//
// While the shared store decides, the local one is not asked, and nothing is counted
// twice. The two can be any stores: that of package redisstore, one made with storekit,
// or your own.
//
// # What happens while the shared store fails
//
// Each budget says so by OnError, and the strictest policy of the enforced budgets that
// apply to a request answers it:
//
//	Closed  refuses, for a second: 503 or UNAVAILABLE
//	Local   decides in this process, by its share of the limit: 429 if that is used up
//	Open    allows; what that means under attack is in package redisstore
//
// Of a request with Local budgets, their shares are charged together, in one step. Open
// and shadow budgets are not charged. A cost above the capacity of the limit is Never;
// one that only the share is too small for is refused as by Closed.
//
// The error beside such a Decision is a *[limiter.StoreError] whose Policy says which it
// was. RetryAfter of a local denial is at most the time in which the whole limit refills
// by the cost, because the shared store may be back by then.
//
// # Shares
//
// If R is what Config.Replicas returns, the share of a limit is
//
//	token bucket            Tokens/R per Per, Burst min(C, max(ceil(C/R), MaxCost))
//	fixed window, log       ceil(Tokens/R) per Per
//
// where C is the capacity of the limit, and MaxCost is 1 for a PerRequest budget. It is
// the same for every request. Traffic that is not spread evenly over the processes gets
// less than the limit in total. If R is not known, or the local store cannot hold the
// share exactly, the budget is Closed.
//
// Reservations are settled in the store that took them. [limiter.Limiter.Reset] resets
// the local account first, then the shared one.
//
// # What an outage can cost
//
// What is used locally is not charged to the shared account afterwards. For one account
// of a token bucket with capacity C and rate r, all processes together admit in the time
// T at most
//
//	(1+k)*C + r*T + the sum over the processes of
//	    c + the integral over its local time of r/R
//	      + the sum over the gaps between its local times of min(c, r*gap/R)
//	      + the growth of c each time that R becomes smaller
//
// plus corrections that a store failed to debit, where c is the capacity of a share, R is
// what it was at the latest local decision of the account, and k is how often the shared
// store forgot the account, for example by a restart without persistence. If R stays right
// and nothing is forgotten, that is at most
//
//	C + R*c + 2*r*T
//
// however often the shared store fails. R*c is at most C + R - 1, unless MaxCost makes
// shares larger: it can make R*c as large as R*C. A fixed window admits at most (1+k)*C
// in each of its windows, and ceil(C/R), with the smallest R in the window, more for each
// process that decides locally in it. A rolling log admits (1+k)*C*(floor(T/Per)+1), and
// ceil(C/R)*(floor(t/Per)+1) more for each process, where t is the time from its first to
// its last local decision.
//
// Budgets that are Open admit everything, and Closed ones nothing.
//
// # When the shared store is not asked
//
// A store that hangs is not asked: after a whole timeout in which no call was answered in
// time, and at least three were not, the breaker opens. Everybody who waits is answered
// at once, and so are further requests. While requests come, a probe is made in the
// background at first 10 ms after the last and later up to 150 ms, and a second one, at
// longer intervals, beside one that gets no reply. A probe is a Take of cost 0, which
// debits nothing. The first that is answered in time closes the breaker. Answers that are
// errors count as answers, unless they are errors of the network, or a
// *[limiter.StoreError] with the reason unavailable, timeout or ambiguous. So an attacker
// cannot open it by leaving early, nor by sending what the server refuses, if the store
// does not call that unavailable.
//
// Package redisstore has a breaker of its own, which counts calls to the server. The calls
// of other stores are bounded here, by Config.Timeout: they run in goroutines of their
// own, at most 4096 at a time, on a copy of the charges. A call or a probe that does not
// return when its context ends is left behind; while 4096 of them have not returned,
// calls are refused with the reason overload.
//
// # Watching it
//
// The limiter logs store-failed when failures begin and store-recovered when they have
// ended, with totals. Package metrics has ration_requests_total with the outcomes
// error_local, error_open and error_closed, ration_local_decisions_total,
// ration_breaker_open, ration_store_errors_total and ration_settles_lost_total.
//
// Construction does no I/O. If the shared store is down when a process starts, requests
// follow the policies, and the shared store decides once it answers.
package resilient
