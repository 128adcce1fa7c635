package redisstore

import (
	"context"

	"github.com/ration-go/ration/limiter"
)

// Reset makes the accounts of the charges full, by deleting their keys; see
// [limiter.Capabilities]. The error is a *[limiter.StoreError], or ctx's own.
func (s *Store) Reset(ctx context.Context, charges []limiter.Charge) error {
	if err := ctx.Err(); err != nil || len(charges) == 0 {
		return err
	}
	c, names := s.newCall(reset, len(charges)), s.keys.namer()
	for i := range charges {
		c.keys = append(c.keys, names.text(charges[i].Key))
	}
	reply, err := c.run(ctx)
	if err != nil {
		return err
	}
	numbers := numbers{text: reply}
	if numbers.within(0, 0); numbers.bad || numbers.text != "" {
		return garbled(reply)
	}
	return nil
}
