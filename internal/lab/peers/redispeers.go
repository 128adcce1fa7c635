package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislimiter"
	"github.com/throttled/throttled/v2"
	throttledredis "github.com/throttled/throttled/v2/store/goredisstore.v9"
	ulule "github.com/ulule/limiter/v3"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/redisstore"
)

// ask decides one request of the i-th caller.
type ask func(ctx context.Context, i int) error

// remote is something to measure on a server.
type remote struct {
	name  string
	kind  kind
	setup func(addr string, client *redis.Client) ask
}

// remotes decide by one budget that always allows.
var remotes = []remote{
	{"ration, redisstore", own, remoteOurs},
	{"the same script by EVALSHA", ground, plainScript},
	{"redis_rate", peer, redisRate},
	{"throttled", peer, remoteThrottled},
	{"ulule/limiter", peer, remoteUlule},
	{"rueidislimiter", peer, rueidisLimiter},
}

// remoteKeys is how many accounts are on the server.
const remoteKeys = 10_000

const million = 1_000_000

// roomy is never empty while it is measured.
var roomy = limiter.PerSecond(million)

// callers returns the names of the callers.
func callers() []string {
	names := make([]string, remoteKeys)
	for i := range names {
		names[i] = callerName(i)[:idLength]
	}
	return names
}

// chargesOf returns the charges of a caller in so many budgets.
func chargesOf(id string, l limiter.Limit, budgets int) []limiter.Charge {
	principal := limiter.Principal{Kind: "user", ID: id}
	charges := make([]limiter.Charge, budgets)
	for i := range charges {
		key := limiter.Key{Budget: []string{"route", "user", "all"}[i], Principal: principal}
		charges[i] = limiter.Charge{Key: key, Limit: l, Cost: 1}
	}
	return charges
}

func remoteOurs(_ string, client *redis.Client) ask { return oursOn(client, 1) }

func oursOn(client *redis.Client, budgets int) ask {
	store, err := redisstore.New(client, redisstore.Config{Timeout: 5 * time.Second})
	check(err)
	names := callers()
	return func(ctx context.Context, i int) error {
		_, err := store.Take(ctx, chargesOf(names[i%remoteKeys], roomy, budgets))
		return err
	}
}

// capture is a client that keeps what it is given.
type capture struct{ words []any }

func (c *capture) Process(_ context.Context, cmd redis.Cmder) error {
	c.words = slices.Clone(cmd.Args())
	return errors.New("captured")
}

// scriptWords returns the words of the command by which the store decides the
// charges, with a deadline that never comes.
func scriptWords(charges []limiter.Charge) []any {
	c := &capture{}
	store, err := redisstore.New(c, redisstore.Config{})
	check(err)
	_, _ = store.Take(context.Background(), charges)
	control := c.words[3+len(charges)].([]byte)
	copy(control, "\x00\x00\x00\x00\x00\x00\x40\x43") // 2^53 as a double
	return c.words
}

// plainScript is what any client of go-redis would do with the script: the least
// that a decision can take.
func plainScript(_ string, client *redis.Client) ask {
	commands := make([][]any, remoteKeys)
	for i, name := range callers() {
		commands[i] = scriptWords(chargesOf(name, roomy, 1))
	}
	return func(ctx context.Context, i int) error {
		return client.Do(ctx, commands[i%remoteKeys]...).Err()
	}
}

func redisRate(_ string, client *redis.Client) ask {
	l := redis_rate.NewLimiter(client)
	names := callers()
	limit := redis_rate.PerSecond(million)
	return func(ctx context.Context, i int) error {
		_, err := l.Allow(ctx, names[i%remoteKeys], limit)
		return err
	}
}

func remoteThrottled(_ string, client *redis.Client) ask {
	store, err := throttledredis.NewCtx(client, "throttled:")
	check(err)
	gcra, err := throttled.NewGCRARateLimiterCtx(store,
		throttled.RateQuota{MaxRate: throttled.PerSec(million), MaxBurst: million})
	check(err)
	names := callers()
	return func(ctx context.Context, i int) error {
		_, _, err := gcra.RateLimitCtx(ctx, names[i%remoteKeys], 1)
		return err
	}
}

func remoteUlule(_ string, client *redis.Client) ask {
	store, err := ululeredis.NewStore(client)
	check(err)
	l := ulule.New(store, ulule.Rate{Period: 24 * time.Hour, Limit: 1 << 40})
	names := callers()
	return func(ctx context.Context, i int) error {
		_, err := l.Get(ctx, names[i%remoteKeys])
		return err
	}
}

func rueidisLimiter(addr string, _ *redis.Client) ask {
	l, err := rueidislimiter.NewRateLimiter(rueidislimiter.RateLimiterOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true},
		Limit:        1 << 40, Window: 24 * time.Hour,
	})
	check(err)
	names := callers()
	return func(ctx context.Context, i int) error {
		_, err := l.Allow(ctx, names[i%remoteKeys])
		return err
	}
}
