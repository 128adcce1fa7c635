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
	for i := range charges {
		charges[i].Receipt.Local = charges[i].Receipt.Valid
	}
	return d, err
}

// Settle corrects charges that Take took.
func (s *side) Settle(ctx context.Context, charges []limiter.Charge) error {
	for i := range charges {
		if !charges[i].Receipt.Local {
			return limiter.ErrReceipt
		}
	}
	return s.Store.Settle(ctx, charges)
}
