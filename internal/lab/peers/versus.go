package main

import (
	"cmp"
	"fmt"
	"slices"
)

// bounds are the goals of a comparison, as ratios; 0 is no goal.
type bounds struct {
	peer    float64 // to the fastest peer
	twoPart float64 // to the fastest peer that makes its key from two parts
	allocs  float64 // for one decision, of a middleware; else none
}

// versus is the workload that compares the peers and this module.
func versus(name, title string, l load, cores int, b bounds) workload {
	l.cores = cores
	return workload{name: name, cores: cores, measure: func(o options) section {
		subjects := slices.Concat(peers, []subject{
			{"ration, Limiter.Take", own, ours}, {"ration, Store.Take", inner, oursStore},
		})
		return judge(title, compare(o, l, subjects), b)
	}}
}

// judge makes the table of a comparison and holds it against the goals.
func judge(title string, all []series, b bounds) section {
	s := section{title: title, header: []string{"", "ns/op", "allocs/op", "ration is"}}
	mine := all[slices.IndexFunc(all, func(s series) bool { return s.kind == own })]
	for _, x := range byMedian(all) {
		ratio := median(ratios(mine.ns, x.ns))
		s.row(x.name, tenths(median(x.ns)), hundredths(median(x.allocs)), hundredths(ratio)+" x")
	}
	s.goal(title+", to the fastest peer",
		median(ratios(mine.ns, fastest(all, peer, twoPart).ns)), b.peer, "x")
	s.goal(title+", to the fastest peer with a key of two parts",
		median(ratios(mine.ns, fastest(all, twoPart).ns)), b.twoPart, "x")
	s.none(title+", allocations", median(mine.allocs))
	return s
}

// byMedian returns the series, the fastest first.
func byMedian(all []series) []series {
	return slices.SortedFunc(slices.Values(all), func(a, b series) int {
		return cmp.Compare(median(a.ns), median(b.ns))
	})
}

// fastest returns the fastest series of these kinds; the zero series if there is none.
func fastest(all []series, kinds ...kind) series {
	for _, x := range byMedian(all) {
		if slices.Contains(kinds, x.kind) {
			return x
		}
	}
	return series{}
}

// ratios divides round by round.
func ratios(a, b []float64) []float64 {
	out := make([]float64, len(b))
	for i := range b {
		out[i] = a[i] / b[i]
	}
	return out
}

// median returns the middle of the numbers, or the mean of the two in the middle.
func median(numbers []float64) float64 {
	sorted := slices.Sorted(slices.Values(numbers))
	n := len(sorted)
	if n == 0 {
		return 0
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

func tenths(x float64) string     { return fmt.Sprintf("%.1f", x) }
func hundredths(x float64) string { return fmt.Sprintf("%.2f", x) }
