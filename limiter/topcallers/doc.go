// Package topcallers names the callers that use, come near to, and run into each budget
// most.
//
//	top, err := topcallers.New(topcallers.Config{})
//	...
//	l, err := limiter.New(store, budgets, limiter.Config{Observer: top.Observer()})
//	...
//	operators.Handle("GET /callers", top) // not for the public: it names callers
//
// For each budget there are three rankings: by requests that the budget was asked for, by
// those that it refused, and by those that it allowed with under 20 % left. A shadow
// budget refuses what it could not pay. Requests that no budget refused, but Config.Gate
// or a failure policy, are ranked under a budget without a name. A request that no
// budget was asked for, such as an exempt one, is in no ranking.
//
// # Accuracy
//
// A ranking has 512 cells, by the algorithm Space-Saving (Metwally, Agrawal, El Abbadi:
// Efficient Computation of Frequent and Top-k Elements in Data Streams, 2005). With N
// requests in a ranking,
//
//	Count - Error <= true count <= Count, and Error <= N/512
//
// so each caller with more than N/512 requests is in it. A ranking of at most 512 callers
// is exact. The number of distinct workload labels of a caller is an estimate, with a
// standard error of about 5 % up to 1,500 labels and 10 % above, and says at most 3,000.
//
// # Time
//
// Rankings show the last one to two Windows, 5 minutes each unless configured
// otherwise, so that old counts do not hide who calls now.
//
// # Cost
//
// Memory is fixed: about 0.5 MB for each ranking of requests and 0.3 MB for each of the
// others, once there is something to count, for at most MaxBudgets budgets; a budget that
// nobody has asked for two windows is dropped. Long names are cut, and compared
// as a whole by a seeded hash of 64 bits. To count a caller that is in the ranking takes
// no lock. Nothing is allocated for a request. There is no goroutine; a timer runs while
// there are requests.
package topcallers
