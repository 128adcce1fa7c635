// Package settlement carries what a request has reserved to its handler, so that
// the handler can say what it really cost, whatever the adapters between.
package settlement

import (
	"context"
	"errors"

	"github.com/ration-go/ration/limiter"
)

// Settler is what a limiter has reserved: a *limiter.Reservation, or several that
// stand for one.
type Settler interface {
	Settle(ctx context.Context, actual int64) error
}

// node is a context that knows a reservation, and where the next one is known.
type node struct {
	context.Context
	request any // what tells requests apart; comparable
	settler Settler
	outer   *node
}

type key struct{}

// Value returns the innermost node for key.
func (n *node) Value(k any) any {
	if k == (key{}) {
		return n
	}
	return n.Context.Value(k)
}

// With returns a context that knows s besides those that ctx knows. The request
// is any comparable value that is the same for all reservations of one request.
func With(ctx context.Context, request any, s Settler) context.Context {
	outer, _ := ctx.Value(key{}).(*node)
	return &node{ctx, request, s, outer}
}

// Settle settles all reservations that ctx knows of the innermost request: one
// that a handler makes up has no say in what its own request reserved. The error
// is the first, from the innermost outwards. It is [limiter.ErrReceipt] only if
// ctx knows no reservation that was open: after a failure that can be tried again,
// those that are settled do not hide how the others fare.
func Settle(ctx context.Context, actual int64) error {
	n, ok := ctx.Value(key{}).(*node)
	if !ok {
		return limiter.ErrReceipt
	}
	var first error
	settled := false
	for request := n.request; n != nil && n.request == request; n = n.outer {
		switch err := n.settler.Settle(ctx, actual); {
		case err == nil:
			settled = true
		case first == nil && !errors.Is(err, limiter.ErrReceipt):
			first = err
		}
	}
	if first == nil && !settled {
		return limiter.ErrReceipt
	}
	return first
}
