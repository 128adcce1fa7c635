package limiter

import (
	"context"
	"time"
)

// Observer receives what limiters and their adapters do, as functions that may
// each be nil. The zero Observer receives nothing. Packages metrics, denylog and
// topcallers have one each; combine several with [Observer.And].
//
// The functions are called by many goroutines, with no lock held, and may call
// the limiter. Events are values; an event is complete when it is delivered.
type Observer struct {
	// Configured is called by New, and by each Reload that succeeds, with the store
	// and what it can do.
	Configured func(limiter string, budgets []Budget, s Store, can Capabilities)
	// Routes is called when an adapter declares the routes that it serves; see
	// [Adapter.Routes].
	Routes func(limiter, transport string, routes []string)
	// Decided is called after each Take and Reserve that has a Decision, also if a
	// failure policy made it.
	Decided func(ctx context.Context, e DecisionEvent)
	// Answered is called once for each request that an adapter has seen, and again if an
	// inner mount refuses a request that an outer one has let through. Each charged
	// message of a stream counts as a request.
	Answered func(e RequestEvent)
	// StoreCalled is called after each Take and Peek of a store that can fail, with the name
	// in its [Capabilities], the time that it took, and the reason of its
	// *[StoreError], which is empty if the store has decided.
	StoreCalled func(limiter, store string, took time.Duration, reason string)
	// SettleLost is called when a store fails to correct a reservation: what was
	// reserved stands, or the outcome is unknown. If the service tries again, as
	// [Reservation] allows it to, each failure is reported.
	SettleLost func(limiter, store string)
	// Warned is called for each misuse that is logged, by a limiter or its adapters,
	// with the code of the log line; see the package comment. store-failed is no misuse.
	Warned func(limiter, code string)
}

// DecisionEvent is one decision, with everything that it was made from.
type DecisionEvent struct {
	Limiter  string
	Store    string // its name in [Capabilities]
	Caller   Caller
	Decision Decision
	Cost     int64
	// Charges has each budget's own result. A shadow budget that blocks the caller
	// is among them with [Blocked] as its limit. The slice is valid only during the
	// call. If no account was needed, such as for a blocked caller, it has at most
	// those shadow budgets.
	Charges []Charge
	// Err is nil, or the *[StoreError] because of which a failure policy decided. If
	// its Policy is [Local], Charges are those that the local side of the store has
	// decided, with the limits that they have there; otherwise the results of the
	// charges mean nothing.
	Err error
}

// RequestEvent is one request that an adapter has answered or let through.
type RequestEvent struct {
	Limiter   string
	Transport string // such as "http" or "grpc"
	Route     string // the registered pattern, or "unmatched"
	// Outcome is "allow", "deny", "never", "unauthenticated", "canceled",
	// "error_local", "error_open", "error_closed" or "skipped".
	Outcome string
}

// And returns an Observer that calls the functions of o, then those of other.
func (o Observer) And(other Observer) Observer {
	return Observer{
		Configured: both(o.Configured, other.Configured,
			func(limiter string, budgets []Budget, s Store, can Capabilities) {
				o.Configured(limiter, budgets, s, can)
				other.Configured(limiter, budgets, s, can)
			}),
		Routes: both(o.Routes, other.Routes,
			func(limiter, transport string, routes []string) {
				o.Routes(limiter, transport, routes)
				other.Routes(limiter, transport, routes)
			}),
		Decided: both(o.Decided, other.Decided,
			func(ctx context.Context, e DecisionEvent) {
				o.Decided(ctx, e)
				other.Decided(ctx, e)
			}),
		Answered: both(o.Answered, other.Answered,
			func(e RequestEvent) {
				o.Answered(e)
				other.Answered(e)
			}),
		StoreCalled: both(o.StoreCalled, other.StoreCalled,
			func(limiter, store string, took time.Duration, reason string) {
				o.StoreCalled(limiter, store, took, reason)
				other.StoreCalled(limiter, store, took, reason)
			}),
		SettleLost: both(o.SettleLost, other.SettleLost,
			func(limiter, store string) {
				o.SettleLost(limiter, store)
				other.SettleLost(limiter, store)
			}),
		Warned: both(o.Warned, other.Warned,
			func(limiter, code string) {
				o.Warned(limiter, code)
				other.Warned(limiter, code)
			}),
	}
}

// both returns the function that calls f and g, or f or g if the other is nil.
func both[F any](f, g, calls F) F {
	switch {
	case isNil(g):
		return f
	case isNil(f):
		return g
	default:
		return calls
	}
}

// decided reports a decision.
func (l *Limiter) decided(ctx context.Context, q *request, err error) {
	q.event.Charges, q.event.Err = q.charges, err
	if q.blocked != nil || len(q.shadows) > 0 && err == nil {
		q.event.Charges = q.blockedCharges()
	}
	l.observer.Decided(ctx, q.event)
}

// blockedCharges returns the charges of a caller whom budgets block: one for each of
// the shadow budgets that do, after those that were decided.
func (q *request) blockedCharges() []Charge {
	charges := q.charges
	if q.blocked != nil {
		charges = nil
	}
	for _, b := range q.shadows {
		charge := Charge{Limit: Blocked, Cost: b.cost(q.event.Cost), Shadow: true,
			Result: Result{Outcome: Never}}
		b.key(&q.event.Caller, &charge.Key)
		charges = append(charges, charge)
	}
	return charges
}
