package limiter

import (
	"context"
	"errors"
	"log/slog"
	"math/bits"
	"slices"
	"time"

	"github.com/ration-go/ration/internal/kind"
)

// Adapter is a [Limiter] as the adapter of a transport uses it, such as package
// middleware or grpcinterceptor; services do not need it. An adapter finds out
// who calls and on which route, calls Take, and answers in its protocol what the
// [Request] then says:
//
//	a := l.Adapter()
//	_, err := a.Setup("mq", false, nil) // once for each handler that it wraps
//	...
//	r := limiter.Request{Transport: "mq", Caller: caller, Cost: 1} // a new one for each Take
//	ctx, err := a.Take(ctx, &r)
//	if !r.Decision.Allowed() {
//		return refusal(&r, err)
//	}
//	handle(ctx, message)
//
// Whether to let a request through is what Decision.Allowed says, also if err is
// not nil: the budgets of a store that failed may be Open. A refusal is one of
//
//   - err is [ErrNobody]: ask the caller to authenticate.
//   - err is a *[StoreError] whose Policy is not [Local]: the service cannot decide.
//     The caller may come back after Decision.RetryAfter.
//   - err is not nil and no *[StoreError]: see [Limiter.Take]. If it is the context's,
//     nobody reads the answer.
//   - Decision.Outcome is [Deny]: the caller may come back after
//     Decision.RetryAfter. Named, Shown and Unavailable say what to tell it.
//   - Decision.Outcome is [Never]: the caller must not come back with this request.
//
// All methods are safe for concurrent use.
type Adapter Limiter

// Adapter returns l as an [Adapter], for code that connects it to a transport.
func (l *Limiter) Adapter() *Adapter { return (*Adapter)(l) }

// Request is one request. The adapter fills in the fields up to Err, and Take fills in
// the rest. The zero value of each field is usable. Each Take needs a new Request.
type Request struct {
	Transport string // metric label, such as "http"
	// Caller may have no principal; Take then returns [ErrNobody] if a budget needs one.
	Caller Caller
	Cost   int64 // tokens
	// ID tells requests apart that share a context, such as one that a handler makes
	// up: any comparable value. Nil is the request that the context belongs to. It
	// is needed only with Settles, or if the function that Setup returned answers true.
	ID any
	// Message numbers the received messages of an open stream from 1. The first one
	// pays only what the open has not paid already; each later one is charged by
	// itself. Take has to get the context that it returned for the open, which must
	// have set KnowsCaller or Settles. 0 is not a message. A negative number is a message
	// that the handler sends: it pays by itself, and no [Settle] corrects it.
	Message int
	// Reserve reserves the cost, so that the adapter may correct it by Reservation,
	// for example when it knows how the handler has ended.
	Reserve bool
	// Settles reserves the cost, so that the handler may correct it with [Settle],
	// by the context that Take returns.
	Settles bool
	// KnowsCaller lets the handler find its caller with keying.CallerFrom, by the context
	// that Take returns.
	KnowsCaller bool
	// WantState asks Take to fill State.
	WantState bool
	// Skip makes the request free: no budget is charged. Take sets it for a request
	// that Config.Gate exempts.
	Skip bool
	// Err refuses the request without a charge, such as [ErrNobody] if the adapter
	// found no principal. Take returns it.
	Err error

	// Outcome is what became of the request, as the metrics count it; see
	// [RequestEvent]. It is empty if the request was charged before, by another
	// adapter or an outer mount, and paid enough. Do not use it to let requests
	// through.
	Outcome string
	// Decision is valid if the error is nil or a *[StoreError], and zero otherwise. Of
	// a request that is free, or has paid enough before, it has only the Outcome.
	Decision Decision
	// State is the state of an account after an allowed request: of those that the
	// caller may see, the one with the least left relative to its capacity.
	// If there is none, or an outer mount has its state already, State.Budget is empty.
	State Decision
	// Next is the wait until there are more tokens than State.Remaining, or, if the
	// request was refused, than Decision.Remaining; 0 if the account is full.
	Next time.Duration
	// Named says that the caller may know Decision.Budget by name: it is ByPrincipal
	// or ByTenant, or Public.
	Named bool
	// Shown says that the caller may also know the state in Decision: the account is
	// the caller's or its tenant's, and nobody else draws on it, or the budget is
	// Public.
	Shown bool
	// Unavailable is Budget.Unavailable of the budget that refused.
	Unavailable bool
	// Reservation is not nil if Reserve or Settles is set and the cost was reserved.
	// It corrects what this request has paid here and further out. Its error is
	// [ErrReceipt] if the handler, or an adapter further in, has corrected it first.
	Reservation *Reservation

	exempt bool // by Config.Gate
}

// Setup announces one more handler whose requests will be charged, on a transport
// such as "http"; settles says that requests may set Reserve or Settles. Call it
// before the first request. It runs check now, and Reload runs it before each change;
// if check fails, Setup or Reload returns its error. check gets the budgets, which it
// must not change, what the store can do, and the transports of all adapters,
// including this one. If there are several, it accepts routes that it does not know.
// Nil checks nothing.
//
// The function that it returns reports whether a request may meet the limiter
// more than once, so that [Request].ID is needed.
func (a *Adapter) Setup(
	transport string, settles bool,
	check func(budgets []Budget, store Capabilities, transports []string) error,
) (shared func() bool, err error) {
	return (*Limiter)(a).setup(transport, settles, check)
}

// Check runs the checks of all adapters on the present budgets, for adapters that
// know more after Setup, such as the routes that exist.
func (a *Adapter) Check() error {
	l := (*Limiter)(a)
	return l.check(asGiven(l.loaded()))
}

// Routes declares the routes that the adapter serves on a transport, so that
// their metrics exist before the first request.
func (a *Adapter) Routes(transport string, routes ...string) {
	if a.observer.Routes != nil {
		a.observer.Routes(a.name, transport, routes)
	}
}

// Warn logs a misuse that construction could not know of, under a code that stays
// the same. The link that is logged with it names the package comments that explain
// the codes. The caller makes sure that each code is logged once.
func (a *Adapter) Warn(ctx context.Context, code, message string, attrs ...slog.Attr) {
	(*Limiter)(a).warn(ctx, code, message, attrs...)
}

// Take charges a request, reports its outcome, and returns the context to handle
// it in. One limiter charges each account once for one request of one principal,
// however many adapters and mounts the request meets: a later one pays only what it
// costs more, and all of it to an account of its own route. A correction reaches all
// parts.
//
// The errors are those of [Limiter.Take], and r.Err. The context is ctx itself if
// the request is refused or is a Message, or if nobody needs to find the request
// again. Take does not allocate unless it has to make a context or a reservation.
func (a *Adapter) Take(ctx context.Context, r *Request) (context.Context, error) {
	l := (*Limiter)(a)
	if r.Err != nil {
		r.Outcome = outcome(&r.Decision, r.Err)
		l.answered(r)
		return ctx, r.Err
	}
	r.Caller.trim() // handlers find the caller as it was charged
	traced := l.traced(r)
	var innermost, before *node
	if traced || r.Message > 0 {
		innermost = nodeFrom(ctx)
		before = l.chargedBefore(innermost, r)
	}
	if r.exempt = before != nil && before.exempt; r.exempt || r.Skip {
		r.Skip = true
		l.skip(r, before)
		if !traced {
			return ctx, nil
		}
		return l.within(ctx, r, innermost, before, nil, nil), nil
	}
	q := l.borrow(&r.Caller, r.Cost)
	defer l.giveBack(q)
	var prior *Reservation
	if before != nil && r.Message <= 1 {
		q.part = true
		q.earlier, prior = before.prior(q.earlier, r.Message)
	}
	held, err := l.charge(ctx, q, r, prior)
	r.Decision = q.event.Decision
	allowed := r.Decision.Allowed()
	covered := q.part && err == nil && allowed && len(q.charges) == 0
	if r.Outcome = outcome(&r.Decision, err); covered {
		r.Outcome, held = "", before.first.held.Load()
	}
	if q.exempt {
		r.Outcome, r.Skip, r.exempt = outcomeSkipped, true, true
	}
	if !q.part || r.Message > 0 || !allowed {
		l.answered(r) // an allowed rest was counted with the earlier part
	}
	switch {
	case answeredLocally(err) && !allowed:
		q.describe(r)
		r.Shown, r.Next = false, 0 // it is the state of a share
	case err != nil || allowed && !r.WantState:
	case q.part && r.Decision.Outcome == Deny && r.Decision.Budget != "":
		l.describeRest(ctx, q, r)
	default:
		q.describe(r)
	}
	if !allowed {
		return ctx, err
	}
	if r.Reserve || r.Settles {
		r.Reservation = held
	}
	if before != nil && !covered {
		before.add(r, q, held)
	}
	if !traced {
		return ctx, err
	}
	return l.within(ctx, r, innermost, before, q, held), err
}

// charge takes the cost of a request, or the rest of it, and reserves it if it may
// be corrected later, here or by an adapter further in.
func (l *Limiter) charge(
	ctx context.Context, q *request, r *Request, prior *Reservation,
) (*Reservation, error) {
	if !r.Reserve && !r.Settles && prior == nil && (!l.settling.Load() || !l.shared()) {
		return nil, l.take(ctx, q)
	}
	held, err := l.reserve(ctx, q)
	if prior != nil && held.Decision.Allowed() && len(q.charges) > 0 {
		prior.group.join(held)
	}
	return held, err
}

// describeRest describes the refusal of a rest. A new request has to pay all parts, so
// it states the wait for the whole.
func (l *Limiter) describeRest(ctx context.Context, q *request, r *Request) {
	whole := l.borrow(&r.Caller, r.Cost)
	defer l.giveBack(whole)
	if whole.denied(ctx, l, q.earlier) {
		r.Decision = whole.event.Decision
		q = whole
	}
	q.describe(r)
}

// denied reports whether a request would be denied that pays q and what earlier parts
// have paid besides.
func (q *request) denied(ctx context.Context, l *Limiter, earlier []payment) bool {
	q.gated = true
	if decided, err := q.prepare(ctx, l); decided || err != nil {
		return false
	}
	own := q.charges
	for i := range earlier {
		p := &earlier[i]
		if !slices.ContainsFunc(own, func(c Charge) bool { return p.is(&c.Key) }) {
			q.add(ctx, l, p.budget, p.caller, p.cost)
		}
	}
	d, err := l.store.Peek(ctx, q.charges)
	q.event.Decision = d
	return err == nil && d.Outcome == Deny && q.blocked == nil
}

// skip counts a free request once.
func (l *Limiter) skip(r *Request, before *node) {
	r.Decision = Decision{Outcome: Allow}
	if before == nil {
		r.Outcome = outcomeSkipped
		l.answered(r)
	}
}

// answered reports a request that was not charged before.
func (l *Limiter) answered(r *Request) {
	if l.observer.Answered != nil && r.Outcome != "" {
		l.observer.Answered(RequestEvent{l.name, r.Transport, r.Caller.Route, r.Outcome})
	}
}

const (
	outcomeUnauthenticated = "unauthenticated"
	outcomeCanceled        = "canceled"
	outcomeLocal           = "error_local"
	outcomeOpen            = "error_open"
	outcomeClosed          = "error_closed"
	outcomeSkipped         = "skipped"
)

// outcome returns the label of a request that was decided, or could not be.
func outcome(d *Decision, err error) string {
	store, storeFailed := errors.AsType[*StoreError](err)
	switch {
	case err == nil:
		return d.Outcome.String()
	// Before the context's own errors: a store's timeout is not the caller's.
	case storeFailed && store.Policy == Local:
		return outcomeLocal
	case storeFailed && store.Policy == Open:
		return outcomeOpen
	case storeFailed:
		return outcomeClosed
	case errors.Is(err, ErrNobody):
		return outcomeUnauthenticated
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return outcomeCanceled
	default:
		return outcomeClosed
	}
}

// describe writes what the caller may know of its accounts.
func (q *request) describe(r *Request) {
	if b := q.blocked; b != nil {
		r.Named = b.named()
		r.Shown = r.Named
		return
	}
	allowed := r.Decision.Allowed()
	tightest := -1 // of the charges that may be shown
	for i, b := range q.budgets {
		charge := &q.charges[i]
		if charge.Shadow {
			continue
		}
		shown := b.shows(charge)
		if b.Name == r.Decision.Budget {
			r.Named, r.Shown = b.named(), shown
			r.Unavailable = b.Unavailable && r.Decision.Outcome == Deny
		}
		if shown && (tightest < 0 || charge.tighter(&q.charges[tightest])) {
			tightest = i
		}
	}
	switch d := &r.Decision; {
	case !allowed && d.Budget != "" && d.Remaining < d.Limit.Capacity():
		r.Next = d.Limit.untilNext(d.Remaining, d.ResetAfter)
	case allowed && r.WantState && tightest >= 0:
		charge := &q.charges[tightest]
		s := &r.State // field by field, which is faster
		s.Outcome, s.Budget, s.Limit = Allow, charge.Key.Budget, charge.Limit
		s.Remaining, s.ResetAfter = charge.Result.Remaining, charge.Result.ResetAfter
		if s.Remaining < s.Limit.Capacity() {
			r.Next = charge.untilNext()
		}
	}
}

// named reports whether callers may know the budget by name.
func (b *budget) named() bool { return b.Public || b.Scope&(ByTenant|ByPrincipal) != 0 }

// shows reports whether a caller may know the state of the account that paid: it
// is the caller's alone, or its tenant's, or the budget is Public. How much anyone
// else uses is not for the caller to know: of the account of all unauthenticated
// callers, of a network of addresses, or of an overflow account.
func (b *budget) shows(charge *Charge) bool {
	p := &charge.Key.Principal
	network := p.Kind == kind.Address && p.ID == ""
	return b.Public || b.named() && p.Kind != kind.Shared && !network && !charge.Result.Overflow
}

// tighter reports whether c has less left than other, relative to the capacity. On a
// tie it reports whether the next token of c comes later.
func (c *Charge) tighter(other *Charge) bool {
	high, low := bits.Mul64(uint64(c.Result.Remaining), uint64(other.Limit.Capacity()))
	otherHigh, otherLow := bits.Mul64(uint64(other.Result.Remaining), uint64(c.Limit.Capacity()))
	if high != otherHigh {
		return high < otherHigh
	}
	return low < otherLow || low == otherLow && c.untilNext() > other.untilNext()
}

func (c *Charge) untilNext() time.Duration {
	return c.Limit.untilNext(c.Result.Remaining, c.Result.ResetAfter)
}

// untilNext returns the wait until more than the remaining tokens are there. Of a
// bucket's time to fill, the tokens after the next one are the last part:
//
//	next = reset - (Capacity-remaining-1) * Per/Tokens
//
// where the part that is taken off is rounded down, so that next is never too
// short. A window refills at its end. Of a log only the time is known at which its
// last entry leaves.
func (l *Limit) untilNext(remaining int64, reset time.Duration) time.Duration {
	after := l.Capacity() - remaining - 1
	if l.Algorithm != TokenBucket || after <= 0 {
		return reset
	}
	// No overflow: a valid limit fills in less than 2^63 ns.
	high, low := bits.Mul64(uint64(after), uint64(l.Per))
	rest, _ := bits.Div64(high, low, uint64(l.Tokens))
	return reset - time.Duration(rest)
}
