package storekit

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/ration-go/ration/limiter"
)

// Config is how a [Store] uses its [Backend]. The zero Config is usable.
type Config struct {
	// Name is the metric label "store", such as "postgres"; empty means "custom".
	Name string
	// Timeout bounds each call, from its start to the end of its commit; 0 means
	// 250 ms. A Backend that does not return when its context ends is given a
	// quarter of it more.
	Timeout time.Duration
	// Secret keys the hash that names accounts; see [KeyOf]. Processes that share
	// accounts have the same Secret. Without one, whoever can read the database can
	// search it for known ids.
	Secret []byte
	// Now is the clock, for tests and replay; nil means the Backend's own. It is
	// called before the accounts are locked.
	Now func() time.Time
}

// Store is a [limiter.Store] on a [Backend]. It holds every valid limit exactly. It
// is safe for concurrent use; the zero Store is not usable, see [New].
//
// A call runs the Backend in a goroutine of its own, which ends with the Backend's
// method. It costs what the Backend costs, one goroutine, and a hash for each
// charge.
type Store struct {
	backend Backend
	cfg     Config
}

var _ limiter.Store = (*Store)(nil)

// New returns a store on the backend. It does no I/O. The error is a
// *[limiter.ConfigError].
func New(b Backend, cfg Config) (*Store, error) {
	if v := reflect.ValueOf(b); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, &limiter.ConfigError{Package: "storekit", Field: "Backend",
			Reason: "want a backend, not nil"}
	}
	if cfg.Timeout < 0 || cfg.Timeout > 0 && cfg.Timeout < time.Millisecond {
		return nil, &limiter.ConfigError{Package: "storekit", Field: "Config.Timeout", Value: cfg.Timeout,
			Reason: "want at least 1ms, or 0 for 250ms"}
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 250 * time.Millisecond
	}
	if cfg.Name == "" {
		cfg.Name = "custom"
	}
	cfg.Secret = append([]byte(nil), cfg.Secret...)
	return &Store{b, cfg}, nil
}

// Check returns l.Validate(): every valid limit is held exactly.
func (s *Store) Check(l limiter.Limit) error { return l.Validate() }

// Take decides the charges together and debits all or none; see [limiter.Store].
//
// The error is a *[limiter.CostError] or *[limiter.ConfigError] for a charge that
// is not valid, else ctx's own or a *[limiter.StoreError]. If ctx ends while the
// Backend works, Take returns at once, the transaction goes on to its end, and the
// charges may be debited. After any error there is no receipt.
func (s *Store) Take(ctx context.Context, charges []limiter.Charge) (limiter.Decision, error) {
	dropReceipts(charges)
	return s.decide(ctx, Take, charges)
}

// Peek says what Take would say, and changes nothing. Its errors are those of
// Take.
func (s *Store) Peek(ctx context.Context, charges []limiter.Charge) (limiter.Decision, error) {
	return s.decide(ctx, Peek, charges)
}

func (s *Store) decide(
	ctx context.Context, v Verb, charges []limiter.Charge,
) (limiter.Decision, error) {
	r, err := s.run(ctx, v, charges)
	if err != nil {
		return limiter.Decision{}, err
	}
	return r.Finish(charges), nil
}

// Settle corrects what was taken; see [limiter.Store]. ctx only carries values: its
// end has no effect.
//
// The error is [limiter.ErrReceipt], a *[limiter.CostError] or
// *[limiter.ConfigError], all before anything is changed, or a
// *[limiter.StoreError]. After one that is [Ambiguous] the receipts are
// consumed, so that nothing is settled twice; after any other they are still valid.
func (s *Store) Settle(ctx context.Context, charges []limiter.Charge) error {
	r, err := s.run(context.WithoutCancel(ctx), Settle, charges)
	if err == nil {
		r.Finish(charges)
	} else if ambiguous(err) {
		dropReceipts(charges)
	}
	return err
}

// Reset makes the accounts of the charges full by deleting their rows, readable or
// not. The error is a *[limiter.StoreError], or ctx's own.
func (s *Store) Reset(ctx context.Context, charges []limiter.Charge) error {
	_, err := s.run(ctx, Reset, charges)
	return err
}

// Capabilities returns the store's name and its Reset. The store can fail.
func (s *Store) Capabilities() limiter.Capabilities {
	return limiter.Capabilities{Name: s.cfg.Name, Reset: s.Reset}
}

// run makes one call of the Backend. It returns the request once it is committed.
func (s *Store) run(ctx context.Context, v Verb, charges []limiter.Charge) (*Request, error) {
	r, err := Prepare(v, charges, s.cfg.Secret)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(r.Keys()) == 0 {
		return r, nil
	}
	call := &call{request: r}
	if s.cfg.Now != nil {
		call.now, call.replay = s.cfg.Now(), true
	}
	// Only the deadline is passed on, so that a caller who leaves breaks no
	// transaction.
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Timeout)
	done := make(chan error, 1)
	go func() {
		defer cancel()
		done <- guard(func() error { return call.run(bounded, s.backend) })
	}()
	patience := time.NewTimer(s.cfg.Timeout + s.cfg.Timeout/4)
	defer patience.Stop()
	select {
	case err = <-done:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-patience.C:
		return nil, v.unanswered(s.cfg.Timeout)
	}
	if err != nil {
		return nil, storeError(err)
	}
	return r, nil
}

// unanswered is the error for a Backend that does not return. Only a View is known
// to have written nothing.
func (v Verb) unanswered(after time.Duration) error {
	reason := Ambiguous
	if v == Peek {
		reason = Timeout
	}
	return &limiter.StoreError{Reason: reason, Err: fmt.Errorf(
		"storekit: the backend has not returned %v after its start, when its context ended", after)}
}

// call is one call of a Backend.
type call struct {
	request *Request
	now     time.Time // the instant, if replay
	replay  bool
}

var errUndecided = errors.New("storekit: the backend returned no error, but its last call of " +
	"decide returned one, or there was none: want the error of decide returned")

func (c *call) run(ctx context.Context, b Backend) error {
	decide := func(now time.Time, states [][]byte) ([]Record, error) {
		if err := ctx.Err(); err != nil {
			return nil, err // too late: nothing is debited
		}
		if c.replay {
			now = c.now
		}
		return c.request.Decide(now, states)
	}
	work := b.Update
	if c.request.verb == Peek {
		work = b.View
	}
	err := work(ctx, c.request.Keys(), decide)
	if err == nil && !c.request.decided {
		return errUndecided
	}
	return err
}
