package resilient

import (
	"context"
	"reflect"
	"slices"
	"time"

	"github.com/ration-go/ration/limiter"
)

// Config is how a [Store] behaves while the shared store fails.
type Config struct {
	// Replicas returns how many processes share the limits, at least 1: each decides
	// locally with its part of them. It is called by New, and then at most once a
	// second while the shared store fails, with no lock held; it should answer at
	// once, because a request waits for it. It is not called again before it has
	// returned. If it panics or returns less than 1, its last good value counts. Without
	// one, budgets with OnError Local answer as Closed. Required.
	Replicas func() int
	// MaxCost is the largest cost that a process must be able to admit locally: the
	// share of a token bucket has at least this capacity, if the limit has. If that is
	// more than the limit divided by Replicas, an outage can cost more; see the package
	// comment. 0 means 1.
	// A larger cost than the share can hold is refused as if the budget were Closed.
	MaxCost int64
	// Timeout bounds each call of a shared store that has no breaker of its own, and
	// is how long it may be silent before it is no longer asked. It should be longer
	// than the store's own timeout, whose error says more. 0 means 500 ms. It has no
	// meaning for package redisstore, which has a breaker and a Config.Timeout.
	Timeout time.Duration
}

// Store is a [limiter.Store] that decides in the shared store. It is safe for
// concurrent use. The zero Store is not usable, see [New].
type Store struct {
	shared limiter.Store
	local  *side
	can    limiter.Capabilities
	calls  *calls // nil: the shared store bounds its calls by itself
}

var _ limiter.Store = (*Store)(nil)

// New returns a store that decides in shared and, while that fails, lets budgets with
// OnError Local be decided in local, which should be a store in memory that nothing
// else uses. It does no I/O, so it succeeds while the shared store is down. The error is
// a *[limiter.ConfigError].
func New(shared, local limiter.Store, cfg Config) (*Store, error) {
	for _, s := range []struct {
		field string
		store limiter.Store
	}{{"Shared", shared}, {"Local", local}} {
		v := reflect.ValueOf(s.store)
		if !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
			return nil, wrong(s.field, nil, "want a store, not nil")
		}
	}
	if v, w := reflect.ValueOf(shared), reflect.ValueOf(local); v.Kind() == reflect.Pointer &&
		w.Kind() == reflect.Pointer && v.Pointer() == w.Pointer() {
		return nil, wrong("Local", nil, "want a store of its own, not the shared one")
	}
	switch {
	case cfg.Replicas == nil:
		return nil, wrong("Config.Replicas", nil, "want a function that returns the number of "+
			"processes, such as func() int { return 3 }")
	case cfg.MaxCost < 0:
		return nil, wrong("Config.MaxCost", cfg.MaxCost, "want at least 1, or 0 for 1")
	case cfg.Timeout < 0 || cfg.Timeout > 0 && cfg.Timeout < time.Millisecond:
		return nil, wrong("Config.Timeout", cfg.Timeout, "want at least 1ms, or 0 for 500ms")
	}
	s := &Store{shared: shared, local: &side{local}, can: capabilities(shared)}
	if !s.can.NeverFails && s.can.BreakerOpen == nil {
		if cfg.Timeout == 0 {
			cfg.Timeout = 500 * time.Millisecond
		}
		s.calls = newCalls(shared, cfg.Timeout)
		s.can.BreakerOpen = s.calls.breaker.Open
		if s.can.Reset != nil {
			s.can.Reset = s.calls.reset(s.can.Reset)
		}
	}
	s.join(capabilities(local))
	shares := &shares{maxCost: max(cfg.MaxCost, 1), replicas: newReplicas(cfg.Replicas)}
	s.can.Local, s.can.Share = s.local, shares.of
	return s, nil
}

// capabilities returns what a store says of itself.
func capabilities(s limiter.Store) (c limiter.Capabilities) {
	if says, ok := s.(interface{ Capabilities() limiter.Capabilities }); ok {
		c = says.Capabilities()
	}
	return c
}

// join makes what concerns both stores reach both: which budgets there are, and resets,
// of the local accounts first.
func (s *Store) join(local limiter.Capabilities) {
	switch shared := s.can.Plan; {
	case shared == nil:
		s.can.Plan = local.Plan
	case local.Plan != nil:
		s.can.Plan = func(add, remove []string) {
			shared(add, remove)
			local.Plan(add, remove)
		}
	}
	if shared := s.can.Reset; shared != nil && local.Reset != nil {
		s.can.Reset = func(ctx context.Context, charges []limiter.Charge) error {
			if err := local.Reset(ctx, slices.Clone(charges)); err != nil {
				return err
			}
			return shared(ctx, charges)
		}
	}
}

func wrong(field string, value any, reason string) *limiter.ConfigError {
	return &limiter.ConfigError{Package: "resilient", Field: field, Value: value, Reason: reason}
}

// Capabilities returns what the shared store can do, and the local side. Plan and Reset
// reach both stores; a local store that has no Reset keeps its accounts.
func (s *Store) Capabilities() limiter.Capabilities { return s.can }

// Check returns the error of the shared store. A share that the local store cannot hold
// is no error here: the budget then answers as Closed while the shared store fails.
func (s *Store) Check(l limiter.Limit) error {
	if s.shared == nil {
		return wrong("Store", nil, "want a store made by resilient.New")
	}
	return s.shared.Check(l)
}

// Take asks the shared store; see [limiter.Store]. If that fails, so does Take: it is the
// [limiter.Limiter] that asks the local side then, because it knows the policies.
func (s *Store) Take(ctx context.Context, charges []limiter.Charge) (limiter.Decision, error) {
	take := s.shared.Take
	if s.calls != nil {
		take = s.calls.take
	}
	d, err := take(ctx, charges)
	if err != nil {
		dropReceipts(charges)
	}
	return d, err
}

// Peek asks the shared store; see [limiter.Store].
func (s *Store) Peek(ctx context.Context, charges []limiter.Charge) (limiter.Decision, error) {
	if s.calls != nil {
		return s.calls.peek(ctx, charges)
	}
	return s.shared.Peek(ctx, charges)
}

// Settle corrects the charges in the store that took them; see [limiter.Store]. Charges
// that were taken in different stores are no one request: the error is
// [limiter.ErrReceipt], and nothing is settled.
func (s *Store) Settle(ctx context.Context, charges []limiter.Charge) error {
	local := 0
	for i := range charges {
		if charges[i].Receipt.Local {
			local++
		}
	}
	switch {
	case local > 0 && local < len(charges):
		return limiter.ErrReceipt
	case local > 0:
		return s.local.Settle(ctx, charges)
	case s.calls != nil:
		return s.calls.settle(ctx, charges)
	default:
		return s.shared.Settle(ctx, charges)
	}
}
