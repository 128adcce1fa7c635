package redisstore

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ration-go/ration/internal/instant"
	"github.com/ration-go/ration/internal/keytext"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/storekit"
)

// Client is a connection to one server, or to the master that a Sentinel names:
// a *redis.Client, or any other client of package redis that sends a command at
// once and to one place.
//
// The hooks of a *redis.Client with ContextTimeoutEnabled run in the goroutine of
// whoever calls the store: they must not block, since no deadline ends them, and
// their panics reach the caller. Where the store calls in a goroutine of its own
// (any other client, and a caller whose deadline is sooner than the store's), a
// hook that blocks holds no caller, and a panic is an error of the call.
type Client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// Config is how a [Store] uses its server. The zero Config is usable; processes
// that share accounts have the same Prefix and Secret.
type Config struct {
	// Prefix begins every key, so that limiters can share a server with others;
	// empty means "ration:". It has no braces.
	Prefix string
	// Timeout bounds each call, whatever the client's own timeouts are; 0 means
	// 50 ms. With ContextTimeoutEnabled it bounds what the client does, but not
	// its hooks; see [Client].
	Timeout time.Duration
	// Secret keys the hash under which principals appear in key names. Without
	// one, whoever can list the keys can search for known ids.
	Secret []byte
	// MaxAhead is how far ahead of the server's clock the latest instant of an
	// account may be, after the clock was set back or another server took over.
	// What is further ahead is set to now, with its balance kept; 0 means a
	// minute.
	MaxAhead time.Duration
	// Now is the clock, for tests and replay; nil is the server's. Keys then live
	// an hour longer than they need, since this clock may stand still. Its range
	// is 142 years to both sides of 1970. It is called with no lock held.
	Now func() time.Time
}

// Store is a [limiter.Store] in a Redis or Valkey server. Any number of
// processes share its accounts. It is safe for concurrent use; the zero Store is
// not usable, see [New]. It has goroutines of its own, a few for seconds at most,
// only after calls that timed out on a client with ContextTimeoutEnabled.
type Store struct {
	client   Client
	keys     keys
	timeout  time.Duration
	inline   bool  // the client itself keeps deadlines
	maxAhead int64 // microseconds
	slack    int64 // how long keys outlive their accounts
	now      func() time.Time
	clock    serverClock

	connecting  atomic.Int32
	connectedAt atomic.Int64 // when connect last began, in microseconds since the clock's start
	reanchored  atomic.Int64
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
	if cfg.MaxAhead == 0 {
		cfg.MaxAhead = time.Minute
	}
	switch {
	case strings.ContainsAny(cfg.Prefix, "{}"):
		return nil, wrong("Config.Prefix", cfg.Prefix,
			"want no braces: they say which slot of a cluster a key is in")
	case cfg.Timeout < time.Millisecond:
		return nil, wrong("Config.Timeout", cfg.Timeout,
			"want at least 1ms, or 0 for 50ms")
	case cfg.MaxAhead < 0:
		return nil, wrong("Config.MaxAhead", cfg.MaxAhead,
			"want more than 0, or 0 for 1m")
	}
	s := &Store{
		client:   client,
		keys:     keys{cfg.Prefix, keytext.New(cfg.Secret)},
		timeout:  cfg.Timeout,
		inline:   keepsDeadlines(client),
		maxAhead: cfg.MaxAhead.Microseconds(),
		now:      cfg.Now,
		clock:    serverClock{start: time.Now()},
	}
	if cfg.Now != nil {
		s.slack = slack.Microseconds()
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
	case redis.Pipeliner:
		reason = "a pipeline answers only when it is executed: want a client"
	default:
		return nil
	}
	return wrong("Client", fmt.Sprintf("%T", client), reason)
}

// keepsDeadlines reports whether the client ends a command with its context.
func keepsDeadlines(client Client) bool {
	c, ok := client.(*redis.Client)
	return ok && c.Options().ContextTimeoutEnabled
}

// Capabilities says that the store can fail, so every budget on it needs an OnError,
// and how limiters reset accounts; see [limiter.Capabilities].
func (s *Store) Capabilities() limiter.Capabilities {
	return limiter.Capabilities{Name: "redis", Reset: s.Reset}
}

// Check says whether the server can hold l exactly: valid, and in numbers below
// 2^53, which holds for every limit whose capacity times Per in microseconds is
// below 2^52, and for more of them where Tokens and Per have common factors. The
// error is a *[limiter.ConfigError] that says what is wrong.
func (s *Store) Check(l limiter.Limit) error {
	if s.client == nil {
		return wrong("Store", nil, "want a store made by redisstore.New")
	}
	_, err := newRule(l)
	return err
}

// Take decides the charges together and debits all or none; see [limiter.Store].
// It is one script call whatever the number of charges.
//
// The error is a *[limiter.CostError] or *[limiter.ConfigError] for a charge that
// is not valid; ctx's own where it ends first, and then the charges may have been
// debited or not; else a *[limiter.StoreError].
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
	draws, err := newDraws(charges)
	if err != nil {
		return limiter.Decision{}, err
	}
	if err := ctx.Err(); err != nil {
		return limiter.Decision{}, err
	}
	if len(draws) == 0 {
		return limiter.Decision{Outcome: limiter.Allow}, nil
	}
	c, names := s.newCall(v, len(draws)), s.keys.namer()
	for i := range draws {
		c.keys = append(c.keys, names.text(draws[i].charge.Key))
		c.args = draws[i].appendArg(c.args)
	}
	reply, err := c.run(ctx)
	if err != nil {
		return limiter.Decision{}, err
	}
	numbers := numbers{text: reply}
	now := c.clock
	if s.now != nil {
		now = c.now
	}
	for i := range draws {
		draws[i].read(&numbers, now, s.maxAhead)
	}
	if numbers.text != "" {
		s.count(&numbers, len(draws))
	}
	if numbers.bad {
		return limiter.Decision{}, garbled(reply)
	}
	allowed := decide(draws)
	return answer(draws, charges, allowed && v == take), nil
}

// garbled is the error for a reply that the script cannot have made.
func garbled(reply string) error {
	return &limiter.StoreError{Reason: storekit.Ambiguous,
		Err: fmt.Errorf("redisstore: the server replied %q, which is no answer", reply)}
}

// newCall reads the clock, where it is the user's.
func (s *Store) newCall(v verb, keys int) *call {
	c := &call{store: s, verb: v, keys: make([]string, 0, keys)}
	c.args = make([]byte, 0, keys*argLen)
	if s.now != nil {
		at := instant.Of(s.now())
		c.now = at / 1000
		if at%1000 < 0 {
			c.now--
		}
		c.now = max(-most/2, min(c.now, most/2))
	}
	return c
}

// count reads the end of a reply: of how many of the keys the anchor was set back
// to now.
func (s *Store) count(n *numbers, keys int) {
	healed := n.within(0, int64(keys))
	if n.bad = n.bad || n.text != ""; !n.bad {
		s.reanchored.Add(healed)
	}
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
	c, names := s.newCall(settle, len(charges)), s.keys.namer()
	for i := range charges {
		r, err := newRule(charges[i].Limit)
		if err != nil {
			return err
		}
		at := charges[i].Receipt.At
		correction := max(-most, min(charges[i].Cost, most))
		c.keys = append(c.keys, names.text(charges[i].Key))
		c.args = appendNumbers(r.appendHead(c.args), correction, at/int64(time.Microsecond))
	}
	if len(charges) == 0 {
		return nil
	}
	reply, err := c.run(context.WithoutCancel(ctx))
	if err == nil {
		numbers := numbers{text: reply}
		if s.count(&numbers, len(charges)); numbers.bad {
			err = garbled(reply)
		}
	}
	if err == nil || mayHaveRun(err) {
		for i := range charges {
			charges[i].Receipt = limiter.Receipt{}
		}
	}
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
