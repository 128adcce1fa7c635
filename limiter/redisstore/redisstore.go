package redisstore

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ration-go/ration/internal/breaker"
	"github.com/ration-go/ration/internal/instant"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/storekit"
)

// Client is a connection to one server, or to the master that a Sentinel names:
// a *redis.Client, or any other client of package redis that sends a command at
// once and to one place.
//
// For a *redis.Client the store makes a client of its own on the same connections
// (redis.Client.WithTimeout), so that no option of the user's makes a call last longer
// than it should. That client has no hooks: traces and metrics of decisions come from
// [limiter.Observer].
//
// Any other client, such as a *redis.Client inside a type of the user's, is called as
// it is, hooks included, in a goroutine for each call. If it does not return when the
// context ends, callers are answered all the same, and at most eight such calls are
// left behind: then nothing is asked until one returns.
type Client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// Config is how a [Store] uses its server. The zero Config is usable; processes
// that share accounts have the same Prefix and Secret.
type Config struct {
	// Prefix begins every key, so that limiters can share a server with others;
	// empty means "ration:". It has no braces.
	Prefix string
	// Timeout bounds each request, from its arrival to its answer, whatever the
	// client's own timeouts are; 0 means 50 ms.
	Timeout time.Duration
	// Secret keys the hash under which principals appear in key names. Without
	// one, whoever can list the keys can search for known ids.
	Secret []byte
	// MaxAhead is how far ahead of the server's clock the latest instant of an
	// account may be, after the clock was set back or another server took over.
	// What is further ahead is set to now, with its balance kept; 0 means a
	// minute.
	MaxAhead time.Duration
	// RememberDenials is how long a denial is remembered, so that a caller that asks
	// again is denied without a call. 0 means 1s, which is the longest; negative means
	// not at all. See the package comment.
	RememberDenials time.Duration
	// Now is the clock, for tests and replay; nil is the server's. Keys then live
	// an hour longer than they need, since this clock may stand still. Its range
	// is 142 years to both sides of 1970. It is called with no lock held.
	Now func() time.Time
}

// Store is a [limiter.Store] in a Redis or Valkey server. Any number of
// processes share its accounts. It is safe for concurrent use; the zero Store is
// not usable, see [New]. It has goroutines of its own only while requests wait, and a
// few for up to a minute after calls that timed out.
type Store struct {
	client   Client
	bounded  bool   // client ends commands with their context
	prober   Client // waits longer than client does
	holds    bool   // a probe may keep a connection, because the pool has others
	keys     keys
	timeout  time.Duration
	maxAhead int64 // microseconds
	slack    int64 // how long keys outlive their accounts
	now      func() time.Time
	clock    serverClock
	combiner combiner
	waiters  sync.Pool

	reanchored atomic.Int64
}

var _ limiter.Store = (*Store)(nil)

// slack is how long keys outlive their accounts where the clock is the user's.
const slack = time.Hour

// New returns a store on the client's server. It does no I/O: a server that is
// down is found out by the first call. The error is a *[limiter.ConfigError].
func New(client Client, cfg Config) (*Store, error) {
	if err := checkClient(client); err != nil {
		return nil, err
	}
	if cfg.Prefix == "" {
		cfg.Prefix = defaultPrefix
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 50 * time.Millisecond
	}
	if cfg.RememberDenials == 0 {
		cfg.RememberDenials = longestMemory
	}
	if cfg.MaxAhead == 0 {
		cfg.MaxAhead = time.Minute
	}
	switch {
	case strings.ContainsAny(cfg.Prefix, "{}"):
		return nil, wrong("Config.Prefix", cfg.Prefix,
			"want no braces: they say which slot of a cluster a key is in")
	case cfg.Timeout < time.Millisecond, cfg.Timeout > time.Hour:
		return nil, wrong("Config.Timeout", cfg.Timeout,
			"want at least 1ms and at most 1h, or 0 for 50ms")
	case cfg.RememberDenials > longestMemory:
		return nil, wrong("Config.RememberDenials", cfg.RememberDenials,
			"want at most 1s, 0 for 1s, or less than 0 for none")
	case cfg.MaxAhead < 0:
		return nil, wrong("Config.MaxAhead", cfg.MaxAhead,
			"want more than 0, or 0 for 1m")
	}
	s := &Store{
		keys:     newKeys(cfg.Prefix, cfg.Secret),
		timeout:  cfg.Timeout,
		maxAhead: cfg.MaxAhead.Microseconds(),
		now:      cfg.Now,
		clock:    serverClock{start: time.Now()},
	}
	s.client, s.bounded = bounded(client, cfg.Timeout)
	s.prober, _ = bounded(client, max(holdTimeout, cfg.Timeout))
	s.holds = hasMany(client)
	s.combiner = combiner{
		breaker: breaker.New(cfg.Timeout), crowded: func() bool { return poolIsUsedUp(client) },
		epoch: s.clock.start, timeout: int64(cfg.Timeout), maxSlots: slotsOf(client), queue: newQueue(),
	}
	s.combiner.timer = time.AfterFunc(time.Hour, s.watch)
	s.combiner.timer.Stop()
	s.waiters.New = func() any { return &waiter{done: make(chan struct{}, 1)} }
	if cfg.Now != nil {
		s.slack = slack.Microseconds()
	} else {
		s.combiner.denials = newDenials(cfg.RememberDenials, cfg.Timeout)
	}
	return s, nil
}

// checkClient refuses clients of which a request cannot be one script on one
// server.
func checkClient(client Client) error {
	v := reflect.ValueOf(client)
	if !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return wrong("Client", nil, "want a client, not nil")
	}
	var reason string
	switch client.(type) {
	case *redis.Ring:
		reason = "a Ring moves accounts to other servers where one is away, and so forgets what " +
			"was used: want a client of one server, or of a Sentinel"
	case *redis.ClusterClient:
		reason = "the keys of one request can lie on several servers of a Cluster: want a client of " +
			"one server, or of a Sentinel"
	case *redis.Conn, *redis.Tx:
		reason = "one connection is lost for ever after the first call that times out: want a client"
	case redis.Pipeliner:
		reason = "a pipeline answers only when it is executed: want a client"
	default:
		return nil
	}
	return wrong("Client", fmt.Sprintf("%T", client), reason)
}

// slotsOf returns how many calls may be in flight: half the connections, so that the
// client's other users have the rest.
func slotsOf(client Client) int {
	if c, ok := client.(*redis.Client); ok {
		return max(c.Options().PoolSize/2, 1)
	}
	return maxSlots
}

// hasMany reports whether the client has more than one connection.
func hasMany(client Client) bool {
	c, ok := client.(*redis.Client)
	return !ok || c.Options().PoolSize > 1
}

// bounded returns a client on the same connections that ends commands with their
// context, whatever the user's options are, and whether there is one.
func bounded(client Client, timeout time.Duration) (Client, bool) {
	c, ok := client.(*redis.Client)
	if !ok {
		return client, false
	}
	own := c.WithTimeout(timeout)
	own.Options().ContextTimeoutEnabled = true // these options are its own
	return own, true
}

// poolIsUsedUp reports whether all connections of a client are in use.
func poolIsUsedUp(client Client) bool {
	c, ok := client.(*redis.Client)
	if !ok {
		return false
	}
	stats := c.PoolStats()
	return int(stats.TotalConns) >= c.Options().PoolSize && stats.IdleConns == 0
}

// Capabilities says that the store can fail, so every budget on it needs an OnError,
// and how limiters reset accounts; see [limiter.Capabilities].
func (s *Store) Capabilities() limiter.Capabilities {
	can := limiter.Capabilities{Name: "redis", Reset: s.Reset, BreakerOpen: s.combiner.breaker.Open}
	if d := s.combiner.denials; d != nil {
		can.DeniedFromMemory = d.hits.Load
	}
	return can
}

// Check says whether the server can hold l exactly: valid, and in numbers below
// 2^53, which holds for every limit whose capacity times Per in microseconds is at
// most 2^52 less half of Tokens, and for more of them if Tokens and Per have common
// factors. The error is a *[limiter.ConfigError] that says what is wrong.
func (s *Store) Check(l limiter.Limit) error {
	if s.client == nil {
		return wrong("Store", nil, "want a store made by redisstore.New")
	}
	_, err := newRule(l)
	return err
}

// Take decides the charges together and debits all or none; see [limiter.Store].
// It is at most one script call, whatever the number of charges.
//
// The error is a *[limiter.CostError] or *[limiter.ConfigError] for a charge that
// is not valid; ctx's own if it ends first, and then the charges may have been
// debited or not; context.DeadlineExceeded, with nothing debited, if ctx would end
// before the server can answer; else a *[limiter.StoreError].
func (s *Store) Take(ctx context.Context, charges []limiter.Charge) (limiter.Decision, error) {
	return s.decide(ctx, charges, take)
}

// Peek says what Take would say, and changes nothing. Its errors are those of
// Take.
func (s *Store) Peek(ctx context.Context, charges []limiter.Charge) (limiter.Decision, error) {
	return s.decide(ctx, charges, peek)
}

func (s *Store) decide(
	ctx context.Context, charges []limiter.Charge, v verb,
) (limiter.Decision, error) {
	if err := storekit.CheckTake(charges); err != nil {
		return limiter.Decision{}, err
	}
	if len(charges) == 0 {
		return limiter.Decision{Outcome: limiter.Allow}, ctx.Err()
	}
	if v == take && ctx.Err() == nil {
		if d, ok := s.denied(charges); ok {
			return d, nil
		}
	}
	w, err := s.ask(ctx, v, charges)
	if err != nil {
		s.recycle(w)
		return limiter.Decision{}, err
	}
	d := w.line.answer(w.run, w.place, charges)
	s.recycle(w)
	return d, nil
}

// denied answers a take from memory, if it can.
func (s *Store) denied(charges []limiter.Charge) (limiter.Decision, bool) {
	d := s.combiner.denials
	if d != nil && d.clock != nil {
		return d.deny(charges, d.clock())
	}
	return d.deny(charges, s.elapsed())
}

// instant returns the instant of a request, if the clock is the user's.
func (s *Store) instant() int64 {
	if s.now == nil {
		return 0
	}
	at := instant.Of(s.now())
	micros := at / 1000
	if at%1000 < 0 {
		micros--
	}
	return max(-most/2, min(micros, most/2))
}

// Settle corrects what was taken; see [limiter.Store]. The error is
// [limiter.ErrReceipt], a *[limiter.CostError] or a *[limiter.ConfigError], all
// before anything is changed, or a *[limiter.StoreError]. After one that is
// Ambiguous the receipts are consumed, so that nothing is ever settled twice; after
// any other nothing was corrected and they are valid still. A ctx that ends has no
// effect.
func (s *Store) Settle(ctx context.Context, charges []limiter.Charge) error {
	if err := storekit.CheckSettle(charges); err != nil {
		return err
	}
	if len(charges) == 0 {
		return nil
	}
	w, err := s.ask(context.WithoutCancel(ctx), settle, charges)
	s.recycle(w)
	if err == nil || mayHaveRun(err) {
		for i := range charges {
			charges[i].Receipt = limiter.Receipt{}
		}
	}
	return err
}

// Reset makes the accounts of the charges full, by deleting their keys; see
// [limiter.Capabilities]. Its errors are those of Take.
func (s *Store) Reset(ctx context.Context, charges []limiter.Charge) error {
	if len(charges) == 0 {
		return ctx.Err()
	}
	w, err := s.ask(ctx, reset, charges)
	s.recycle(w)
	return err
}

// Stats is what a [Store] has seen.
type Stats struct {
	// Reanchored counts the accounts whose latest instant was further ahead than
	// Config.MaxAhead and was set to now.
	Reanchored int64
}

// Stats returns what the store has seen since New.
func (s *Store) Stats() Stats { return Stats{Reanchored: s.reanchored.Load()} }
