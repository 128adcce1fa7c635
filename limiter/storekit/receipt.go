package storekit

import "github.com/ration-go/ration/limiter"

// writeReceipt states that the charge was paid at the instant at.
func writeReceipt(c *limiter.Charge, at int64) {
	c.Receipt = limiter.Receipt{At: at, Taken: c.Cost, Valid: true}
}

// dropReceipts takes the receipts away: nothing was taken, or it is settled.
func dropReceipts(charges []limiter.Charge) {
	for i := range charges {
		charges[i].Receipt = limiter.Receipt{}
	}
}
