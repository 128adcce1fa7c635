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
	// MaxAccounts bounds the memory: about 50 bytes for each, and 250 more for each
	// limit that differs; 0 means 1,000,000. A rolling log counts as two or more, by
	// the entries that it holds, of about 60 bytes each. A quarter is for addresses,
	// the rest for all others, and the budgets share each part evenly. Overflow
	// accounts exceed it if there are more budgets than accounts, and those of budgets
	// that come when others hold it all; see the package comment.
	MaxAccounts int
	// Now is the clock, for tests and replay; nil is the real one: the wall time
	// at New plus monotonic time. It is called with no lock held.
	Now func() time.Time
}

// Store is a [limiter.Store] in memory. It never fails, and holds every valid
// limit exactly. A decision reads the clock once, hashes each budget's key once and
// mostly takes one lock. For a new account while its share is used up it looks
// through nine blocks, whose shards it locks one at a time if they are free. Up to
// four charges do not allocate, unless a block or a log grows.
//
// It is safe for concurrent use. The zero Store is not usable, see [New]: a Limiter
// refuses it. Not shared between processes: each process counts on its own.
type Store struct {
	hash    hasher
	now     func() time.Time // the user's clock; nil is the real one
	latest  atomic.Int64     // the latest instant that the user's clock gave
	start   time.Time        // the real clock is base, which start is in nanoseconds,
	base    int64            // plus the monotonic time since then
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

// Capabilities says that the store never fails, and how limiters plan, reset and
// count its accounts; see [limiter.Capabilities].
func (s *Store) Capabilities() limiter.Capabilities {
	return limiter.Capabilities{Name: "memory", NeverFails: true, Reset: s.Reset, Plan: s.plan,
		Accounts: func() (live, overflowTakes int64) {
			stats := s.Stats()
			return stats.Accounts, stats.OverflowTakes
		}}
}

// plan changes which budgets will be charged, so that they share the memory evenly
// from the start. Until it is called the store reckons with four budgets. Those
// that are removed get no share; what they hold goes as it fills up.
func (s *Store) plan(add, remove []string) {
	s.classes.plan(add, 1)
	s.classes.plan(remove, -1)
}

// Take decides the charges together and debits all or none; see [limiter.Store].
// The error is a *[limiter.CostError] or *[limiter.ConfigError] for a charge that
// is not valid, or ctx's own where it has ended.
func (s *Store) Take(
	ctx context.Context, charges []limiter.Charge,
) (decision limiter.Decision, err error) {
	err = s.decide(ctx, charges, true, &decision)
	return decision, err
}

// Peek says what Take would say, and changes nothing. Its errors are those of
// Take.
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
	case n == 1 && s.one(&charges[0], take, decision):
		return nil
	case n > 1 && n <= few && s.several(charges, take, decision):
		return nil
	case n == 1: // the sizes that spare the common requests an allocation
		var draws [1]draw
		return s.run(draws[:], charges, take, decision)
	case n <= few:
		var draws [few]draw
		return s.run(draws[:n], charges, take, decision)
	default:
		return s.run(make([]draw, n), charges, take, decision)
	}
}

// run is one request: one set of locks, one instant.
func (s *Store) run(
	draws []draw, charges []limiter.Charge, take bool, decision *limiter.Decision,
) error {
	var locks lockSet
	s.place(draws, charges, &locks)
	if err := join(draws); err != nil {
		return err
	}
	read := s.readHook()
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

// readHook reads a user's clock, which must happen without a lock.
func (s *Store) readHook() int64 {
	if s.now != nil {
		return instant.Of(s.now())
	}
	return 0
}

// instant returns the instant of a request whose locks are held (R2). The real
// clock is read under them, so that it never goes back for an account; a user's
// was read before, and what is later counts.
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

// Settle corrects what was taken; see [limiter.Store]. A debit for a caller without
// an account of its own leaves no debt on an overflow account: what that cannot pay
// is dropped; see the package comment. The error is
// [limiter.ErrReceipt], a *[limiter.CostError] or a *[limiter.ConfigError], all
// before anything is changed. ctx is not used.
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
	s.place(draws, charges, &locks)
	read := s.readHook()
	s.lock(&locks)
	now := s.instant(read)
	for i := range draws {
		s.correct(&draws[i], now)
	}
	s.unlock(&locks)
	return nil
}

// correct settles one charge, whose shard is locked. A debit goes to the caller's
// own account, which may be new; if there is no place for it, to the overflow
// account, which it takes no lower than to zero.
func (s *Store) correct(d *draw, now int64) {
	at, place := d.charge.Receipt.At, d.charge.Receipt.Place
	d.charge.Receipt = limiter.Receipt{}
	d.pin(s, false)
	defer func() { d.class.unpin() }()
	if d.charge.Cost <= 0 {
		if place == overflowPlace {
			d.spill(s)
		}
		d.correctKept(s, now, at)
		return
	}
	if d.correctKept(s, now, at) {
		return
	}
	if found, _ := s.search(d, now); !found {
		if d.spill(s); d.correctKept(s, now, at) {
			return
		}
		d.class.take(d.class.fresh)
	}
	d.account, _ = account.Account{}.Under(&d.class.rule, now)
	d.settle(now, at)
	if d.account.Full(now) {
		d.class.release(d.class.fresh)
		return
	}
	s.insert(d, now)
}

// correctKept settles a charge whose account is kept and not full, and reports
// whether it was. A record of one that is full is dropped, whatever limit it has.
func (d *draw) correctKept(s *Store, now, at int64) bool {
	d.record = d.shard.find(d.name)
	if d.record == nil {
		return false
	}
	stored := s.classes.class(d.record.class)
	if d.load(stored); d.account.Full(now) {
		d.shard.drop(d.name, s.classes)
		return false
	}
	d.account.Tight = stored.tight(&d.account, now)
	d.settle(now, at)
	d.shard.save(d.record, d.record.class, d.account, stored.isLog())
	d.recount(stored)
	d.shard.expect(d.name, now, &d.account)
	return true
}

// settle corrects the account, for a charge that was taken under the limit of the
// draw's class. One that others share is not taken below zero.
func (d *draw) settle(now, at int64) {
	cost := d.charge.Cost
	if d.class.spill {
		cost = min(cost, d.account.Limit.Remaining(d.account.Used(now)))
	}
	d.account.SettleUnder(&d.class.rule, now, at, cost)
}

// spill makes the draw one on its budget's overflow account.
func (d *draw) spill(s *Store) {
	d.pin(s, true)
	d.name = s.hash.overflow(d.class.pool)
}

// Reset makes the accounts of the charges full; see [limiter.Capabilities]. It never
// fails. Overflow accounts stay as they are, since others draw on them too.
func (s *Store) Reset(_ context.Context, charges []limiter.Charge) error {
	draws := make([]draw, len(charges))
	var locks lockSet
	s.place(draws, charges, &locks)
	s.lock(&locks)
	for i := range draws {
		draws[i].shard.drop(draws[i].name, s.classes)
	}
	s.unlock(&locks)
	return nil
}

// Stats is what a [Store] holds.
type Stats struct {
	Accounts      int64 // accounts that are not full, a rolling log as its size
	OverflowTakes int64 // charges decided on overflow accounts
}

// Stats drops the accounts that are full again, a block at a time, and counts
// the others. It costs a look at every account.
func (s *Store) Stats() Stats {
	read := s.readHook()
	for i := range s.shards {
		s.shards[i].sweepAll(s, read)
	}
	live := s.classes.regions[0].live.Load() + s.classes.regions[1].live.Load()
	return Stats{Accounts: live, OverflowTakes: s.overflowTakes.Load()}
}
