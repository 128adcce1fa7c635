package storekit

import (
	"fmt"
	"time"

	"github.com/ration-go/ration/internal/account"
	"github.com/ration-go/ration/internal/instant"
	"github.com/ration-go/ration/limiter"
)

func (r *Request) decide(now time.Time, states [][]byte) ([]Record, error) {
	if r.verb == Reset {
		records := make([]Record, len(r.draws))
		for i := range records {
			records[i].Key = r.draws[i].key
		}
		return records, nil
	}
	for i := range r.draws {
		if err := r.draws[i].load(states[i], instant.Of(now)); err != nil {
			return nil, err
		}
	}
	if r.verb == Settle {
		return r.settle(), nil
	}
	r.judge()
	return r.debit(), nil
}

// load reads the account as it is stored, and sets the instant of the request: the
// latest of the clock and of what this account has seen before (R2).
func (d *draw) load(stored []byte, now int64) error {
	d.at, d.stored, d.changed = now, stored != nil, false
	d.account = account.Account{}
	if !d.stored {
		return nil
	}
	s, err := decode(stored)
	if err != nil {
		return fmt.Errorf("storekit: an account of budget %q cannot be used: %w; "+
			"Reset makes it full", d.charge.Key.Budget, err)
	}
	d.at, d.account = max(now, s.latest), s.account
	d.changed = spellOut(s.limit) != d.limit
	return nil
}

// judge decides each account, under the limit of its charge, and the request.
func (r *Request) judge() {
	r.allowed = true
	for i := range r.draws {
		d := &r.draws[i]
		limit := newLimit(d.limit)
		if d.stored && !d.changed {
			limit = d.account.Limit
		}
		d.account, d.used = d.account.Under(limit, d.at)
		d.outcome = limit.Judge(d.used, d.cost)
		r.allowed = r.allowed && (d.outcome == account.Allow || d.charge.Shadow)
	}
}

// debit takes the costs of an allowed request, and returns what is to be written:
// the accounts that paid, and those that cannot pay under a new limit, which
// refill by that limit from now on (R10).
func (r *Request) debit() []Record {
	var records []Record
	for i := range r.draws {
		d := &r.draws[i]
		pays := r.allowed && d.outcome == account.Allow && d.cost > 0
		if pays {
			d.used = d.account.Debit(d.used, d.at, d.cost)
		}
		if r.verb == Take && (pays || d.changed && d.outcome == account.Deny) {
			records = append(records, d.record())
		}
	}
	return records
}

// settle corrects what was taken, and returns what is to be written. The account
// stays under the limit that it is stored with; one that is full is under the limit of
// the charge.
func (r *Request) settle() []Record {
	var records []Record
	for i := range r.draws {
		d := &r.draws[i]
		for _, c := range d.corrections {
			d.at = max(d.at, c.takenAt)
		}
		for _, c := range d.corrections {
			d.correct(c)
		}
		if d.stored || !d.account.Full(d.at) {
			records = append(records, d.record())
		}
	}
	return records
}

// correct makes one correction.
func (d *draw) correct(c correction) {
	charged := newLimit(c.limit)
	if d.account.Full(d.at) {
		d.account, _ = account.Account{}.Under(charged, d.at)
	}
	if c.delta != 0 {
		d.account.SettleUnder(charged, d.at, c.takenAt, c.delta)
	}
}

// record returns the account as it is to be stored.
func (d *draw) record() Record {
	l := d.account.Limit
	limit := limiter.Limit{
		Algorithm: limiter.Algorithm(l.Algorithm), Tokens: int64(l.Tokens),
		Per: time.Duration(l.Per), Burst: int64(l.Burst),
	}
	full := time.Unix(0, d.at).Add(time.Duration(d.account.Reset(d.at)))
	if second := full.Truncate(time.Second); second.Before(full) {
		full = second.Add(time.Second)
	}
	return Record{Key: d.key, State: encode(limit, &d.account, d.at), FullAt: full}
}
