package main

import (
	"fmt"
	"io"
	"time"

	"github.com/ration-go/ration/limiter"
)

const aboutPayments = `Where does a window end? 3 reads at 0 s and 3 reads at 10 s, with 3 allowed in 10 s. The
fixed window that began at 0 s is over at 10 s, and the rolling log drops entries that are
exactly 10 s old, so both accept all 6.`

// payments: three reads at 0 s and three at 10 s, with three allowed in ten
// seconds. The fixed window has ended by then, and the left boundary of the
// rolling one is exclusive: what was used exactly ten seconds ago is gone.
func payments(w io.Writer, open opener) error {
	fixed, err := readsOfPayments(open, limiter.FixedWindow)
	if err != nil {
		return err
	}
	rolling, err := readsOfPayments(open, limiter.RollingLog)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "payments fixed=%d rolling=%d\n", fixed, rolling)
	return nil
}

// readsOfPayments returns how many of the reads are accepted. Both instants are
// whole multiples of the window since the Unix epoch.
func readsOfPayments(open opener, algorithm limiter.Algorithm) (int, error) {
	const window = 10 * time.Second
	c := &clock{start}
	l, err := newLimiter(open, c, limiter.Budget{
		Name: "payments", Scope: limiter.ByPrincipal, OnError: limiter.Closed,
		Limit: limiter.Limit{Algorithm: algorithm, Tokens: 3, Per: window},
	})
	if err != nil {
		return 0, err
	}
	caller := limiter.Caller{Principal: limiter.Principal{Kind: "service", ID: "checkout"}}
	var t tally
	if err := t.take(l, caller, 3); err != nil {
		return 0, err
	}
	c.at = c.at.Add(window)
	err = t.take(l, caller, 3)
	return t.accepted, err
}
