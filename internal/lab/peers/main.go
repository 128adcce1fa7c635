// Command peers measures the stores beside the other Go rate limiters, in memory
// and on a Redis server, all in one run, and prints a table in Markdown.
//
// Each limiter is set up at its best (see the comments in peers.go) and is asked for
// the same decisions, for callers in random order. Peers get a key that is ready made;
// some make it from two parts, as this module does: the caller's id and the route.
// The strings are new for each decision, as those of a new request are.
//
// A workload is measured in rounds of 3 ms; in each round every limiter has its turn,
// in random order, so that what disturbs the machine disturbs all alike. Ratios are
// taken within a round, and the table has the medians over the rounds. The garbage
// collector runs after every 25th round and not within, except in the workload
// "growth": whoever allocates is not charged for its garbage here.
//
// Run it by make bench-peers, or here by go run . -quick to see that it works. It
// is a module of its own, so that no peer enters the go.mod of the library.
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"time"
)

// options are the flags.
type options struct {
	rounds int
	time   time.Duration  // of one measurement
	keys   int            // accounts in the large workloads, a power of two
	new    int            // accounts in the workload "new"
	only   *regexp.Regexp // the workloads to measure
}

func main() {
	o, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	r := report{out: os.Stdout}
	r.machine()
	for _, w := range workloads(o) {
		if !o.only.MatchString(w.name) {
			continue
		}
		if w.cores > runtime.GOMAXPROCS(0) {
			fmt.Fprintf(os.Stderr, "%s: needs %d cores\n", w.name, w.cores)
			continue
		}
		fmt.Fprintln(os.Stderr, w.name)
		r.section(w.measure(o))
	}
	r.goals()
}

// parse reads the flags.
func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("peers", flag.ExitOnError)
	flags.IntVar(&o.rounds, "rounds", 100, "rounds of each workload")
	flags.DurationVar(&o.time, "time", 3*time.Millisecond, "length of one measurement")
	flags.IntVar(&o.keys, "keys", 1<<20, "accounts in the large workloads, a power of two")
	flags.IntVar(&o.new, "new", 10_000_000, "accounts in the workload \"new\"")
	only := flags.String("only", "", "measure the workloads that match this regexp")
	quick := flags.Bool("quick", false, "see that it works: 2 short rounds, 2^17 accounts")
	_ = flags.Parse(args) // exits on an error
	if *quick {
		o.rounds, o.time, o.keys, o.new = 2, 5*time.Millisecond, 1<<17, 1<<17
	}
	if o.rounds < 1 || o.time <= 0 {
		return o, fmt.Errorf("-rounds=%d -time=%v: want at least 1, and more than 0", o.rounds, o.time)
	}
	if o.keys < probes || o.keys&(o.keys-1) != 0 {
		return o, fmt.Errorf("-keys=%d: want a power of two, at least %d", o.keys, probes)
	}
	if o.new < 1 {
		return o, fmt.Errorf("-new=%d: want at least 1", o.new)
	}
	var err error
	if o.only, err = regexp.Compile(*only); err != nil {
		return o, fmt.Errorf("-only: %w", err)
	}
	return o, nil
}
