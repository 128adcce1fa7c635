// Command scenarios plays requests whose right outcome is known and prints what
// came out, below a few lines that say what was asked. Time is virtual throughout:
// nothing sleeps. It removes its keys from a Redis server when it ends.
//
//	go run ./examples/scenarios
//	go run ./examples/scenarios -redis localhost:6379
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"time"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
)

func main() {
	addr := flag.String("redis", "", "address of a Redis server to keep accounts in; empty: memory")
	flag.Parse()
	if err := play(os.Stdout, *addr); err != nil {
		log.Fatal(err)
	}
}

// play plays all scenarios in memory, or on the server at addr.
func play(w io.Writer, addr string) (err error) {
	if addr == "" {
		return run(w, memory)
	}
	open, cleanUp := inRedis(addr)
	defer func() { err = errors.Join(err, cleanUp()) }()
	return run(w, open)
}

// run plays all scenarios, each on stores of its own.
func run(w io.Writer, open opener) error {
	scenarios := []struct {
		about string
		play  func(io.Writer, opener) error
	}{
		{aboutExamHall, examHall}, {aboutPayments, payments}, {aboutCredits, credits},
		{aboutLabels, labels}, {aboutConformance, conformance},
	}
	for i, s := range scenarios {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "# %d. %s\n", i+1, strings.ReplaceAll(s.about, "\n", "\n#    "))
		if err := s.play(w, open); err != nil {
			return err
		}
	}
	return nil
}

// opener returns a new store that reads the clock now.
type opener func(now func() time.Time) (limiter.Store, error)

func memory(now func() time.Time) (limiter.Store, error) {
	return memstore.New(memstore.Config{Now: now})
}

// clock is a virtual clock, for one goroutine.
type clock struct{ at time.Time }

// start is where a clock begins: any instant will do.
var start = time.Date(2026, time.January, 1, 9, 0, 0, 0, time.UTC)

func (c *clock) now() time.Time { return c.at }

// tally counts what becomes of requests.
type tally struct{ accepted, rejected int }

// take sends n requests of cost 1.
func (t *tally) take(l *limiter.Limiter, c limiter.Caller, n int) error {
	for range n {
		d, err := l.Take(context.Background(), c, 1)
		if err != nil {
			return fmt.Errorf("taking from %s: %w", l.Name(), err)
		}
		if d.Allowed() {
			t.accepted++
		} else {
			t.rejected++
		}
	}
	return nil
}

// newLimiter returns a limiter with one budget on a store of its own.
func newLimiter(open opener, c *clock, b limiter.Budget) (*limiter.Limiter, error) {
	store, err := open(c.now)
	if err != nil {
		return nil, err
	}
	return limiter.New(store, []limiter.Budget{b}, limiter.Config{})
}
