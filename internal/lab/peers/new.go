package main

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"time"
)

// newcomers are the limiters that are given new callers only.
var newcomers = []subject{
	{"x/time/rate, map of struct keys", twoPart, xtimeStruct},
	{"go-limiter", peer, goLimiter},
	{"throttled", peer, throttledGCRA},
	{"httprate", peer, httpRate},
	{"ration, Limiter.Take", own, ours},
}

// measureNew gives each limiter new callers only, one limiter after the other, and
// measures the time of a decision and the heap that an account takes, with its key. The
// garbage collector runs as it does in a service.
func measureNew(o options) section {
	all := make([]series, len(newcomers))
	sizes := make([][]float64, len(newcomers))
	for range min(o.rounds, 3) {
		for _, i := range rand.Perm(len(newcomers)) {
			all[i].subject = newcomers[i]
			ns, size := fill(newcomers[i], o.new)
			all[i].ns, sizes[i] = append(all[i].ns, ns), append(sizes[i], size)
		}
	}
	s := section{title: fmt.Sprintf("%d new accounts only", o.new),
		header: []string{"", "ns/op", "bytes/account", "ration is"}}
	mine := len(all) - 1
	for i, x := range all {
		s.row(x.name, tenths(median(x.ns)), tenths(median(sizes[i])),
			hundredths(median(ratios(all[mine].ns, x.ns)))+" x")
	}
	best := fastest(all, peer, twoPart)
	s.goal(s.title+", to the fastest peer", median(ratios(all[mine].ns, best.ns)), 1, "x")
	s.goal(s.title+", heap", median(sizes[mine]), 64, "B")
	return s
}

// fill gives an empty limiter n new callers. It returns the time of a decision, and the
// bytes that the heap loses with an account.
func fill(x subject, n int) (ns, size float64) {
	take := x.setup(&load{limit: denying, maxAccounts: 2 * n})
	keys := make([]string, chunk)
	runtime.GC()
	var elapsed time.Duration
	for from := 0; from < n; from += chunk {
		var text strings.Builder
		for i := range keys {
			text.WriteString(callerName(from + i))
		}
		length := text.Len() / chunk
		for i := range keys {
			keys[i] = text.String()[i*length:][:length]
		}
		start := time.Now()
		if allowed := take(from, keys); allowed != chunk {
			panic(fmt.Sprintf("%s: %d of %d new callers allowed", x.name, allowed, chunk))
		}
		elapsed += time.Since(start)
	}
	clear(keys)
	with := liveHeap()
	runtime.KeepAlive(take)
	take = nil
	return float64(elapsed) / float64(n), float64(with-liveHeap()) / float64(n)
}

func liveHeap() int64 {
	runtime.GC()
	runtime.GC() // what a finalizer or a pool held on to
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
