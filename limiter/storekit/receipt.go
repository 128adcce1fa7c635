package storekit

import "github.com/ration-go/ration/limiter"

// checkTake returns a *limiter.CostError for the first negative cost.
func checkTake(charges []limiter.Charge) error { return limiter.CheckTake(charges) }

// checkSettle returns limiter.ErrReceipt for the first charge without a receipt,
// or a *limiter.CostError for one that credits more than was taken.
func checkSettle(charges []limiter.Charge) error { return limiter.CheckSettle(charges) }

// takenAt returns the instant that the receipt of a charge names.
func takenAt(c *limiter.Charge) int64 {
	at, _, _, _ := c.Receipt.Taken()
	return at
}

// writeReceipt states that the charge was paid at the instant at.
func writeReceipt(c *limiter.Charge, at int64) {
	c.Receipt = limiter.NewReceipt(at, c.Cost, 0)
}

// dropReceipts takes the receipts away: nothing was taken, or it is settled.
func dropReceipts(charges []limiter.Charge) {
	for i := range charges {
		charges[i].Receipt = limiter.Receipt{}
	}
}
