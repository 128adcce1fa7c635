package main

import (
	"cmp"
	"fmt"
	"slices"
)

// bounds are the goals of a comparison, as ratios; 0 is no goal.
type bounds struct {
	peer   float64 // to the fastest peer
	floor  float64
	allocs float64 // for one decision, of a middleware; else none
}

// versus is the workload that compares the peers, the floor and this module.
func versus(name, title string, l load, b bounds) workload {
	return workload{name: name, cores: l.cores, measure: func(o options) section {
		subjects := slices.Concat(peers, []subject{{"ration, Store.Take", own, ours}})
		if l.cores == 1 {
			subjects = append(subjects, subject{"floor", ground, floor})
		}
		return judge(title, compare(o, l, subjects), b)
	}}
}

// judge makes the table of a comparison and holds it against the goals.
func judge(title string, all []series, b bounds) section {
	s := section{title: title, header: []string{"", "ns/op", "allocs/op", "ration is"}}
	mine := all[slices.IndexFunc(all, func(s series) bool { return s.kind == own })]
	slices.SortFunc(all, func(a, b series) int { return cmp.Compare(median(a.ns), median(b.ns)) })
	var fastest []float64
	for _, x := range all {
		ratio := median(ratios(mine.ns, x.ns))
		s.row(x.name, tenths(median(x.ns)), hundredths(median(x.allocs)), hundredths(ratio)+" x")
		switch x.kind {
		case ground:
			s.goal(title+", to the floor", ratio, b.floor, "x")
		case peer:
			fastest = least(fastest, x.ns)
		}
	}
	s.goal(title+", to the fastest peer", median(ratios(mine.ns, fastest)), b.peer, "x")
	s.none(title+", allocations", median(mine.allocs))
	return s
}

// ratios divides round by round.
func ratios(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = a[i] / b[i]
	}
	return out
}

// least returns the smaller number of each round; nil has none.
func least(a, b []float64) []float64 {
	if a == nil {
		return slices.Clone(b)
	}
	for i := range a {
		a[i] = min(a[i], b[i])
	}
	return a
}

// median returns the middle of the numbers, or the mean of the two in the middle.
func median(numbers []float64) float64 {
	sorted := slices.Sorted(slices.Values(numbers))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

func tenths(x float64) string     { return fmt.Sprintf("%.1f", x) }
func hundredths(x float64) string { return fmt.Sprintf("%.2f", x) }
