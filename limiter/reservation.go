package limiter

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// Reservation is a Take whose cost is known only afterwards: the most it can
// cost is reserved, and corrected once. What nobody settles stands, so that a
// caller who leaves early gains nothing. It is safe for concurrent use; the
// first Settle or Cancel that succeeds counts. The zero Reservation has nothing
// to settle.
//
// A Settle or Cancel that certainly changed nothing may be called again: its error
// is a *[StoreError] with the reason "unavailable", "timeout" or "overload", a
// *[CostError] or a *[ConfigError]. After any other error the correction may have
// been made, so the reservation counts as settled, and no token is ever given back
// twice. While one call is in flight, others return [ErrReceipt].
//
// What was reserved in the local side of a store that failed is settled only there, also
// when the store is back.
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

	limiter *Limiter
	local   bool // taken in the local side of the store
	held    []held
	group   *group // of all reservations of one request; nil if nothing is reserved
	own     group  // the group of a request with one reservation
}

// held is a charge that was taken.
type held struct {
	charge  Charge
	fixed   bool  // of a PerRequest budget
	earlier int64 // what earlier parts of the request have paid to the same account
	later   bool  // a later part has paid to the same account
}

// correction returns what replaces the reserved cost by the actual one: of the parts
// that have paid to one account the last one takes what the others do not. A negative
// actual cancels.
func (h *held) correction(actual int64) int64 {
	switch {
	case actual < 0:
		return -h.charge.Cost
	case h.fixed:
		return 0
	}
	target := actual - min(actual, h.earlier)
	if h.later {
		target = min(target, h.charge.Cost)
	}
	return target - h.charge.Cost
}

// Reserve takes cost from the budgets of c as Take does, to be settled later.
// The error is that of Take; the Reservation is not nil, and carries its
// Decision, where that is valid.
func (l *Limiter) Reserve(ctx context.Context, c Caller, cost int64) (*Reservation, error) {
	q := l.borrow(&c, cost)
	defer l.giveBack(q)
	return l.reserve(ctx, q)
}

func (l *Limiter) reserve(ctx context.Context, q *request) (*Reservation, error) {
	err := l.take(ctx, q)
	r := &Reservation{limiter: l, Decision: q.event.Decision, local: answeredLocally(err)}
	if !r.Decision.Allowed() {
		return r, err
	}
	if err == nil || r.local { // a Take that failed has no receipts to rely on
		r.keep(q)
	}
	r.group = &r.own
	r.group.parts = append(r.group.parts, r)
	return r, err
}

// keep copies the charges of q that were taken.
func (r *Reservation) keep(q *request) {
	r.held = make([]held, 0, len(q.charges))
	for i := range q.charges {
		if c := &q.charges[i]; c.Receipt.Valid {
			_, earlier := q.paid(&c.Key)
			r.held = append(r.held, held{charge: *c, fixed: q.budgets[i].PerRequest, earlier: earlier})
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
	return r.settle(ctx, actual, false)
}

// settle is Settle. Once the handler of a request has called it, only the handler
// settles the request, so that no rule of an adapter overrules what it said.
func (r *Reservation) settle(ctx context.Context, actual int64, byHandler bool) error {
	if err := checkCost(actual); err != nil {
		return err
	}
	return r.group.settle(ctx, actual, byHandler)
}

// Cancel gives back all that was reserved, for work that was not done. Its
// errors are those of Settle.
func (r *Reservation) Cancel(ctx context.Context) error { return r.group.settle(ctx, canceled, false) }

// canceled is the actual cost of work that was not done.
const canceled = -1

// group is the reservations of one request: a request that meets its limiter several
// times has one for each part that it paid.
type group struct {
	mu      sync.Mutex     // guards what follows
	parts   []*Reservation // not settled yet, in the order in which they were made
	busy    bool           // a call is in flight
	started bool           // a part was settled, at actual
	actual  int64
	handled bool // the handler has called [Settle]
}

// open reports whether something is left to settle.
func (g *group) open() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.parts) > 0 && !g.started
}

// join adds a later part to the group.
func (g *group) join(r *Reservation) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, part := range g.parts {
		for i := range part.held {
			key := part.held[i].charge.Key
			part.held[i].later = part.held[i].later || slices.ContainsFunc(r.held,
				func(h held) bool { return h.charge.Key == key })
		}
	}
	r.group = g
	g.parts = append(g.parts, r)
}

// settle corrects all parts, the last one first. If a part fails, a call with the same
// cost goes on with it.
func (g *group) settle(ctx context.Context, actual int64, byHandler bool) error {
	if g == nil {
		return ErrReceipt
	}
	parts, corrections := g.begin(actual, byHandler)
	if parts == nil {
		return ErrReceipt
	}
	for i := len(parts) - 1; i >= 0; i-- {
		err := parts[i].correct(ctx, corrections[i])
		if err == nil || !changedNothing(err, corrections[i]) {
			g.remove(parts[i], actual)
		}
		if err != nil {
			g.end()
			return err
		}
	}
	g.end()
	return nil
}

// begin returns the open parts with their corrections, or nil if there are none for
// this call.
func (g *group) begin(actual int64, byHandler bool) (parts []*Reservation, corrections [][]Charge) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.handled = g.handled || byHandler
	if g.busy || g.handled && !byHandler || g.started && g.actual != actual || len(g.parts) == 0 {
		return nil, nil
	}
	g.busy = true
	for _, part := range g.parts {
		charges := make([]Charge, len(part.held))
		for i := range part.held {
			charges[i] = part.held[i].charge
			charges[i].Cost = part.held[i].correction(actual)
		}
		corrections = append(corrections, charges)
	}
	return slices.Clone(g.parts), corrections
}

func (g *group) remove(part *Reservation, actual int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.started, g.actual = true, actual
	g.parts = slices.DeleteFunc(g.parts, func(r *Reservation) bool { return r == part })
}

func (g *group) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.busy = false
}

// correct settles the charges of one part.
func (r *Reservation) correct(ctx context.Context, charges []Charge) error {
	if !slices.ContainsFunc(charges, func(c Charge) bool { return c.Cost != 0 }) {
		return nil
	}
	l := r.limiter
	store := l.store
	if r.local {
		store = l.can.Local
	}
	err := store.Settle(context.WithoutCancel(ctx), charges)
	if l.observer.SettleLost != nil && err != nil && !isMistake(err) {
		l.observer.SettleLost(l.name, l.can.Name)
	}
	return err
}

// isMistake reports whether the error of a Settle is the caller's.
func isMistake(err error) bool {
	_, wrongCost := errors.AsType[*CostError](err)
	_, wrongConfig := errors.AsType[*ConfigError](err)
	return wrongCost || wrongConfig || errors.Is(err, ErrReceipt)
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
		return store.Reason == unavailable || store.Reason == timeout || store.Reason == overload
	}
	var cost *CostError
	var config *ConfigError
	return errors.As(err, &cost) || errors.As(err, &config)
}
