package main

import (
	"context"

	"github.com/ration-go/ration/limiter"
)

// one is a set of one budget, personal of three that are the caller's own, and in
// everybody all callers share one of the three. Their names have one length.
var (
	one       = []limiter.Budget{scoped("per-route", limiter.ByPrincipal|limiter.ByRoute)}
	everybody = []limiter.Budget{
		one[0], scoped("each-user", limiter.ByPrincipal), scoped("all-users", 0),
	}
	personal = []limiter.Budget{
		one[0], scoped("each-user", limiter.ByPrincipal),
		scoped("workloads", limiter.ByPrincipal|limiter.ByWorkload),
	}
)

func scoped(name string, scope limiter.Scope) limiter.Budget {
	return limiter.Budget{Name: name, Scope: scope, Limit: allowing, OnError: limiter.Closed}
}

// measureBudgets compares one budget in a request with three.
func measureBudgets(o options) section {
	s := section{
		title:  "three budgets in one request, by Limiter.Take",
		header: []string{"", "ns/op", "allocs/op", "to one budget"},
	}
	all := compare(o, load{keys: 1, cores: 1, limit: allowing}, []subject{
		{"one budget", own, through(one)},
		{"three of the caller", own, through(personal)},
		{"two of the caller, one of everybody", own, through(everybody)},
	})
	for i, x := range all {
		ratio := median(ratios(x.ns, all[0].ns))
		s.row(x.name, tenths(median(x.ns)), hundredths(median(x.allocs)), hundredths(ratio)+" x")
		if i > 0 {
			s.goal(x.name+", to one budget", ratio, 1.9, "x")
		}
		s.none(x.name+", allocations", median(x.allocs))
	}
	return s
}

// through decides by Limiter.Take.
func through(budgets []limiter.Budget) func(*load) run {
	return func(l *load) run {
		lim := limiter.Must(limiter.New(newStore(l.keys, nil), budgets, limiter.Config{}))
		ctx := context.Background()
		take := func(key string, cost int64) bool {
			d, err := lim.Take(ctx,
				limiter.Caller{Principal: principal(key), Route: route, Workload: "nightly"}, cost)
			check(err)
			return d.Allowed()
		}
		for key := range l.fresh() {
			take(key, allowing.Burst/2)
		}
		return func(_ int, keys []string) (allowed int) {
			for _, key := range keys {
				if take(key, 1) {
					allowed++
				}
			}
			return allowed
		}
	}
}
