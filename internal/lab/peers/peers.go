package main

import (
	"context"
	"net/http"
	"sync"

	"github.com/didip/tollbooth/v8"
	"github.com/go-chi/httprate"
	golimiter "github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	throttledstore "github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"
)

// peers are the limiters of others. Each loop asks for the decision in the
// peer's own code, with no call between that a service would not make.
var peers = []subject{
	{"x/time/rate, map of ready keys", peer, xtimeMap},
	{"x/time/rate, map of struct keys", twoPart, xtimeStruct},
	{"x/time/rate, sync.Map", peer, xtimeSyncMap},
	{"go-limiter", peer, goLimiter},
	{"go-limiter, key joined", twoPart, goLimiterJoined},
	{"throttled", peer, throttledGCRA},
	{"ulule/limiter", peer, ululeLimiter},
	{"httprate", peer, httpRate},
	{"tollbooth", peer, tollboothLimiter},
}

func newXtime(l *load) *rate.Limiter {
	limit := l.limit
	perSecond := float64(limit.Tokens) / limit.Per.Seconds()
	return rate.NewLimiter(rate.Limit(perSecond), int(limit.Capacity()))
}

// xtimeMap has one bucket for each key in a map of the right size under a
// sync.RWMutex, which is released before the bucket decides. Nothing ever leaves
// the map: eviction would only cost.
func xtimeMap(l *load) run {
	var mu sync.RWMutex
	buckets := make(map[string]*rate.Limiter, l.hint)
	for key := range l.fresh() {
		buckets[key] = newXtime(l)
		buckets[key].Allow()
	}
	return func(_ int, keys []string) (allowed int) {
		for _, key := range keys {
			mu.RLock()
			bucket := buckets[key]
			mu.RUnlock()
			if bucket.Allow() {
				allowed++
			}
		}
		return allowed
	}
}

// xtimeStruct is the same with a map of struct keys, of the caller's id and the route.
func xtimeStruct(l *load) run {
	type account struct{ id, route string }
	var mu sync.RWMutex
	buckets := make(map[account]*rate.Limiter, l.hint)
	bucketOf := func(a account) *rate.Limiter {
		mu.RLock()
		bucket := buckets[a]
		mu.RUnlock()
		if bucket == nil {
			mu.Lock()
			if bucket = buckets[a]; bucket == nil {
				bucket = newXtime(l)
				buckets[a] = bucket
			}
			mu.Unlock()
		}
		return bucket
	}
	for key := range l.fresh() {
		bucketOf(account{key[:idLength], route}).Allow()
	}
	return func(_ int, keys []string) (allowed int) {
		for _, key := range keys {
			if bucketOf(account{key[:idLength], route}).Allow() {
				allowed++
			}
		}
		return allowed
	}
}

// xtimeSyncMap is the same with a sync.Map, which allocates to box a key.
func xtimeSyncMap(l *load) run {
	var buckets sync.Map
	for key := range l.fresh() {
		bucket := newXtime(l)
		bucket.Allow()
		buckets.Store(key, bucket)
	}
	return func(_ int, keys []string) (allowed int) {
		for _, key := range keys {
			bucket, _ := buckets.Load(key)
			if bucket.(*rate.Limiter).Allow() {
				allowed++
			}
		}
		return allowed
	}
}

// goLimiter has its map made at its final size and no sweeper.
func goLimiter(l *load) run {
	store := goLimiterStore(l)
	ctx := context.Background()
	for key := range l.fresh() {
		_, _, _, _, err := store.Take(ctx, key)
		check(err)
	}
	return func(_ int, keys []string) (allowed int) {
		for _, key := range keys {
			_, _, _, ok, err := store.Take(ctx, key)
			check(err)
			if ok {
				allowed++
			}
		}
		return allowed
	}
}

// goLimiterJoined is the same with a key that is joined for each decision.
func goLimiterJoined(l *load) run {
	store := goLimiterStore(l)
	ctx := context.Background()
	for key := range l.fresh() {
		_, _, _, _, err := store.Take(ctx, key)
		check(err)
	}
	return func(_ int, keys []string) (allowed int) {
		for _, key := range keys {
			_, _, _, ok, err := store.Take(ctx, join(key))
			check(err)
			if ok {
				allowed++
			}
		}
		return allowed
	}
}

func goLimiterStore(l *load) golimiter.Store {
	tokens, window := l.window()
	store, err := memorystore.New(&memorystore.Config{
		Tokens: uint64(tokens), Interval: window, InitialAlloc: l.hint, DisablePurge: true,
	})
	check(err)
	return store
}

// throttledGCRA has its unbounded store, a plain map, which is faster and smaller
// than the LRU, and is asked through the method that the others wrap. A decision
// is tried until it is one: with the ten tries of the default, some on a hot key
// would be errors instead.
func throttledGCRA(l *load) run {
	store, err := throttledstore.NewCtx(0)
	check(err)
	limit := l.limit
	gcra, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
		MaxRate:  throttled.PerDuration(int(limit.Tokens), limit.Per),
		MaxBurst: int(limit.Capacity()) - 1,
	})
	check(err)
	gcra.SetMaxCASAttemptsLimit(1 << 30)
	ctx := context.Background()
	for key := range l.fresh() {
		_, _, err := gcra.RateLimitCtx(ctx, key, 1)
		check(err)
	}
	return func(_ int, keys []string) (allowed int) {
		for _, key := range keys {
			limited, _, err := gcra.RateLimitCtx(ctx, key, 1)
			check(err)
			if !limited {
				allowed++
			}
		}
		return allowed
	}
}

// ululeLimiter has no prefix, which makes its keys shorter, and no cleaner.
func ululeLimiter(l *load) run {
	store := memory.NewStoreWithOptions(ulule.StoreOptions{})
	tokens, window := l.window()
	lim := ulule.New(store, ulule.Rate{Period: window, Limit: tokens})
	ctx := context.Background()
	for key := range l.fresh() {
		_, err := lim.Get(ctx, key)
		check(err)
	}
	return func(_ int, keys []string) (allowed int) {
		for _, key := range keys {
			c, err := lim.Get(ctx, key)
			check(err)
			if !c.Reached {
				allowed++
			}
		}
		return allowed
	}
}

// httpRate is asked by OnLimit, the least that decides and counts at once, with
// the key at hand and all of its header names empty, so that it sets none.
func httpRate(l *load) run {
	tokens, window := l.window()
	lim := httprate.NewRateLimiter(int(tokens), window,
		httprate.WithResponseHeaders(httprate.ResponseHeaders{}))
	request, err := http.NewRequest(http.MethodGet, "/v1/exports/1", nil)
	check(err)
	var w http.ResponseWriter = discard{}
	for key := range l.fresh() {
		lim.OnLimit(w, request, key)
	}
	return func(_ int, keys []string) (allowed int) {
		for _, key := range keys {
			if !lim.OnLimit(w, request, key) {
				allowed++
			}
		}
		return allowed
	}
}

// discard is an http.ResponseWriter that nothing comes out of.
type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) WriteHeader(int)             {}

// tollboothLimiter is asked by LimitReached, which neither joins keys nor counts
// the tokens left, and its accounts do not expire (the default, ten years).
func tollboothLimiter(l *load) run {
	limit := l.limit
	lim := tollbooth.NewLimiter(float64(limit.Tokens)/limit.Per.Seconds(), nil).
		SetBurst(int(limit.Capacity()))
	for key := range l.fresh() {
		lim.LimitReached(key)
	}
	return func(_ int, keys []string) (allowed int) {
		for _, key := range keys {
			if !lim.LimitReached(key) {
				allowed++
			}
		}
		return allowed
	}
}
