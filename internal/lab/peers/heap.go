package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
)

// measureHeap counts the live heap that an account takes, with its key.
func measureHeap(o options) section {
	subjects := slices.Concat(peers, []subject{{"ration", own, ours}})
	sizes := map[string][]float64{}
	for range o.rounds {
		for _, i := range rand.Perm(len(subjects)) {
			x := subjects[i]
			sizes[x.name] = append(sizes[x.name], accountSize(x, o.keys))
		}
	}
	slices.SortFunc(subjects, func(a, b subject) int {
		return cmp.Compare(median(sizes[a.name]), median(sizes[b.name]))
	})
	s := section{
		title:  fmt.Sprintf("live heap at %s accounts", power(o.keys)),
		header: []string{"", "bytes/account"},
	}
	for _, x := range subjects {
		size := median(sizes[x.name])
		s.row(x.name, tenths(size))
		if x.kind == own {
			s.goal(s.title, size, 64, "B")
		}
	}
	return s
}

// accountSize fills a limiter with n accounts by keys that nothing else keeps, and
// returns what the heap loses with it. Nothing is made room for beforehand.
func accountSize(s subject, n int) float64 {
	filled := s.setup(&load{keys: n})
	with := liveHeap()
	runtime.KeepAlive(filled)
	filled = nil
	return float64(with-liveHeap()) / float64(n)
}

func liveHeap() int64 {
	runtime.GC()
	runtime.GC() // what a finalizer or a pool held on to
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
