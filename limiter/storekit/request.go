package storekit

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ration-go/ration/internal/account"
	"github.com/ration-go/ration/internal/pick"
	"github.com/ration-go/ration/limiter"
)

// Verb says what a [Request] does.
type Verb uint8

// The verbs, named after the methods of a store.
const (
	Take Verb = iota + 1
	Peek
	Settle
	Reset
)

// Request is one call of a store on one set of charges. Use it once: [Prepare],
// then Decide one or more times inside a transaction, then Finish after the commit.
// It is not safe for concurrent use.
//
// A Request keeps its own copy of the charges, so Decide can run while their owner
// has them back already; only Finish writes to them.
type Request struct {
	verb    Verb
	draws   []draw // sorted by key
	keys    []Key  // of draws
	order   []int  // draw of each charge
	decided bool   // the last Decide returned no error
	allowed bool   // what it decided
}

// draw is what a request does with one account. Charges with one key add up.
type draw struct {
	key         Key
	charge      limiter.Charge // the first of its key
	limit       limiter.Limit  // that of the charge, with Burst spelled out
	cost        uint64
	corrections []correction // of Settle

	// Results of Decide.
	at      int64 // the instant of the request for this account
	account account.Account
	used    account.Uint128
	outcome account.Outcome
	stored  bool // the account had a record
	changed bool // it is stored under another limit
}

// correction is what Settle changes by one charge.
type correction struct {
	limit          limiter.Limit // under which it was taken
	takenAt, delta int64
}

// Prepare checks the charges and returns the request. It changes nothing. secret is
// that of [KeyOf].
//
// The error for Take and Peek is a *[limiter.CostError] for a negative cost, or a
// *[limiter.ConfigError] for a limit that is not valid and for one key with two
// limits; for Settle it is [limiter.ErrReceipt], or a *limiter.CostError for a
// credit of more than was taken. An unknown verb is a *limiter.ConfigError.
func Prepare(v Verb, charges []limiter.Charge, secret []byte) (*Request, error) {
	if err := v.check(charges); err != nil {
		return nil, err
	}
	r := &Request{verb: v}
	for i := range charges {
		if err := r.add(&charges[i], secret); err != nil {
			return nil, err
		}
	}
	r.sort()
	return r, nil
}

// check returns what can be said of the charges before their limits are looked at.
func (v Verb) check(charges []limiter.Charge) error {
	switch v {
	case Take, Peek:
		return CheckTake(charges)
	case Settle:
		return CheckSettle(charges)
	case Reset:
		return nil
	default:
		return &limiter.ConfigError{Package: "storekit", Field: "Verb", Value: uint8(v),
			Reason: "want Take, Peek, Settle or Reset"}
	}
}

// add adds a charge to the draw on its account.
func (r *Request) add(c *limiter.Charge, secret []byte) error {
	if r.verb != Reset {
		if err := c.Limit.Validate(); err != nil {
			return err
		}
	}
	i := slices.IndexFunc(r.draws, func(d draw) bool { return d.charge.Key == c.Key })
	if i < 0 {
		i = len(r.draws)
		r.draws = append(r.draws, draw{key: KeyOf(c.Key, secret), charge: *c, limit: spellOut(c.Limit)})
	}
	r.order = append(r.order, i)
	d := &r.draws[i]
	switch r.verb {
	case Settle:
		d.corrections = append(d.corrections, correction{c.Limit, c.Receipt.At, c.Cost})
	case Take, Peek:
		if d.limit != spellOut(c.Limit) || d.charge.Shadow != c.Shadow {
			return &limiter.ConfigError{Package: "storekit", Field: "Charges", Value: c.Key.Budget,
				Reason: "one key has two limits, or is both enforced and shadow"}
		}
		if d.cost += uint64(c.Cost); d.cost < uint64(c.Cost) {
			d.cost = math.MaxUint64
		}
	}
	return nil
}

// sort puts the draws into the order in which accounts are locked.
func (r *Request) sort() {
	to := make([]int, len(r.draws)) // of each draw, before and after
	for i := range to {
		to[i] = i
	}
	slices.SortFunc(to, func(a, b int) int {
		return bytes.Compare(r.draws[a].key[:], r.draws[b].key[:])
	})
	sorted, moved := make([]draw, len(to)), make([]int, len(to))
	for i, from := range to {
		sorted[i], moved[from] = r.draws[from], i
		r.keys = append(r.keys, sorted[i].key)
	}
	r.draws = sorted
	for i := range r.order {
		r.order[i] = moved[r.order[i]]
	}
}

// Keys returns the accounts of the request, without repetition, in the order in
// which they must be locked. There are none if there are no charges; then nothing
// needs to be stored and Decide need not be called.
func (r *Request) Keys() []Key { return r.keys }

// Decide decides the request. It is a [DecideFunc]: pure, and to be called again
// if the transaction is. For Peek there are no records.
//
// The error says that a stored account cannot be used: its bytes are malformed, or
// of a newer version of this package. Nothing may be written then. A Reset reads
// no bytes and so never fails.
func (r *Request) Decide(now time.Time, states [][]byte) ([]Record, error) {
	r.decided = false
	if len(states) != len(r.draws) {
		return nil, fmt.Errorf("storekit: the backend loaded %d accounts for %d keys: want one "+
			"entry for each key, nil if nothing is stored", len(states), len(r.draws))
	}
	records, err := r.decide(now, states)
	r.decided = err == nil
	return records, err
}

// Finish writes the results and the receipts to the charges that Prepare was given,
// and returns the decision. Call it only after the commit: what it says has
// happened by then. For Peek it writes no receipts, for Settle it consumes them,
// and for Reset it does nothing.
func (r *Request) Finish(charges []limiter.Charge) limiter.Decision {
	switch r.verb {
	case Settle:
		dropReceipts(charges)
	case Take, Peek:
		return r.answer(charges)
	}
	return limiter.Decision{}
}

func (r *Request) answer(charges []limiter.Charge) limiter.Decision {
	var p pick.Picker
	for i := range r.draws {
		d := &r.draws[i]
		d.charge.Result = d.result()
		p.Offer(&d.charge, d.used, d.account.Limit.Capacity())
	}
	for i := range charges {
		d := &r.draws[r.order[i]]
		charges[i].Result = d.charge.Result
		if r.verb == Peek {
			continue
		}
		charges[i].Receipt = limiter.Receipt{}
		if r.allowed && d.outcome == account.Allow {
			writeReceipt(&charges[i], d.at)
		}
	}
	var decision limiter.Decision
	p.Decide(&decision)
	return decision
}

// result returns what the account says to its charge.
func (d *draw) result() limiter.Result {
	result := limiter.Result{
		Outcome:    limiter.Outcome(d.outcome),
		Remaining:  d.account.Limit.Remaining(d.used),
		ResetAfter: time.Duration(d.account.Reset(d.at)),
	}
	if d.outcome == account.Deny {
		result.RetryAfter = time.Duration(d.account.Wait(d.used, d.at, d.cost))
	}
	return result
}
