package main

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"time"
)

// measureNew gives each limiter new callers only, and measures the time of a decision
// and the heap that an account takes, with its key.
func measureNew(o options) section {
	l := load{keys: o.new, cores: 1, limit: denying}
	l.shuffle()
	empty := l
	empty.keys = 0
	subjects := []subject{
		{"x/time/rate, map of struct keys", twoPart, xtimeStruct},
		{"go-limiter", peer, goLimiter},
		{"throttled", peer, throttledGCRA},
		{"httprate", peer, httpRate},
		{"ration, Limiter.Take", own, func(*load) run {
			large := l
			large.maxAccounts = 2 * l.keys
			return takeBy(newLimiter(&large))
		}},
	}
	trials := make([]trial, len(subjects))
	total := make([]time.Duration, len(subjects))
	for i, s := range subjects {
		trials[i] = trial{name: s.name, run: s.setup(&empty)}
	}
	percent, most := debug.SetGCPercent(-1), debug.SetMemoryLimit(10<<30)
	const turn = 64 * chunk // about 10 ms
	for from := 0; from < l.keys; from += turn {
		for _, i := range rand.Perm(len(trials)) {
			total[i] += trials[i].serve(&l, from, min(from+turn, l.keys))
		}
	}
	debug.SetGCPercent(percent)
	debug.SetMemoryLimit(most)

	s := section{title: fmt.Sprintf("%d new accounts only", l.keys),
		header: []string{"", "ns/op", "bytes/account", "ration is"}}
	mine := len(subjects) - 1
	best := slices.Min(total[:mine])
	for i := range trials {
		before := liveHeap()
		runtime.KeepAlive(trials[i:]) // until now
		trials[i].run = nil
		size := float64(before-liveHeap()) / float64(l.keys)
		s.row(subjects[i].name, tenths(float64(total[i])/float64(l.keys)), tenths(size),
			hundredths(float64(total[mine])/float64(total[i]))+" x")
		if i == mine {
			s.goal(s.title+", to the fastest peer", float64(total[i])/float64(best), 1, "x")
			s.goal(s.title+", heap", size, 64, "B")
		}
	}
	runtime.KeepAlive(l.visit)
	return s
}

// serve decides once for each of the callers visited from the one place to the other,
// and returns how long that took.
func (t *trial) serve(l *load, from, to int) (elapsed time.Duration) {
	for ; from < to; from += chunk {
		keys := make([]string, min(chunk, to-from))
		l.build(keys, from)
		start := time.Now()
		allowed := t.run(from, keys)
		elapsed += time.Since(start)
		if allowed != len(keys) {
			panic(fmt.Sprintf("%s: %d of %d new callers allowed", t.name, allowed, len(keys)))
		}
	}
	return elapsed
}

func liveHeap() int64 {
	runtime.GC()
	runtime.GC() // what a finalizer or a pool held on to
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
