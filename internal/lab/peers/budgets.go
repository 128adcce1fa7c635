package main

import (
	"context"
	"slices"

	"github.com/ration-go/ration/limiter"
)

// one is a set of one budget, personal of three that are the caller's own, and in
// everybody all callers share one of the three.
var (
	one       = []limiter.Budget{scoped("route", limiter.ByPrincipal|limiter.ByRoute)}
	everybody = []limiter.Budget{
		one[0], scoped("user", limiter.ByPrincipal), scoped("all", 0),
	}
	personal = []limiter.Budget{
		one[0], scoped("user", limiter.ByPrincipal),
		scoped("workload", limiter.ByPrincipal|limiter.ByWorkload),
	}
)

func scoped(name string, scope limiter.Scope) limiter.Budget {
	return limiter.Budget{Name: name, Scope: scope, Limit: allowing, OnError: limiter.Closed}
}

// measureBudgets compares one budget in a request with three.
func measureBudgets(o options) section {
	s := section{
		title:  "three budgets in one request",
		header: []string{"", "ns/op", "allocs/op", "to one budget"},
	}
	for _, through := range []struct {
		name string
		make func([]limiter.Budget) func(*load) run
	}{{"Store.Take", throughStore}, {"Limiter.Take", throughLimiter}} {
		all := compare(o, load{keys: 1, cores: 1}, []subject{
			{through.name + ", one budget", own, through.make(one)},
			{through.name + ", three of the caller", own, through.make(personal)},
			{through.name + ", two of the caller, one of everybody", own, through.make(everybody)},
		})
		for i, x := range all {
			ratio := median(ratios(x.ns, all[0].ns))
			s.row(x.name, tenths(median(x.ns)), hundredths(median(x.allocs)), hundredths(ratio)+" x")
			if i > 0 && through.name == "Store.Take" {
				s.goal(x.name, ratio, 2, "x")
			}
			s.none(x.name+", allocations", median(x.allocs))
		}
	}
	return s
}

// caller is who every request of these workloads is from.
func caller(l *load) limiter.Caller {
	k := accountKey(l.visit[0])
	return limiter.Caller{Principal: k.Principal, Route: k.Route, Workload: "nightly"}
}

func names(budgets []limiter.Budget) []string {
	var all []string
	for _, b := range budgets {
		all = append(all, b.Name)
	}
	return all
}

// throughLimiter asks by Limiter.Take.
func throughLimiter(budgets []limiter.Budget) func(*load) run {
	return func(l *load) run {
		store := newStore(l.keys, nil)
		lim := limiter.Must(limiter.New(store, budgets, limiter.Config{}))
		ctx, c := context.Background(), caller(l)
		_, err := lim.Take(ctx, c, allowing.Burst/2)
		check(err)
		return func(_, n int) (allowed int) {
			for range n {
				d, err := lim.Take(ctx, c, 1)
				check(err)
				if d.Allowed() {
					allowed++
				}
			}
			return allowed
		}
	}
}

// throughStore asks by Store.Take, with the charges that the Limiter would make.
func throughStore(budgets []limiter.Budget) func(*load) run {
	return func(l *load) run {
		store := newStore(l.keys, nil, names(budgets)...)
		ctx := context.Background()
		prepared := chargesFor(budgets, caller(l))
		for i := range prepared {
			prepared[i].Cost = allowing.Burst / 2
		}
		_, err := store.Take(ctx, prepared)
		check(err)
		for i := range prepared {
			prepared[i].Cost = 1
		}
		return func(_, n int) (allowed int) {
			charges := slices.Clone(prepared)
			for range n {
				d, err := store.Take(ctx, charges)
				check(err)
				if d.Allowed() {
					allowed++
				}
			}
			return allowed
		}
	}
}

// chargesFor puts the parts in scope into the keys.
func chargesFor(budgets []limiter.Budget, c limiter.Caller) []limiter.Charge {
	charges := make([]limiter.Charge, len(budgets))
	for i, b := range budgets {
		k := limiter.Key{Budget: b.Name}
		if b.Scope&limiter.ByPrincipal != 0 {
			k.Principal = c.Principal
		}
		if b.Scope&limiter.ByRoute != 0 {
			k.Route = c.Route
		}
		if b.Scope&limiter.ByWorkload != 0 {
			k.Workload = c.Workload
		}
		charges[i] = limiter.Charge{Key: k, Limit: b.Limit}
	}
	return charges
}
