package storetest

import (
	"fmt"
	"math"
	"time"

	"github.com/ration-go/ration/limiter"
)

// plain is the limit of rules that need any: 5 a second, 5 at once.
var plain = limiter.PerSecond(5)

const day = 24 * time.Hour

var arithmeticRules = []Rule{
	{"R1", "exact token buckets", "The balance of a token bucket is " +
		"min(capacity, tokens + elapsed*Tokens/Per), exactly, for every limit that Check " +
		"accepts, after any number of requests: no remainder is lost, none is gained.",
		exactBuckets},
	{"R1", "huge values", "Costs, capacities and fill times up to the bounds of a limit are " +
		"exact, too: nothing overflows or wraps around.", hugeValues},
	{"R1", "check refuses", "Check refuses a limit that is not valid with a *ConfigError, and " +
		"so does Take, which then touches nothing.", checkRefuses},
	{"R3", "starts full", "An account that was never drawn on is full under its limit.",
		startsFull},
	{"R3", "fills to capacity", "Idling fills an account to its capacity, and not beyond it.",
		fillsToCapacity},
	{"R3", "remembers until full", "An account may only be dropped when it is full again, " +
		"however long that takes, whatever happens to others meanwhile.", remembers},
	{"R3", "remembers many accounts", "An account that is not full is not dropped to make room " +
		"for others.", remembersMany},
}

// awkward limits have no whole number of nanoseconds to a token, or none of
// tokens to a nanosecond.
var awkward = []limiter.Limit{
	{Tokens: 2, Per: time.Second, Burst: 5},
	{Tokens: 1, Per: 3 * time.Second},
	{Tokens: 3, Per: 7 * time.Second, Burst: 4},
	{Tokens: 999_983, Per: day, Burst: 1000},
	{Tokens: 7, Per: 11 * time.Millisecond, Burst: 13},
	{Tokens: 1_000_000_007, Per: time.Second, Burst: 10},
	{Tokens: 997, Per: 1009 * time.Nanosecond, Burst: 31},
	{Tokens: 1, Per: time.Hour, Burst: 2},
	{Tokens: 7, Per: 365 * day, Burst: 3},
}

func exactBuckets(p *probe) {
	for _, l := range awkward {
		stream{limits: []limiter.Limit{l}, steps: 1500}.run(p.fresh())
	}
}

func hugeValues(p *probe) {
	for _, l := range []limiter.Limit{
		{Tokens: math.MaxInt64, Per: time.Second},
		{Tokens: math.MaxInt64, Per: 1000 * day},
		{Tokens: 1 << 40, Per: day, Burst: 1 << 50},
		{Tokens: 1, Per: time.Nanosecond, Burst: 1 << 58},
		{Tokens: 999_999_999_989, Per: 36_524 * day},
		{Tokens: 1 << 33, Per: time.Second},
		{Tokens: math.MaxInt64, Per: day, Algorithm: limiter.FixedWindow},
	} {
		q := p.fresh()
		if !q.holds(l) {
			continue
		}
		capacity := l.Capacity()
		q.allowed(on("alice", l, capacity-1))
		q.left(1, on("alice", l, 0))
		q.allowed(on("alice", l, 1))
		if l.Algorithm == limiter.TokenBucket {
			boundary(q, on("alice", l, capacity))
		}
		twice := []limiter.Charge{in("twice", l, capacity), in("twice", l, capacity)}
		q.outcome(q.take(twice...), limiter.Never, twice)
	}
}

func checkRefuses(p *probe) {
	for _, l := range []limiter.Limit{
		{}, {Tokens: 5}, {Per: time.Second}, {Tokens: -5, Per: time.Second},
		{Tokens: 5, Per: -time.Second}, {Tokens: 5, Per: time.Second, Burst: -1},
		{Tokens: 1, Per: 36_525*day + time.Hour}, {Tokens: 1, Per: day, Burst: 36_526},
		{Tokens: 10_001, Per: day, Algorithm: limiter.RollingLog},
		{Tokens: 5, Per: day, Burst: 6, Algorithm: limiter.FixedWindow},
		{Tokens: 5, Per: day, Algorithm: 99}, limiter.Unlimited, limiter.Blocked,
	} {
		what := fmt.Sprintf("Check(%+v)", l)
		wrong[*limiter.ConfigError](what, p.store.Check(l))
		charges := []limiter.Charge{in("a", plain, 1), in("b", l, 1)}
		_, err := p.store.Take(p.t.Context(), charges)
		wrong[*limiter.ConfigError](fmt.Sprintf("Take with the limit %+v", l), err)
		p.left(5, in("a", plain, 0))
	}
}

// each is a limit of each algorithm: 5 in 10 s.
var each = []limiter.Limit{
	{Tokens: 5, Per: 10 * time.Second},
	{Tokens: 5, Per: 10 * time.Second, Algorithm: limiter.FixedWindow},
	{Tokens: 5, Per: 10 * time.Second, Algorithm: limiter.RollingLog},
}

func startsFull(p *probe) {
	for _, l := range append(each, awkward...) {
		if !p.holds(l) {
			continue
		}
		q := p.fresh()
		q.allowed(on("alice", l, l.Capacity()))
		q.denied(on("alice", l, 1))
	}
}

func fillsToCapacity(p *probe) {
	for _, l := range each {
		for _, idle := range []time.Duration{10 * time.Second, time.Minute, 30 * day} {
			q := p.fresh()
			q.allowed(on("alice", l, 5))
			q.after(idle)
			q.left(5, on("alice", l, 0))
			q.outcome(q.peek(on("alice", l, 6)), limiter.Never, nil)
			q.allowed(on("alice", l, 5))
			q.denied(on("alice", l, 1))
		}
	}
}

func remembers(p *probe) {
	hourly := limiter.PerHour(1)
	p.allowed(on("victim", hourly, 1))
	for minute := range 59 {
		p.after(time.Minute)
		for i := range 5 {
			p.allowed(on(fmt.Sprint("other ", i), limiter.PerSecond(1), 1))
		}
		wait := p.denied(on("victim", hourly, 1))
		equal("the wait of the victim", wait, time.Duration(59-minute)*time.Minute)
	}
	p.after(time.Minute)
	p.allowed(on("victim", hourly, 1))
}

// manyAccounts is more than fit a few pages, and few enough for any store.
const manyAccounts = 2000

func remembersMany(p *probe) {
	victim := on("victim", limiter.PerHour(1), 1)
	p.allowed(victim)
	for i := range manyAccounts {
		p.allowed(on(fmt.Sprint("user ", i), limiter.PerHour(2), 1))
	}
	equal("the wait of the victim", p.denied(victim), time.Hour)
	for i := range manyAccounts {
		p.left(1, on(fmt.Sprint("user ", i), limiter.PerHour(2), 0))
	}
}
