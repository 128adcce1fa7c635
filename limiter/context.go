package limiter

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/ration-go/ration/internal/callerkey"
)

// node is the context of a request that an adapter has charged. It is a context
// itself, rather than the value of one, to save an allocation.
type node struct {
	context.Context
	outer    *node // the next one that the context knows
	first    *node // the outermost one of the same request, principal and limiter
	limiter  *Limiter
	caller   Caller
	id       any        // of the request
	cost     int64      // of the request
	budgets  *[]*budget // those that apply to caller.Route have charged it
	skipped  bool       // the request is free
	exempt   bool       // Config.Gate has made it free, for all mounts
	settles  bool       // the handler may correct the cost
	decision Decision   // by which the request was allowed here

	// What all nodes with the same first have in common; only first's are used.
	held atomic.Pointer[Reservation]
	paid atomic.Pointer[[]payment] // by all parts; nil if only the first has paid
}

type nodeKey struct{}

// Value returns the innermost node for nodeKey, and its caller for
// keying.CallerFrom.
func (n *node) Value(key any) any {
	switch key {
	case nodeKey{}:
		return n
	case callerkey.Key{}:
		return &n.caller
	}
	return n.Context.Value(key)
}

func nodeFrom(ctx context.Context) *node {
	n, _ := ctx.Value(nodeKey{}).(*node)
	return n
}

// shared reports whether a request may meet the limiter more than once.
func (l *Limiter) shared() bool { return l.mounts.Load() > 1 }

// traced reports whether a request can be found again by its context.
func (l *Limiter) traced(r *Request) bool {
	return r.Message == 0 && (r.KnowsCaller || r.Settles || l.shared())
}

// chargedBefore returns the node of the same request, principal and limiter, or
// nil. Route and workload do not matter.
func (l *Limiter) chargedBefore(innermost *node, r *Request) *node {
	if innermost == nil || r.Message == 0 && !l.shared() {
		return nil
	}
	id := cmp.Or(r.ID, innermost.id)
	for n := innermost; n != nil && n.id == id; n = n.outer {
		if n.limiter == l && (n.exempt || n.skipped == r.Skip) &&
			n.caller.Principal == r.Caller.Principal {
			return n
		}
	}
	return nil
}

// prior appends what the request has paid so far, and returns the reservation that
// holds it, or nil if there is none or it is settled. If the handler has settled the
// open of a stream, that pays nothing of the first message.
func (n *node) prior(to []payment, message int) ([]payment, *Reservation) {
	paid, held := n.first.payments(to), n.first.held.Load()
	if held == nil || held.group.open() {
		return paid, held
	}
	if message == 1 {
		for i := range paid {
			if !paid[i].budget.PerRequest {
				paid[i].cost = 0
			}
		}
	}
	return paid, nil
}

// payments appends what all parts with the first node n have paid.
func (n *node) payments(to []payment) []payment {
	if paid := n.paid.Load(); paid != nil {
		return append(to, *paid...)
	}
	if n.budgets == nil {
		return to
	}
	for _, b := range *n.budgets {
		if b.applies(n.caller.Route) {
			to = append(to, payment{b, &n.caller, b.cost(n.cost)})
		}
	}
	return to
}

// add records what a later mount or a message has paid.
func (n *node) add(r *Request, q *request, held *Reservation) {
	if held != nil {
		n.first.held.Store(held)
	}
	if r.Message > 0 {
		return
	}
	caller := r.Caller
	paid := n.first.payments(nil)
	for i, b := range q.budgets {
		paid = append(paid, payment{b, &caller, q.charges[i].Cost})
	}
	n.first.paid.Store(&paid)
}

// within returns the context to handle a request in.
func (l *Limiter) within(
	ctx context.Context, r *Request, innermost, before *node, q *request, held *Reservation,
) context.Context {
	if before != nil && before == innermost && before.caller == r.Caller &&
		before.skipped == r.Skip && before.exempt == r.exempt && before.settles == r.Settles {
		return ctx
	}
	n := &node{
		Context: ctx, outer: innermost, limiter: l, caller: r.Caller, id: r.ID, cost: r.Cost,
		skipped: r.Skip, exempt: r.exempt, settles: r.Settles,
		decision: r.Decision,
	}
	if n.id == nil && innermost != nil {
		n.id = innermost.id
	}
	if before != nil {
		n.first = before.first
		return n
	}
	n.first = n
	if q != nil {
		n.budgets = q.charged()
	}
	if held != nil {
		n.held.Store(held)
	}
	return n
}

// DecisionFrom returns the decision by which the innermost limiter has allowed the
// request of ctx, and whether there is one. It is for handlers of adapters that say who
// has called, such as with middleware.Config.Caller: the handler can do less for a caller
// that has little left. For a request that is free, or that an outer adapter of the same
// limiter has charged, it is the decision further out, or has only the Outcome. It does
// not allocate.
func DecisionFrom(ctx context.Context) (Decision, bool) {
	innermost := nodeFrom(ctx)
	if innermost == nil {
		return Decision{}, false
	}
	for n := innermost; n != nil && n.id == innermost.id; n = n.outer {
		if n.decision.Budget != "" {
			return n.decision, true
		}
	}
	return innermost.decision, true
}

// Settle says what the request of ctx really cost, in tokens: for handlers of
// adapters that let them settle, such as middleware.Config.Settles. It corrects
// the reserved cost, down or up, in the accounts that paid it; see
// [Reservation.Settle]. If several limiters have reserved for the request, one
// call settles all of them. A request that a handler makes up, in the same
// context, is settled by itself.
//
// It works once. Until then the reserved cost stands, whatever happens to the
// request. ctx may have ended, and the handler may have returned. For a stream
// whose messages are charged, it settles the message that was received last.
//
// The error is the first, from the innermost limiter outwards: a *[CostError] for
// a negative cost, [ErrReceipt] if nothing was reserved or it is settled already,
// else the store's.
func Settle(ctx context.Context, actual int64) error {
	var settled []*Reservation
	var first error
	innermost := nodeFrom(ctx)
	for n := innermost; n != nil && n.id == innermost.id; n = n.outer {
		held := n.first.held.Load()
		if !n.settles || held == nil || slices.Contains(settled, held) {
			continue
		}
		settled = append(settled, held)
		if err := held.settle(ctx, actual, true); first == nil {
			first = err
		}
	}
	switch {
	case settled == nil && innermost != nil && !innermost.settles:
		return fmt.Errorf("%w: the adapter's Config.Settles is not set", ErrReceipt)
	case settled == nil:
		return ErrReceipt
	}
	return first
}
