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
	hot, hotDenied := load{keys: 1, cores: 1}, load{keys: 1, cores: 1, deny: true}
	many := load{keys: o.keys, cores: 1}
	hot2, many2 := hot, many
	hot2.cores, many2.cores = 2, 2
	accounts := power(o.keys) + " keys in random order, "
	return append([]workload{
		versus("hot/allow", "one hot key, allowed", hot, bounds{peer: 0.9, floor: 1.4}),
		versus("hot/deny", "one hot key, denied", hotDenied, bounds{peer: 0.9, floor: 1.4}),
		versus("hot/cores=2", "one hot key, two cores", hot2, bounds{peer: 1.2}),
		versus("many/cores=1", accounts+"one core", many, bounds{peer: 0.65}),
		versus("many/cores=2", accounts+"two cores", many2, bounds{peer: 0.6}),
		{name: "heap", cores: 1, measure: measureHeap},
		{name: "budgets", cores: 1, measure: measureBudgets},
		{name: "growth", cores: 2, measure: measureGrowth},
		{name: "middleware/allow", cores: 1, measure: measureMiddlewares("a middleware, allowed", false,
			map[string]bounds{withHeaders: {peer: 0.8, allocs: 4}, withoutHeaders: {peer: 0.45, allocs: 1}})},
		{name: "middleware/deny", cores: 1, measure: measureMiddlewares("a middleware, denied", true,
			map[string]bounds{withHeaders: {peer: 1}})},
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
	keys  int  // accounts, a power of two
	cores int  // goroutines that decide at the same time
	deny  bool // every decision is a denial, else an allowance
	hint  int  // accounts to make room for at once; 0 where memory is measured
	visit []string
}

// Limits of the accounts. The allowing one is never full and never empty while it
// is measured, so that it is counted as in use; used in nanoseconds times tokens
// fits 64 bits, as it does for ordinary limits.
var (
	allowing = limiter.Limit{Tokens: 10_000_000, Per: time.Second, Burst: 18_000_000_000}
	denying  = limiter.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: 1}
)

func (l *load) limit() limiter.Limit {
	if l.deny {
		return denying
	}
	return allowing
}

// window is the tokens of a fixed window of 24 hours, for peers that have no
// other algorithm: it does not end while it is measured.
func (l *load) window() int64 { return l.limit().Burst }

const windowLength = 24 * time.Hour

const (
	route    = "GET /v1/exports/{id}"
	idLength = len("alice-0123456789")
)

// callerName returns the key of caller i, as peers get it: the caller's id and the
// route. The first idLength bytes are the id alone.
func callerName(i int) string { return fmt.Sprintf("alice-%010d\x00%s", i, route) }

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

// shuffle prepares the keys that decisions are for, in random order. As in a
// service, they are other strings than those by which accounts were made, and in
// the cache when the limiter gets them: one lies behind the other.
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

// check stops the program: there is nothing to measure after an error.
func check(err error) {
	if err != nil {
		panic(err)
	}
}
