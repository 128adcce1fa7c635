package resilient

import (
	"context"

	"github.com/ration-go/ration/limiter"
)

// side is the local store. It marks the receipts of what it took, and settles no others.
type side struct{ limiter.Store }

// Take marks the receipts as local.
func (s *side) Take(ctx context.Context, charges []limiter.Charge) (limiter.Decision, error) {
	d, err := s.Store.Take(ctx, charges)
	if err != nil {
		dropReceipts(charges)
	}
	mark(charges)
	return d, err
}

// Settle corrects charges that Take took.
func (s *side) Settle(ctx context.Context, charges []limiter.Charge) error {
	for i := range charges {
		if !charges[i].Receipt.Local {
			return limiter.ErrReceipt
		}
	}
	// The store may be a [Store], too, and then it took them in its shared store.
	for i := range charges {
		charges[i].Receipt.Local = false
	}
	err := s.Store.Settle(ctx, charges)
	mark(charges)
	return err
}

// mark makes the receipts that are valid local ones.
func mark(charges []limiter.Charge) {
	for i := range charges {
		charges[i].Receipt.Local = charges[i].Receipt.Valid
	}
}
