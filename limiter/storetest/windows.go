package storetest

import (
	"time"

	"github.com/ration-go/ration/limiter"
)

var windowRules = []Rule{
	{"R11", "windows of the epoch", "Fixed windows are whole multiples of Per since the Unix " +
		"epoch; wait and ResetAfter are the rest of the window.", windowsOfTheEpoch},
	{"R11", "windows before the epoch", "Windows have the same length before the epoch, and " +
		"across it.", windowsBeforeTheEpoch},
	{"R11", "the log's boundary", "What a rolling log admitted leaves it exactly Per later, " +
		"not a step before: in no span of Per is more than Tokens admitted.", logBoundary},
	{"R11", "the oldest leave first", "The wait of a rolling log lasts until enough of its " +
		"oldest entries have left; entries of one instant leave together.", oldestFirst},
	{"R11", "windows and logs at random", "After any number of requests windows and logs " +
		"count exactly what was admitted.", windowsAtRandom},
}

func windowsOfTheEpoch(p *probe) {
	for _, per := range []time.Duration{time.Second, 7 * time.Second, time.Hour, 365 * day} {
		l := limiter.Limit{Tokens: 2, Per: per, Algorithm: limiter.FixedWindow}
		q := p.fresh()
		next := per - time.Duration(start.UnixNano()%int64(per))
		q.clock.at(next + per - q.step)
		d := q.take(on("alice", l, 1))
		equal("ResetAfter at the end of a window", d.ResetAfter, q.step)
		q.allowed(on("alice", l, 1))
		equal("the wait at the end of a window", q.denied(on("alice", l, 1)), q.step)
		q.after(q.step)
		d = q.take(on("alice", l, 2))
		q.outcome(d, limiter.Allow, nil)
		equal("ResetAfter at the start of a window", d.ResetAfter, per)
		q.after((per / 2).Truncate(q.step))
		equal("the wait", q.denied(on("alice", l, 1)), per-(per/2).Truncate(q.step))
	}
}

func windowsBeforeTheEpoch(p *probe) {
	l := limiter.Limit{Tokens: 2, Per: 10 * time.Second, Algorithm: limiter.FixedWindow}
	epoch := time.Unix(0, 0)
	if epoch.Add(-day).Before(p.h.Earliest) {
		return
	}
	for _, end := range []time.Time{epoch.Add(-time.Hour), epoch, epoch.Add(10 * time.Second)} {
		q := p.fresh()
		q.clock.set(end.Add(-10 * time.Second))
		d := q.take(on("alice", l, 1))
		equal("ResetAfter at the start of the window to "+end.UTC().String(), d.ResetAfter, l.Per)
		q.clock.set(end.Add(-q.step))
		q.allowed(on("alice", l, 1))
		equal("the wait at its end", q.denied(on("alice", l, 1)), q.step)
		q.clock.set(end)
		q.allowed(on("alice", l, 2))
	}
}

func logBoundary(p *probe) {
	l := limiter.Limit{Tokens: 3, Per: 10 * time.Second, Algorithm: limiter.RollingLog}
	p.clock.at(4 * time.Second)
	p.allowed(on("alice", l, 3))
	p.clock.at(14*time.Second - p.step)
	p.left(0, on("alice", l, 0))
	equal("the wait just before the entry leaves", p.denied(on("alice", l, 1)), p.step)
	p.clock.at(14 * time.Second)
	p.left(3, on("alice", l, 0))
	p.allowed(on("alice", l, 3))
}

func oldestFirst(p *probe) {
	l := limiter.Limit{Tokens: 6, Per: 10 * time.Second, Algorithm: limiter.RollingLog}
	p.allowed(on("alice", l, 1))
	p.allowed(on("alice", l, 1))
	p.after(time.Second)
	p.allowed(on("alice", l, 2))
	p.after(time.Second)
	p.allowed(on("alice", l, 2))
	for cost, want := range []time.Duration{0, 8, 8, 9, 9, 10, 10} {
		d := p.take(on("alice", l, int64(cost)))
		equal("the wait", d.RetryAfter, want*time.Second)
		equal("ResetAfter", d.ResetAfter, 10*time.Second)
	}
	p.after(8 * time.Second)
	p.left(2, on("alice", l, 0))
	p.after(time.Second)
	p.left(4, on("alice", l, 0))
}

func windowsAtRandom(p *probe) {
	for _, l := range []limiter.Limit{
		{Tokens: 5, Per: 10 * time.Second}, {Tokens: 1, Per: time.Millisecond},
		{Tokens: 30, Per: time.Minute}, {Tokens: 10, Per: 7 * time.Second},
	} {
		for _, algorithm := range []limiter.Algorithm{limiter.FixedWindow, limiter.RollingLog} {
			l.Algorithm = algorithm
			stream{limits: []limiter.Limit{l}, steps: 1000}.run(p.fresh())
		}
	}
}
