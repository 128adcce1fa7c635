package topcallers

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ration-go/ration/limiter"
)

// Config is what is counted. The zero Config is usable.
type Config struct {
	// Window is how long counts are kept at least; they are gone after two. At least
	// a second; zero means 5 minutes.
	Window time.Duration
	// MaxBudgets bounds the memory: it is how many budgets are counted at a time, up to
	// 10,000; zero means 64. Requests of more are only counted in [Top.Uncounted].
	MaxBudgets int
}

// Top ranks callers. It is safe for concurrent use. The zero Top is not usable; see
// [New].
type Top struct {
	cfg       Config
	seed      maphash.Seed
	budgets   atomic.Pointer[[]*budget] // replaced whole
	turning   atomic.Bool               // a timer will turn the window
	uncounted atomic.Int64

	mu sync.Mutex // held to replace budgets
}

// New returns a Top that has counted nothing yet. The error is a *[limiter.ConfigError]
// that names the field.
func New(cfg Config) (*Top, error) {
	wrong := func(field string, value any, reason string) error {
		return &limiter.ConfigError{Package: "topcallers", Field: "Config." + field, Value: value,
			Reason: reason}
	}
	switch {
	case cfg.Window != 0 && cfg.Window < time.Second:
		return nil, wrong("Window", cfg.Window, "want at least 1s, or 0 for 5m")
	case cfg.MaxBudgets < 0 || cfg.MaxBudgets > 10_000:
		return nil, wrong("MaxBudgets", cfg.MaxBudgets, "want 1 to 10000, or 0 for 64")
	}
	if cfg.Window == 0 {
		cfg.Window = 5 * time.Minute
	}
	if cfg.MaxBudgets == 0 {
		cfg.MaxBudgets = 64
	}
	t := &Top{cfg: cfg, seed: maphash.MakeSeed()}
	t.budgets.Store(new([]*budget))
	return t, nil
}

// Observer returns the Observer that counts. Any number of limiters may share it.
func (t *Top) Observer() limiter.Observer {
	return limiter.Observer{
		// A method value would copy each event once more.
		Decided: func(_ context.Context, e limiter.DecisionEvent) { t.decided(&e) },
	}
}

// Uncounted returns how many times a budget was asked that is not counted, because
// MaxBudgets others are.
func (t *Top) Uncounted() int64 { return t.uncounted.Load() }

// The rankings of a budget.
const (
	byRequests = iota
	byRefusals
	byNearLimit
	rankings
)

// budget is the counts of one budget of one limiter.
type budget struct {
	limiter, name string
	sketches      [rankings]turned
}

// turned is the sketches of the present window and of the one before; nil has counted
// nothing.
type turned struct{ present, before atomic.Pointer[sketch] }

// get returns the present sketch of a ranking.
func (b *budget) get(ranking int) *sketch {
	s := &b.sketches[ranking].present
	if present := s.Load(); present != nil {
		return present
	}
	s.CompareAndSwap(nil, newSketch(ranking == byRequests))
	return b.get(ranking)
}

// caller is who is counted, as hashes.
type caller struct {
	principal *limiter.Principal
	hash      uint64
	label     uint64 // 0: none
}

func (t *Top) decided(e *limiter.DecisionEvent) {
	c := caller{principal: &e.Caller.Principal}
	c.hash = max(1, maphash.Comparable(t.seed, e.Caller.Principal)) // 0 is none
	if e.Caller.Workload != "" {
		c.label = max(1, maphash.String(t.seed, e.Caller.Workload))
	}
	if !t.turning.Load() && t.turning.CompareAndSwap(false, true) {
		time.AfterFunc(t.cfg.Window, t.turn)
	}
	charges, refusing := e.Charges, e.Decision.Budget
	if e.Err != nil && !local(e.Err) {
		charges, refusing = nil, "" // no budget has decided, but its failure policy
	}
	decided := e.Decision.Allowed()
	for i := range charges {
		charge := &charges[i]
		if charge.Result.Outcome == 0 {
			continue // the local side of the store was not asked
		}
		second := ranked(&charge.Result, &charge.Limit)
		if second == byNearLimit && e.Err != nil {
			second = byRequests // what is left of a share says nothing about the limit
		}
		t.count(e.Limiter, charge.Key.Budget, &c, second)
		decided = decided || charge.Key.Budget == e.Decision.Budget
	}
	if !decided {
		t.count(e.Limiter, refusing, &c, byRefusals)
	}
}

// local reports whether the local side of a store has decided, which failed.
func local(err error) bool {
	failed, ok := errors.AsType[*limiter.StoreError](err)
	return ok && failed.Policy == limiter.Local
}

// ranked returns the ranking beside that of requests in which a result counts, if any.
func ranked(r *limiter.Result, l *limiter.Limit) int {
	capacity := l.Capacity()
	switch {
	case r.Outcome == limiter.Deny, r.Outcome == limiter.Never:
		return byRefusals
	case r.Remaining < capacity/5+min(capacity%5, 1): // 20 %, rounded up
		return byNearLimit
	default:
		return byRequests
	}
}

// count counts a request of a budget, and also in a second ranking unless that is
// byRequests.
func (t *Top) count(of, name string, c *caller, second int) {
	b := find(*t.budgets.Load(), of, name)
	if b == nil {
		if b = t.learn(of, name); b == nil {
			t.uncounted.Add(1)
			return
		}
	}
	b.get(byRequests).add(c.hash, c.principal, c.label)
	if second != byRequests {
		b.get(second).add(c.hash, c.principal, 0)
	}
}

// find returns the budget of that name, or nil.
func find(all []*budget, of, name string) *budget {
	for _, b := range all {
		if b.name == name && b.limiter == of {
			return b
		}
	}
	return nil
}

// learn returns a budget that was not known, or nil if there are too many.
func (t *Top) learn(of, name string) *budget {
	if len(*t.budgets.Load()) >= t.cfg.MaxBudgets {
		return nil // without a lock
	}
	of, name = cut(of), cut(name)
	t.mu.Lock()
	defer t.mu.Unlock()
	known := *t.budgets.Load()
	b := find(known, of, name)
	if b != nil || len(known) >= t.cfg.MaxBudgets {
		return b
	}
	b = &budget{limiter: of, name: name}
	all := append(known[:len(known):len(known)], b)
	t.budgets.Store(&all)
	return b
}

// turn begins a new window and forgets the one before the last. Budgets that have
// counted nothing in both are dropped, and without any the timer stops.
func (t *Top) turn() {
	t.mu.Lock()
	defer t.mu.Unlock()
	var kept []*budget
	for _, b := range *t.budgets.Load() {
		empty := true
		for i := range b.sketches {
			last := b.sketches[i].present.Swap(nil)
			b.sketches[i].before.Store(last)
			empty = empty && last == nil
		}
		if !empty {
			kept = append(kept, b)
		}
	}
	t.budgets.Store(&kept)
	if len(kept) == 0 {
		t.turning.Store(false)
		return
	}
	time.AfterFunc(t.cfg.Window, t.turn)
}
