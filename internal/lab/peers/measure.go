package main

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

// run decides one request for each of the keys, which are of the callers visited from
// the given place on, and returns how many were allowed. It is safe for concurrent use.
type run func(from int, keys []string) (allowed int)

// kind says what a subject is in a comparison.
type kind int

const (
	peer    kind = iota // its keys are ready made
	twoPart             // a peer that makes its key from the caller's id and the route
	own                 // this module, as a service calls it
	inner               // a part of this module
	ground              // the floor
)

// subject is something to measure: setup fills it with the load's accounts.
type subject struct {
	name  string
	kind  kind
	setup func(*load) run
}

// series is what was measured of one subject, round by round.
type series struct {
	subject
	ns     []float64 // for one decision; on more cores, the time over all decisions
	allocs []float64 // for one decision
}

// compare measures the subjects in rounds, each round in random order.
func compare(o options, l load, subjects []subject) []series {
	l.hint = l.keys
	l.shuffle()
	trials := make([]trial, len(subjects))
	all := make([]series, len(subjects))
	for i, s := range subjects {
		trials[i] = trial{name: s.name, load: &l, run: s.setup(&l)}
		trials[i].measure(o.time) // to warm up
		all[i].subject = s
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for round := range o.rounds {
		if round%25 == 0 {
			runtime.GC()
		}
		for _, i := range rand.Perm(len(trials)) {
			ns, allocs := trials[i].measure(o.time)
			all[i].ns = append(all[i].ns, ns)
			all[i].allocs = append(all[i].allocs, allocs)
		}
	}
	return all
}

// trial is a subject that is set up.
type trial struct {
	name string
	load *load
	run  run
	at   int // where in the visits the next measurement begins
}

// measure decides on all cores for the time d.
func (t *trial) measure(d time.Duration) (ns, allocs float64) {
	cores := t.load.cores
	speeds, counts := make([]float64, cores), make([]int, cores)
	before := mallocs()
	begin := make(chan struct{})
	var wg sync.WaitGroup
	for c := range cores {
		wg.Go(func() {
			<-begin
			from := t.at + c*(t.load.keys/cores/chunk*chunk)
			speeds[c], counts[c] = t.worker(from, d)
		})
	}
	close(begin)
	wg.Wait()
	speed, count := 0.0, 0
	for c := range cores {
		speed += speeds[c]
		count += counts[c]
	}
	made := mallocs() - before - uint64(count/chunk) // without the keys
	t.at += counts[0]
	return 1 / speed, float64(made) / float64(count)
}

// worker decides in chunks for the time d. Only the decisions are timed, not how the
// keys are built. It returns the decisions in a nanosecond and in all.
func (t *trial) worker(from int, d time.Duration) (speed float64, count int) {
	keys := make([]string, chunk)
	elapsed := time.Duration(0)
	allowed := 0
	for elapsed < d {
		t.load.build(keys, from+count)
		start := time.Now()
		allowed += t.run(from+count, keys)
		elapsed += time.Since(start)
		count += chunk
	}
	want := count
	if t.load.deny {
		want = 0
	}
	if allowed != want {
		panic(fmt.Sprintf("%s: %d of %d decisions allowed, want %d", t.name, allowed, count, want))
	}
	return float64(count) / float64(elapsed), count
}

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}
