package main

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/ration-go/ration/limiter"
)

// workload is one comparison.
type workload struct {
	name    string
	cores   int
	measure func(options) section
}

// workloads returns all comparisons in the order of the report.
func workloads(o options) []workload {
	hot := load{keys: 1, limit: allowing, heavy: 1}
	hotDenied := load{keys: 1, limit: denying, deny: true}
	kept := load{keys: o.keys, limit: allowing, heavy: 1}
	fast := load{keys: o.keys, limit: limiter.PerSecond(1000)}
	slow := load{keys: o.keys, limit: limiter.PerSecond(20)}
	mixed := load{keys: o.keys, limit: deep, heavy: 0.1}
	capped := mixed
	// One budget has three quarters of the cap, less its overflow accounts.
	capped.maxAccounts = (o.keys/10 + o.keys/50) * 4 / 3
	plans := fast
	plans.plans = true
	idle := ", each full again at its visit, "
	n := power(o.keys)
	return append([]workload{
		versus("hot/allow", "one hot key, allowed", hot, 1, bounds{peer: 1.35, twoPart: 1}),
		versus("hot/deny", "one hot key, denied", hotDenied, 1, bounds{peer: 1.35, twoPart: 1}),
		versus("hot/cores=2", "one hot key, two cores", hot, 2, bounds{}),
		versus("kept/cores=1", n+" kept accounts, one core", kept, 1, bounds{peer: 0.65}),
		versus("kept/cores=2", n+" kept accounts, two cores", kept, 2, bounds{peer: 0.65}),
		versus("idle/1000/cores=1", n+" accounts of 1000/s"+idle+"one core", fast, 1, bounds{peer: 0.55}),
		versus("idle/1000/cores=2", n+" accounts of 1000/s"+idle+"two cores", fast, 2, bounds{peer: 0.85}),
		versus("idle/20/cores=1", n+" accounts of 20/s"+idle+"one core", slow, 1, bounds{peer: 0.9}),
		versus("idle/20/cores=2", n+" accounts of 20/s"+idle+"two cores", slow, 2, bounds{peer: 1.1}),
		versus("mixed", n+" accounts, 90 % full again, 10 % kept, two cores", mixed, 2, bounds{}),
		versus("cap", "the same near MaxAccounts", capped, 2, bounds{}),
		versus("plans", n+" accounts of 1000/s"+idle+"with LimitFor", plans, 1, bounds{}),
		{name: "new", cores: 1, measure: measureNew},
		{name: "budgets", cores: 1, measure: measureBudgets},
		{name: "growth", cores: 2, measure: measureGrowth},
		{name: "middleware/allow", cores: 1, measure: measureMiddlewares("a middleware, allowed", false,
			map[string]bounds{withHeaders: {peer: 0.75, allocs: 2}, withoutHeaders: {peer: 0.45, allocs: 1}})},
		{name: "middleware/deny", cores: 1, measure: measureMiddlewares("a middleware, denied", true,
			map[string]bounds{withHeaders: {peer: 0.75}})},
	}, redisWorkloads()...)
}

// power writes a power of two.
func power(n int) string {
	exponent := 0
	for 1<<exponent < n {
		exponent++
	}
	return fmt.Sprintf("2^%d", exponent)
}

// load is what the limiters of a comparison are set up for.
type load struct {
	keys  int           // accounts
	cores int           // goroutines that decide at the same time
	limit limiter.Limit // of each account
	heavy float64       // the part of the accounts that never get full
	deny  bool          // every decision is a denial, else an allowance
	plans bool          // this module asks LimitFor for the limit

	maxAccounts int // of this module; 0 is far more than needed
	hint        int // accounts to make room for at once; 0 where memory is measured
	visit       []string
}

// Limits of the accounts. An account of the first or the last that has used half of its
// burst is neither full nor empty again while it is measured. What is used, in nanoseconds
// times tokens, fits 64 bits, as it does for ordinary limits.
var (
	allowing = limiter.Limit{Tokens: 10_000_000, Per: time.Second, Burst: 18_000_000_000}
	denying  = limiter.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: 1}
	deep     = limiter.Limit{Tokens: 1000, Per: time.Second, Burst: 18_000_000}
)

// window returns a fixed window in which a bucket fills, for peers that have no other
// algorithm.
func (l *load) window() (tokens int64, length time.Duration) {
	tokens = l.limit.Capacity()
	return tokens, time.Duration(tokens / l.limit.Tokens * int64(l.limit.Per))
}

// spent returns what account i has used before it is measured.
func (l *load) spent(i int) int64 {
	if l.heavy > 0 && float64(i) < l.heavy*float64(l.keys) {
		return max(l.limit.Capacity()/2, 1)
	}
	return 1
}

const (
	route    = "GET /v1/exports/{id}"
	idLength = len("alice-0123456789")
	chunk    = 256 // decisions between two looks at the clock
)

// callerName returns the key of caller i, as peers get it: the caller's id and the
// route. The first idLength bytes are the id alone.
func callerName(i int) string { return fmt.Sprintf("alice-%010d\x00%s", i, route) }

// join returns the same key, made from its two parts.
func join(key string) string { return key[:idLength] + "\x00" + route }

// fresh yields the keys of all accounts, in order, each a string of its own.
func (l *load) fresh() iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range l.keys {
			if !yield(callerName(i)) {
				return
			}
		}
	}
}

// shuffle prepares the keys that decisions are for, in random order: one lies behind
// the other.
func (l *load) shuffle() {
	var all strings.Builder
	length := len(callerName(0))
	all.Grow(l.keys * length)
	for _, i := range rand.Perm(l.keys) {
		all.WriteString(callerName(i))
	}
	l.visit = make([]string, l.keys)
	for i := range l.visit {
		l.visit[i] = all.String()[i*length:][:length]
	}
}

// build makes the keys of the callers visited from the given place on. As in a service,
// the strings are new, and in the cache when the limiter gets them.
func (l *load) build(keys []string, from int) {
	var all strings.Builder
	length := len(l.visit[0])
	all.Grow(len(keys) * length)
	for i := range keys {
		all.WriteString(l.visit[(from+i)%l.keys])
		keys[i] = all.String()[i*length:][:length]
	}
}

// check stops the program: there is nothing to measure after an error.
func check(err error) {
	if err != nil {
		panic(err)
	}
}
