package limiter

import (
	"context"
	"errors"
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
// is a *[StoreError] with the reason "unavailable" or "timeout", a *[CostError] or
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
//
// If the limit changes and changes back while a reservation is open, the account can
// be given up to one capacity too much. Under a smaller limit the credit can fill the
// account, and a full account is full under every later limit. An example: of a token
// bucket of 100, 50 are reserved and 50 are taken. The limit is lowered to 50, and a
// request is denied under it. Then the reservation is canceled, which fills the
// account, and the limit is raised to 100 again: 100 more are admitted, not 50. A
// window or a log can be given too much in this way if Per was shorter for a time, or
// if it was a token bucket for a time.
type Reservation struct {
	// Decision is what Take would have answered. Nothing is reserved unless it is
	// allowed.
	Decision Decision

	store   Store
	cost    int64
	charges []Charge
	fixed   []bool // charges of PerRequest budgets
	open    atomic.Bool
	done    atomic.Bool // settled without an error; prior may be left

	prior   *Reservation                // an earlier part of the same request, or nil
	next    atomic.Pointer[Reservation] // a later part, which settles this one, too
	handled atomic.Bool                 // the handler has called [Settle]
}

// Reserve takes cost from the budgets of c as Take does, to be settled later.
// The error is that of Take; the Reservation is not nil, and carries its
// Decision, where that is valid.
func (l *Limiter) Reserve(ctx context.Context, c Caller, cost int64) (*Reservation, error) {
	q := l.borrow()
	defer l.giveBack(q)
	return l.reserve(ctx, q, &c, cost)
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
		if q.charges[i].Receipt.Valid {
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
// This holds under the limit of the reservation, even if a later limit has a longer
// period, and under the limit of the account.
//
// A negative cost is a *[CostError] and settles nothing. The error is
// [ErrReceipt] if the request was not allowed or is settled already, and otherwise
// the store's: see [Reservation] for which of those Settle can be called again.
func (r *Reservation) Settle(ctx context.Context, actual int64) error {
	if err := checkCost(actual); err != nil {
		return err
	}
	if r.handled.Load() {
		return ErrReceipt // only the handler may try again
	}
	return r.settleAll(ctx, actual)
}

// settleAll settles all parts of a request, the last one first.
func (r *Reservation) settleAll(ctx context.Context, actual int64) error {
	if next := r.next.Load(); next != nil {
		return next.settleAll(ctx, actual)
	}
	return r.settleParts(ctx, actual)
}

func (r *Reservation) settleParts(ctx context.Context, actual int64) error {
	before := min(actual, r.prior.total()) // is for the earlier parts to keep
	err := r.settle(ctx, func(i int) int64 {
		if r.fixed[i] {
			return 0
		}
		return max(actual-before-r.cost, -r.charges[i].Cost)
	})
	return r.alsoPrior(err, func(prior *Reservation) error { return prior.settleParts(ctx, before) })
}

// alsoPrior settles the earlier part by f, if this one is settled, now or by a call
// whose error came from the earlier part.
func (r *Reservation) alsoPrior(err error, f func(prior *Reservation) error) error {
	settled := err == nil || err == ErrReceipt && r.done.Load()
	if settled && r.prior != nil && r.prior.open.Load() {
		return f(r.prior)
	}
	return err
}

// settleByHandler is Settle for the handler of a request: from then on only the
// handler settles it, so that no rule of an adapter overrules what it said.
func (r *Reservation) settleByHandler(ctx context.Context, actual int64) error {
	if err := checkCost(actual); err != nil {
		return err
	}
	for part := r; part != nil; part = part.prior {
		part.handled.Store(true)
	}
	return r.settleAll(ctx, actual)
}

// total returns what r and the earlier parts have reserved.
func (r *Reservation) total() (sum int64) {
	for ; r != nil; r = r.prior {
		sum += r.cost
	}
	return sum
}

// Cancel gives back all that was reserved, for work that was not done. Its
// errors are those of Settle.
func (r *Reservation) Cancel(ctx context.Context) error {
	if r.handled.Load() {
		return ErrReceipt
	}
	if next := r.next.Load(); next != nil {
		return next.Cancel(ctx)
	}
	return r.cancelParts(ctx)
}

func (r *Reservation) cancelParts(ctx context.Context) error {
	err := r.settle(ctx, func(i int) int64 { return -r.charges[i].Cost })
	return r.alsoPrior(err, func(prior *Reservation) error { return prior.cancelParts(ctx) })
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
	var err error
	if changed {
		err = r.store.Settle(context.WithoutCancel(ctx), charges)
	}
	switch {
	case err == nil:
		r.done.Store(true)
	case changedNothing(err, charges):
		r.open.Store(true)
	}
	return err
}

// changedNothing reports whether a Settle that failed with err has certainly
// corrected none of the charges.
func changedNothing(err error, charges []Charge) bool {
	for i := range charges {
		if !charges[i].Receipt.Valid {
			return false // the store has consumed it
		}
	}
	var store *StoreError
	if errors.As(err, &store) {
		return store.Reason == unavailable || store.Reason == timeout
	}
	var cost *CostError
	var config *ConfigError
	return errors.As(err, &cost) || errors.As(err, &config)
}
