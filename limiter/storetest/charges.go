package storetest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ration-go/ration/limiter"
)

var requestRules = []Rule{
	{"R5", "refused means untouched", "A request that is not allowed changes no balance: " +
		"neither is it charged, nor is anything given back.", refusedUntouched},
	{"R5", "refused by one of several", "A request that one budget refuses changes the " +
		"balance of no other, wherever the refusing one stands.", refusedByOne},
	{"R5", "refused creates no account", "A request that is not allowed creates no account.",
		refusedCreatesNone},
	{"R6", "several budgets", "The charges of one request are decided together, at one " +
		"instant, and debited together: each as if it were alone, all or none.", severalBudgets},
	{"R6", "who decides", "Any Never decides, else the Deny with the longest wait, else the " +
		"budget with the least left relative to its capacity after the debit; ties go by " +
		"budget, then key. The order of the charges changes nothing.", whoDecides},
	{"R6", "the same key twice", "The costs of charges with the same key add up; with two " +
		"different limits, or both enforced and shadow, they are a *ConfigError.", sameKey},
	{"R6", "shadow", "A shadow charge never refuses and never decides; it has its own result, " +
		"and is debited where the request is allowed and it can pay.", shadowCharges},
	{"R6", "no charges", "A request without charges is allowed, and names no budget.",
		noCharges},
}

func refusedUntouched(p *probe) {
	for _, l := range each {
		q := p.fresh()
		q.after(q.step)
		q.allowed(on("alice", l, 3))
		want := q.peek(on("alice", l, 1))
		for range 20 {
			q.denied(on("alice", l, 3))
			q.outcome(q.take(on("alice", l, 6)), limiter.Never, nil)
		}
		equal("the state after requests that were refused", q.peek(on("alice", l, 1)), want)
		q.allowed(on("alice", l, 2))
		q.denied(on("alice", l, 1))
	}
}

func refusedByOne(p *probe) {
	small, large := limiter.PerMinute(2), limiter.PerHour(10)
	for _, never := range []bool{false, true} {
		for _, order := range [][]string{{"a", "b", "c"}, {"b", "c", "a"}, {"c", "a", "b"}} {
			q := p.fresh()
			limits := map[string]limiter.Limit{"a": large, "b": small, "c": large}
			request := func(cost int64) []limiter.Charge {
				var charges []limiter.Charge
				for _, budget := range order {
					charges = append(charges, in(budget, limits[budget], cost))
				}
				return charges
			}
			q.allowed(request(2)...)
			for range 5 {
				if never {
					q.outcome(q.take(request(3)...), limiter.Never, request(3))
				} else {
					q.denied(request(1)...)
				}
			}
			q.left(8, in("a", large, 0))
			q.left(0, in("b", small, 0))
			q.left(8, in("c", large, 0))
		}
	}
}

func refusedCreatesNone(p *probe) {
	if p.h.Accounts == nil {
		return
	}
	p.allowed(in("paid", plain, 5))
	before := p.h.Accounts(p.store)
	for i := range 50 {
		user := fmt.Sprint("user ", i)
		p.outcome(p.take(on(user, plain, 6)), limiter.Never, nil)
		p.denied(in(user, plain, 1), in("paid", plain, 1))
		p.peek(on(user, plain, 1))
	}
	equal("accounts after requests that were refused", p.h.Accounts(p.store), before)
}

func severalBudgets(p *probe) {
	stream{
		limits: []limiter.Limit{
			{Tokens: 7, Per: 3 * time.Second, Burst: 9},
			{Tokens: 20, Per: 10 * time.Second, Algorithm: limiter.FixedWindow},
			{Tokens: 8, Per: 4 * time.Second, Algorithm: limiter.RollingLog},
			{Tokens: 1, Per: time.Second, Burst: 3},
		},
		steps: 3000, peeks: true,
	}.run(p)
}

func whoDecides(p *probe) {
	second := func(burst int64) limiter.Limit {
		return limiter.Limit{Tokens: 1, Per: time.Second, Burst: burst}
	}
	minute := limiter.Limit{Tokens: 1, Per: time.Minute}
	for _, c := range []struct {
		what    string
		spend   []limiter.Charge
		request []limiter.Charge
		want    string
	}{
		{"never before deny", []limiter.Charge{in("a", minute, 1)},
			[]limiter.Charge{in("a", minute, 1), in("b", second(5), 1), in("c", minute, 2)}, "c"},
		{"the longest wait", []limiter.Charge{in("a", second(1), 1), in("b", minute, 1)},
			[]limiter.Charge{in("a", second(1), 1), in("b", minute, 1), in("c", minute, 1)}, "b"},
		{"the least relative to capacity", []limiter.Charge{in("b", second(100), 79)},
			[]limiter.Charge{in("a", second(2), 1), in("b", second(100), 1), in("c", second(10), 1)},
			"b"},
		{"after the debit", nil,
			[]limiter.Charge{in("b", second(4), 1), in("c", second(3), 1), in("a", second(9), 2)}, "c"},
		{"ties by budget", nil,
			[]limiter.Charge{in("b", second(4), 2), in("c", second(2), 1), in("a", second(8), 4)}, "a"},
		{"ties of never by budget", nil,
			[]limiter.Charge{in("b", second(1), 2), in("c", second(1), 2)}, "b"},
		{"ties of deny by budget", []limiter.Charge{in("b", minute, 1), in("c", minute, 1)},
			[]limiter.Charge{in("b", minute, 1), in("c", minute, 1)}, "b"},
	} {
		for _, request := range permutations(c.request) {
			q := p.fresh()
			for _, spent := range c.spend {
				q.allowed(spent)
			}
			equal(c.what+": the peeked budget of "+describe(request), q.peek(request...).Budget, c.want)
			d := q.take(request...)
			equal(c.what+": the budget of "+describe(request), d.Budget, c.want)
			decider := slices.IndexFunc(request, func(c limiter.Charge) bool {
				return c.Key.Budget == d.Budget
			})
			equal(c.what+": its limit", d.Limit, request[decider].Limit)
		}
	}
}

func permutations(charges []limiter.Charge) [][]limiter.Charge {
	if len(charges) < 2 {
		return [][]limiter.Charge{slices.Clone(charges)}
	}
	var all [][]limiter.Charge
	for i := range charges {
		rest := slices.Delete(slices.Clone(charges), i, i+1)
		for _, p := range permutations(rest) {
			all = append(all, append(p, charges[i]))
		}
	}
	return all
}

func sameKey(p *probe) {
	a := func(cost int64) limiter.Charge { return in("a", plain, cost) }
	p.allowed(a(2), in("b", plain, 1), a(2))
	p.left(1, a(0))
	p.left(4, in("b", plain, 0))
	p.denied(a(1), in("b", plain, 1), a(1))
	p.outcome(p.take(a(3), a(3)), limiter.Never, nil)
	spelled := plain
	spelled.Burst = plain.Capacity()
	p.denied(a(1), in("a", spelled, 1))
	for _, odd := range []limiter.Charge{in("a", limiter.PerSecond(6), 0), shadow(a(0))} {
		charges := []limiter.Charge{in("b", plain, 1), a(0), odd}
		_, err := p.store.Take(context.Background(), charges)
		wrong[*limiter.ConfigError]("Take of "+describe(charges), err)
		_, err = p.store.Peek(context.Background(), charges)
		wrong[*limiter.ConfigError]("Peek of "+describe(charges), err)
	}
	p.left(1, a(0))
	p.left(4, in("b", plain, 0))
}

func shadowCharges(p *probe) {
	tried := shadow(in("a", limiter.PerMinute(2), 1))
	request := []limiter.Charge{tried, in("b", plain, 1)}
	for i, want := range []limiter.Outcome{limiter.Allow, limiter.Allow, limiter.Deny} {
		charges := p.allowed(slices.Clone(request)...)
		equal(fmt.Sprintf("the result of the shadow charge in request %d", i),
			charges[0].Result.Outcome, want)
	}
	p.left(0, tried)
	p.left(2, in("b", plain, 0))
	d, charges := p.taken(shadow(in("a", limiter.PerMinute(2), 3)), in("b", plain, 1))
	equal("the budget beside a shadow charge that can never pay", d.Budget, "b")
	equal("the outcome of that charge", charges[0].Result.Outcome, limiter.Never)

	other := shadow(in("c", plain, 1))
	p.denied(other, in("b", plain, 5))
	p.left(5, other)
	d = p.take(other)
	equal("a shadow charge alone", d, limiter.Decision{Outcome: limiter.Allow})
	p.left(4, other)
}

func noCharges(p *probe) {
	equal("Take of nothing", p.take(), limiter.Decision{Outcome: limiter.Allow})
	equal("Peek of nothing", p.peek(), limiter.Decision{Outcome: limiter.Allow})
	if err := p.store.Settle(context.Background(), nil); err != nil {
		violated("Settle of nothing: %v, want no error", err)
	}
}
