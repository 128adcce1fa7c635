// Package model drives stores and the oracle side by side, with the same streams of
// requests; see [Drive].
package model

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"time"

	"github.com/ration-go/ration/internal/lab/oracle"
	"github.com/ration-go/ration/limiter"
)

// Rules are those that the store under test follows.
type Rules oracle.Rules

// Factory returns a new store on a clock.
type Factory func(now func() time.Time) limiter.Store

// Accountant is a store that can say what is left exactly. Drive compares that
// after each step.
type Accountant interface {
	Tokens(limiter.Key) *big.Rat
}

// Prophet is a store that can say what it would decide later, without going
// there. Drive asks it for both sides of each wait.
type Prophet interface {
	PeekAt(at time.Time, charges []limiter.Charge) limiter.Outcome
}

// driver drives a store and the model side by side.
type driver struct {
	rules Rules
	store limiter.Store
	model *oracle.Store
	clock int64
	takes map[int]taking
	done  Stream
}

// taking is the charges of one take, with the receipts of both.
type taking struct{ store, model []limiter.Charge }

func newDriver(f Factory, r Rules) *driver {
	d := &driver{rules: r, model: oracle.NewAs(oracle.Rules(r)), takes: map[int]taking{}}
	d.store = f(func() time.Time { return clockTime(d.clock) })
	return d
}

// clockTime returns an instant as a clock reads it. The ends of int64 become
// times that no int64 can hold.
func clockTime(at int64) time.Time {
	switch at {
	case math.MinInt64:
		return time.Time{}
	case math.MaxInt64:
		return time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC)
	}
	return time.Unix(0, at)
}

// Drive runs a stream through a new store and through the model. The error is
// the first step at which they differ.
func Drive(f Factory, s Stream) error { return Rules{}.Drive(f, s) }

// Drive is [Drive] for a store that follows the rules.
func (r Rules) Drive(f Factory, s Stream) error {
	d := newDriver(f, r)
	for _, step := range s {
		if _, err := d.step(step); err != nil {
			return err
		}
	}
	return nil
}

// Check drives a store with steps of the generator. Where store and model
// differ, the error has a smallest stream that shows it, in the text form.
func Check(f Factory, g *Generator, steps int) error { return Rules{}.Check(f, g, steps) }

// Check is [Check] for a store that follows the rules.
func (r Rules) Check(f Factory, g *Generator, steps int) error {
	d := newDriver(f, r)
	var last limiter.Decision
	for range steps {
		decision, err := d.step(g.Next(last))
		if err != nil {
			small := Shrink(d.done, func(s Stream) bool { return r.Drive(f, s) != nil })
			return fmt.Errorf("%w\nkeep this stream:\n%v", r.Drive(f, small), small)
		}
		last = decision
	}
	return nil
}

func (d *driver) step(s Step) (decision limiter.Decision, err error) {
	d.done = append(d.done, s)
	d.clock = s.At
	switch s.Op {
	case Take, Peek:
		decision, err = d.decide(s)
	case Settle:
		err = d.settle(s)
	case Reset:
		err = d.reset(s)
	default:
		err = fmt.Errorf("no such operation: %q", s.Op)
	}
	if err == nil {
		err = d.audit(s)
	}
	if err != nil {
		err = fmt.Errorf("step %v%w", Stream{s}, err)
	}
	return decision, err
}

func (d *driver) decide(s Step) (limiter.Decision, error) {
	t := taking{slices.Clone(s.Charges), slices.Clone(s.Charges)}
	ask, expect := d.store.Peek, d.model.Peek
	if s.Op == Take {
		ask, expect = d.store.Take, d.model.Take
		d.takes[s.ID] = t
	}
	got, gotErr := ask(context.Background(), t.store)
	want, wantErr := expect(s.At, t.model)
	if !sameError(gotErr, wantErr) {
		return want, fmt.Errorf("error\n got %v\nwant %v", gotErr, wantErr)
	}
	if wantErr != nil {
		return want, nil
	}
	got.Limit, want.Limit = oracle.Normal(got.Limit), oracle.Normal(want.Limit)
	if got != want {
		return want, fmt.Errorf("decision\n got %+v\nwant %+v", got, want)
	}
	for i := range t.store {
		if err := sameCharge(&t.store[i], &t.model[i]); err != nil {
			return want, fmt.Errorf("charge %d: %w", i, err)
		}
	}
	if s.Op == Take && want.Outcome == limiter.Deny && !d.rules.AccountClock {
		return want, d.boundary(s.Charges, want.RetryAfter)
	}
	return want, nil
}

func sameError(got, want error) bool {
	var cost *limiter.CostError
	var config *limiter.ConfigError
	switch {
	case want == nil:
		return got == nil
	case errors.As(want, &cost):
		return errors.As(got, &cost)
	case errors.As(want, &config):
		return errors.As(got, &config)
	default:
		return errors.Is(got, want)
	}
}

func sameCharge(got, want *limiter.Charge) error {
	if got.Result != want.Result {
		return fmt.Errorf("result\n got %+v\nwant %+v", got.Result, want.Result)
	}
	gotTaken, gotOK := got.Receipt.Taken, got.Receipt.Valid
	wantTaken, wantOK := want.Receipt.Taken, want.Receipt.Valid
	if gotOK != wantOK || gotTaken != wantTaken {
		return fmt.Errorf("receipt\n got %d, %v\nwant %d, %v", gotTaken, gotOK, wantTaken, wantOK)
	}
	return nil
}

// boundary checks R4 for the denial that was just given: refused a nanosecond
// before the wait is over, allowed when it is. Instants that end with int64 have
// no later one. It is for stores with one clock.
func (d *driver) boundary(charges []limiter.Charge, wait time.Duration) error {
	now := d.model.Latest.Int64()
	if int64(wait) > math.MaxInt64-max(now, 0) || int64(wait) == math.MaxInt64 {
		return nil
	}
	for early, want := range []limiter.Outcome{limiter.Allow, limiter.Deny} {
		at := now + int64(wait) - int64(early)
		if early > 0 && wait <= 1 {
			continue // now itself, which was denied
		}
		later, err := d.model.Clone().Peek(at, slices.Clone(charges))
		if err != nil || later.Outcome != want {
			return fmt.Errorf("the model at %d: got %v, %v, want %v", at, later, err, want)
		}
		prophet, ok := d.store.(Prophet)
		if !ok {
			continue
		}
		if got := prophet.PeekAt(clockTime(at), slices.Clone(charges)); got != want {
			return fmt.Errorf("%d ns before the wait of %v is over: got %v, want %v",
				early, wait, got, want)
		}
	}
	return nil
}

// settle corrects the charges of an earlier take that have receipts, as a
// reservation does; where none has, all, which is an error.
func (d *driver) settle(s Step) error {
	t, ok := d.takes[s.Of]
	if !ok {
		return nil // the take was deleted from the stream
	}
	paid := withReceipt(t.model)
	if paid == nil {
		paid = []int{0}
	}
	var store, model []limiter.Charge
	for n, i := range paid {
		store, model = append(store, t.store[i]), append(model, t.model[i])
		store[n].Cost, model[n].Cost = s.correction(n), s.correction(n)
	}
	got, want := d.store.Settle(context.Background(), store), d.model.Settle(s.At, model)
	if !sameError(got, want) {
		return fmt.Errorf("error\n got %v\nwant %v", got, want)
	}
	for n, i := range paid {
		if err := sameCharge(&store[n], &model[n]); err != nil {
			return fmt.Errorf("charge %d: %w", i, err)
		}
		t.store[i].Receipt, t.model[i].Receipt = store[n].Receipt, model[n].Receipt
	}
	return nil
}

func withReceipt(charges []limiter.Charge) (indexes []int) {
	for i := range charges {
		if ok := charges[i].Receipt.Valid; ok {
			indexes = append(indexes, i)
		}
	}
	return indexes
}

func (s Step) correction(n int) int64 {
	if n < len(s.Corrections) {
		return s.Corrections[n]
	}
	return 0
}

func (d *driver) reset(s Step) error {
	store, ok := d.store.(resetter)
	if !ok {
		return nil
	}
	// Whether Reset reads the clock is left to the store: both have now.
	probe := slices.Clone(s.Charges[:1])
	probe[0].Cost = 0
	if _, err := d.decide(Step{Op: Peek, At: s.At, Charges: probe}); err != nil {
		return err
	}
	d.model.Reset(s.Charges)
	return store.Reset(context.Background(), slices.Clone(s.Charges))
}

// audit compares what is left in the accounts of a step.
func (d *driver) audit(s Step) error {
	store, ok := d.store.(Accountant)
	if !ok {
		return nil
	}
	for _, c := range s.Charges {
		got, want := store.Tokens(c.Key), d.model.Tokens(s.At, c.Key, c.Limit)
		if got != nil && got.Cmp(want) != 0 {
			return fmt.Errorf("tokens of %v\n got %v\nwant %v", c.Key, got, want)
		}
	}
	return nil
}

// resetter is a store that can make accounts full again.
type resetter interface {
	Reset(ctx context.Context, charges []limiter.Charge) error
}
