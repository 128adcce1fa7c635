package memstore

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/ration-go/ration/internal/account"
	"github.com/ration-go/ration/internal/instant"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/storekit"
)

// Config is the shape of a [Store]; the zero Config is usable.
type Config struct {
	// MaxAccounts bounds the memory: about 50 bytes for each account, and 250 more for
	// each different limit. 0 means 1,000,000. A rolling log counts as two or more
	// accounts of about 60 bytes each, depending on its entries. A quarter of MaxAccounts
	// is for addresses, the rest for all other callers, and the budgets share each part
	// evenly. Overflow accounts exceed MaxAccounts if there are more budgets than that,
	// or if budgets are added while others use it all; see the package comment.
	MaxAccounts int
	// Now is the clock, for tests and replay. Nil is the real clock: the wall time at
	// New plus monotonic time. Now is called with no lock held.
	Now func() time.Time
}

// Store is a [limiter.Store] in memory. It never fails, and holds every valid
// limit exactly. A decision reads the clock once, hashes each budget's key once and
// usually takes one lock. If the share of a new account is used up, the decision
// searches up to nine blocks for full accounts to drop, and skips shards that are
// locked. Up to four charges do not allocate, unless a block or a log grows.
//
// It is safe for concurrent use. The zero Store is not usable, see [New]: a Limiter
// refuses it. Not shared between processes: each process counts on its own.
type Store struct {
	hash    hasher
	now     func() time.Time // Config.Now; nil is the real clock
	latest  atomic.Int64     // the latest instant that now returned
	start   time.Time        // when the store was made
	base    int64            // start in Unix nanoseconds; now = base + time.Since(start)
	classes *catalog
	shards  [shardCount]shard

	overflowTakes atomic.Int64
}

// New returns an empty store. A negative MaxAccounts is a *[limiter.ConfigError].
func New(cfg Config) (*Store, error) {
	if cfg.MaxAccounts < 0 {
		return nil, wrong("Config.MaxAccounts", cfg.MaxAccounts,
			"want at least 1, or 0 for 1,000,000")
	}
	if cfg.MaxAccounts == 0 {
		cfg.MaxAccounts = 1_000_000
	}
	return newStore(cfg, shardsFor(cfg.MaxAccounts)), nil
}

func newStore(cfg Config, shards int) *Store {
	s := &Store{
		now:     cfg.Now,
		start:   time.Now(),
		classes: newCatalog(cfg.MaxAccounts, shards),
	}
	s.hash.start(shards)
	s.base = instant.Of(s.start)
	s.latest.Store(math.MinInt64)
	return s
}

// Check returns l.Validate(): memory holds every valid limit exactly. For the zero
// Store the error is a *[limiter.ConfigError] of the field Store.
func (s *Store) Check(l limiter.Limit) error {
	if s.classes == nil {
		return wrong("Store", nil, "want a store made by memstore.New")
	}
	return l.Validate()
}

// Capabilities returns the optional functions of the store; see
// [limiter.Capabilities]. The store never fails.
func (s *Store) Capabilities() limiter.Capabilities {
	return limiter.Capabilities{Name: "memory", NeverFails: true, Reset: s.Reset, Plan: s.plan,
		Accounts: func() (live, overflowTakes int64) {
			stats := s.Stats()
			return stats.Accounts, stats.OverflowTakes
		}}
}

// plan changes which budgets will be charged, so that they share the memory evenly
// from the start. Until it is called, the store assumes at least four budgets. A budget
// that is removed has no share any more; its accounts are dropped when they are full.
func (s *Store) plan(add, remove []string) {
	s.classes.plan(add, 1)
	s.reclaimAll() // since only a budget that holds no place is forgotten
	s.classes.plan(remove, -1)
}

// Take decides the charges together and debits all or none; see [limiter.Store].
// The error is a *[limiter.CostError] or *[limiter.ConfigError] if a charge is not
// valid, or ctx.Err() if ctx has ended.
func (s *Store) Take(
	ctx context.Context, charges []limiter.Charge,
) (decision limiter.Decision, err error) {
	err = s.decide(ctx, charges, true, &decision)
	return decision, err
}

// Peek says what Take would say, and changes nothing. If the share of a new account is
// used up, a Take after it can still differ: other requests may use the room first, or
// may have locked a shard that Peek would have searched. Its errors are those of Take.
func (s *Store) Peek(
	ctx context.Context, charges []limiter.Charge,
) (decision limiter.Decision, err error) {
	err = s.decide(ctx, charges, false, &decision)
	return decision, err
}

func (s *Store) decide(
	ctx context.Context, charges []limiter.Charge, take bool, decision *limiter.Decision,
) error {
	if err := storekit.CheckTake(charges); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	switch n := len(charges); {
	case n == 1 && s.decideOne(&charges[0], take, decision):
		return nil
	case n > 1 && n <= maxFast && s.decideSeveral(charges, take, decision):
		return nil
	case n <= maxFast: // an array of constant size is not allocated
		var draws [maxFast]draw
		return s.run(draws[:n], charges, take, decision)
	default:
		return s.run(make([]draw, n), charges, take, decision)
	}
}

// run decides a request that the fast path does not. It holds all locks of the
// request at the same time, and uses one instant.
func (s *Store) run(
	draws []draw, charges []limiter.Charge, take bool, decision *limiter.Decision,
) error {
	var locks lockSet
	s.prepare(draws, charges, &locks)
	if err := join(draws); err != nil {
		return err
	}
	read := s.readNow()
	s.lock(&locks)
	now := s.instant(read)
	err := s.locate(draws, now, take)
	if err == nil {
		s.answer(draws, now, take, decision)
	}
	release(draws)
	s.unlock(&locks)
	return err
}

// readNow calls Config.Now, if it is set. No lock may be held.
func (s *Store) readNow() int64 {
	if s.now != nil {
		return instant.Of(s.now())
	}
	return 0
}

// instant returns the instant of a request whose locks are held. It never goes back for
// an account: the real clock is read under the locks, and read, which readNow
// returned, is raised to the latest instant used.
func (s *Store) instant(read int64) int64 {
	if s.now == nil {
		return s.base + int64(time.Since(s.start))
	}
	for {
		latest := s.latest.Load()
		if read <= latest {
			return latest
		}
		if s.latest.CompareAndSwap(latest, read) {
			return read
		}
	}
}

// Settle corrects what was taken; see [limiter.Store]. A debit never makes a debt on an
// overflow account: what the account cannot pay is dropped; see the package comment.
// The error is [limiter.ErrReceipt], a *[limiter.CostError] or a *[limiter.ConfigError];
// then nothing is changed. ctx is not used.
func (s *Store) Settle(_ context.Context, charges []limiter.Charge) error {
	if err := storekit.CheckSettle(charges); err != nil {
		return err
	}
	for i := range charges {
		if err := charges[i].Limit.Validate(); err != nil {
			return err
		}
	}
	draws := make([]draw, len(charges))
	var locks lockSet
	s.prepare(draws, charges, &locks)
	read := s.readNow()
	s.lock(&locks)
	now := s.instant(read)
	for i := range draws {
		s.settleCharge(draws, i, now)
	}
	s.unlock(&locks)
	return nil
}

// settleCharge settles one charge, whose shard is locked. A debit goes to the caller's
// own account, a new one if needed. If there is no room for it, the debit goes to the
// overflow account, but leaves that at zero or above.
func (s *Store) settleCharge(draws []draw, i int, now int64) {
	d := &draws[i]
	at, place := d.charge.Receipt.At, d.charge.Receipt.Place
	d.charge.Receipt = limiter.Receipt{}
	d.pin(s, false)
	defer func() { d.class.unpin() }()
	if d.charge.Cost <= 0 {
		if place == overflowAccount {
			d.toOverflow(s)
		}
		d.settleKept(s, now, at)
		return
	}
	if d.settleKept(s, now, at) {
		return
	}
	if found, _ := s.search(d, draws, now); !found {
		if d.toOverflow(s); d.settleKept(s, now, at) {
			return
		}
		d.class.takeOne()
	}
	d.account, _ = account.Account{}.Under(&d.class.rule, now)
	d.settleAccount(now, at)
	if d.account.Full(now) {
		d.shard.give(d.class, d.class.newPlaces)
		return
	}
	s.insert(d, now)
}

// settleKept settles a charge if its account has a record and is not full, and reports
// whether it did. The record of a full account is dropped.
func (d *draw) settleKept(s *Store, now, at int64) bool {
	d.record = d.shard.find(d.fingerprint)
	if d.record == nil {
		return false
	}
	stored := s.classes.class(d.record.class)
	if d.load(stored); d.account.Full(now) {
		d.shard.drop(d.fingerprint, s.classes)
		return false
	}
	d.account.Tight = stored.tight(&d.account, now)
	d.settleAccount(now, at)
	d.shard.save(d.record, stored, d.account, stored.isLog())
	d.recount(stored)
	d.shard.expectFull(d.fingerprint, now, &d.account)
	return true
}

// settleAccount corrects the account for a charge that was taken at the instant at,
// under the limit of the draw's class. A debit leaves an overflow account at zero or
// above.
func (d *draw) settleAccount(now, at int64) {
	cost := d.charge.Cost
	if d.class.overflow {
		cost = min(cost, d.account.Limit.Remaining(d.account.Used(now)))
	}
	d.account.SettleUnder(&d.class.rule, now, at, cost)
}

// toOverflow makes the budget's overflow account the account of the draw.
func (d *draw) toOverflow(s *Store) {
	d.pin(s, true)
	d.fingerprint = s.hash.overflow(d.class.pool)
}

// Reset makes the accounts of the charges full; see [limiter.Capabilities]. It never
// fails. Overflow accounts are not changed, since other callers share them.
func (s *Store) Reset(_ context.Context, charges []limiter.Charge) error {
	draws := make([]draw, len(charges))
	var locks lockSet
	s.prepare(draws, charges, &locks)
	s.lock(&locks)
	for i := range draws {
		draws[i].shard.drop(draws[i].fingerprint, s.classes)
	}
	s.unlock(&locks)
	return nil
}

// Stats is what a [Store] holds.
type Stats struct {
	Accounts      int64 // accounts that are not full; a rolling log counts as two or more
	OverflowTakes int64 // charges decided on overflow accounts
}

// Stats drops the accounts that are full and counts the others. It looks at every
// account, and locks one shard at a time, for one block.
func (s *Store) Stats() Stats {
	read := s.readNow()
	for i := range s.shards {
		s.shards[i].sweepAll(s, read)
	}
	live := s.classes.regions[0].live.Load() + s.classes.regions[1].live.Load()
	return Stats{Accounts: live, OverflowTakes: s.overflowTakes.Load()}
}
