package limiter

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync/atomic"
)

// Reservation is a Take whose cost is known only afterwards: the most it can
// cost is reserved, and corrected once. What nobody settles stands, so that a
// caller who leaves early gains nothing. It is safe for concurrent use; the
// first Settle or Cancel that succeeds counts. The zero Reservation has nothing
// to settle.
//
// A Settle or Cancel that certainly changed nothing may be called again: its error
// is a *[StoreError] with the reason [Unavailable] or [Timeout], a *[CostError] or
// a *[ConfigError]. After any other error the correction may have been made, so
// the reservation counts as settled, and no token is ever given back twice. While
// one call is in flight, others return [ErrReceipt].
//
// A token bucket refills while reservations are open, and what they give back can
// be spent on top. Over any span T a token bucket therefore admits at most
//
//	Burst + T*Tokens/Per + H
//
// where H is the sum of the reserved tokens that are given back in the span and
// were taken before it. H is at most the number of requests in flight times what
// each reserves. A bucket of 1,000 an hour with one reservation of 1,000, open for
// an hour, can admit 2,000 at one instant. A window or a log gives nothing back
// once the window has ended or the entry has left.
type Reservation struct {
	// Decision is what Take would have answered. Nothing is reserved unless it is
	// allowed.
	Decision Decision

	store   Store
	cost    int64
	charges []Charge
	fixed   []bool // charges of PerRequest budgets
	open    atomic.Bool
}

// Reserve takes cost from the budgets of c as Take does, to be settled later.
// The error is that of Take; the Reservation is not nil, and carries its
// Decision, where that is valid.
func (l *Limiter) Reserve(ctx context.Context, c Caller, cost int64) (*Reservation, error) {
	return l.ReserveEach(ctx, c, cost, nil)
}

// ReserveMore is for adapters: it is Reserve for the rest of a request that was
// charged in part already, so that budgets PerRequest have their 1 and take none.
func (l *Limiter) ReserveMore(ctx context.Context, c Caller, cost int64) (*Reservation, error) {
	q := l.borrow()
	defer l.giveBack(q)
	q.more = true
	return l.reserve(ctx, q, &c, cost)
}

// ReserveEach is for adapters: it is to Reserve what TakeEach is to Take. A nil
// each is not called.
func (l *Limiter) ReserveEach(
	ctx context.Context, c Caller, cost int64, each func(*Budget, *Charge),
) (*Reservation, error) {
	q := l.borrow()
	defer l.giveBack(q)
	r, err := l.reserve(ctx, q, &c, cost)
	if each != nil && err == nil {
		q.show(each)
	}
	return r, err
}

func (l *Limiter) reserve(
	ctx context.Context, q *request, c *Caller, cost int64,
) (*Reservation, error) {
	r := &Reservation{store: l.store, cost: cost}
	err := l.take(ctx, q, c, cost, &r.Decision)
	if !r.Decision.Allowed() {
		return r, err
	}
	if err == nil { // a Take that failed has no receipts to rely on
		r.keep(q)
	}
	r.open.Store(true)
	return r, err
}

// keep copies the charges of q that were taken.
func (r *Reservation) keep(q *request) {
	r.charges = make([]Charge, 0, len(q.charges))
	r.fixed = make([]bool, 0, len(q.charges))
	for i := range q.charges {
		if q.charges[i].Receipt.valid {
			r.charges = append(r.charges, q.charges[i])
			r.fixed = append(r.fixed, q.budgets[i].PerRequest)
		}
	}
}

// Settle replaces the reserved cost by the actual one, in the accounts it was
// taken from; PerRequest budgets keep their 1. More than was reserved may be
// debited below zero, down to minus the capacity, and later requests wait for
// it; what goes below that is not counted. A smaller cost is given back, up to the
// capacity: [Reservation] says what open reservations can hold. ctx's cancellation
// has no effect.
//
// If the fixed window of the reservation has ended, or its entry has left the
// rolling log, more than was reserved is debited now, and less gives nothing back.
//
// A negative cost is a *[CostError] and settles nothing. The error is
// [ErrReceipt] if the request was not allowed or is settled already, and otherwise
// the store's: see [Reservation] for which of those Settle can be called again.
func (r *Reservation) Settle(ctx context.Context, actual int64) error {
	if err := checkCost(actual); err != nil {
		return err
	}
	return r.settle(ctx, func(i int) int64 {
		if r.fixed[i] {
			return 0
		}
		return actual - r.cost
	})
}

// Cancel gives back all that was reserved, for work that was not done. Its
// errors are those of Settle.
func (r *Reservation) Cancel(ctx context.Context) error {
	return r.settle(ctx, func(i int) int64 { return -r.charges[i].Cost })
}

func (r *Reservation) settle(ctx context.Context, correction func(i int) int64) error {
	if !r.open.CompareAndSwap(true, false) {
		return ErrReceipt
	}
	charges := slices.Clone(r.charges)
	changed := false
	for i := range charges {
		charges[i].Cost = correction(i)
		changed = changed || charges[i].Cost != 0
	}
	if !changed {
		return nil
	}
	err := r.store.Settle(context.WithoutCancel(ctx), charges)
	if err != nil && changedNothing(err, charges) {
		r.open.Store(true)
	}
	return err
}

// changedNothing reports whether a Settle that failed with err has certainly
// corrected none of the charges.
func changedNothing(err error, charges []Charge) bool {
	for i := range charges {
		if !charges[i].Receipt.valid {
			return false // the store has consumed it
		}
	}
	var store *StoreError
	if errors.As(err, &store) {
		return store.Reason == Unavailable || store.Reason == Timeout
	}
	var cost *CostError
	var config *ConfigError
	return errors.As(err, &cost) || errors.As(err, &config)
}

// CheckSettle is for stores: it returns [ErrReceipt] for the first charge that
// has no receipt, or a *[CostError] for one that credits more than was taken.
func CheckSettle(charges []Charge) error {
	for i := range charges {
		_, taken, _, ok := charges[i].Receipt.Taken()
		if !ok {
			return ErrReceipt
		}
		if charges[i].Cost < -taken {
			return &CostError{charges[i].Cost, -taken, math.MaxInt64}
		}
	}
	return nil
}

// CheckTake is for stores: it returns a *[CostError] for the first charge whose
// cost is negative.
func CheckTake(charges []Charge) error {
	for i := range charges {
		if err := checkCost(charges[i].Cost); err != nil {
			return err
		}
	}
	return nil
}
