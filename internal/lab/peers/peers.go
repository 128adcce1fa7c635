package main

import (
	"context"
	"net/http"
	"sync"

	"github.com/didip/tollbooth/v8"
	"github.com/go-chi/httprate"
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
	{"x/time/rate, map and RWMutex", peer, xtimeMap},
	{"x/time/rate, sync.Map", peer, xtimeSyncMap},
	{"go-limiter", peer, goLimiter},
	{"throttled", peer, throttledGCRA},
	{"ulule/limiter", peer, ululeLimiter},
	{"httprate", peer, httpRate},
	{"tollbooth", peer, tollboothLimiter},
}

func newXtime(l *load) *rate.Limiter {
	limit := l.limit()
	perSecond := float64(limit.Tokens) / limit.Per.Seconds()
	return rate.NewLimiter(rate.Limit(perSecond), int(limit.Burst))
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
	visit, mask := l.visit, len(l.visit)-1
	return func(from, n int) (allowed int) {
		for i := from; i < from+n; i++ {
			mu.RLock()
			bucket := buckets[visit[i&mask]]
			mu.RUnlock()
			if bucket.Allow() {
				allowed++
			}
		}
		return allowed
	}
}

// xtimeSyncMap is the same with a sync.Map. The keys are boxed beforehand, which
// spares it an allocation for each decision.
func xtimeSyncMap(l *load) run {
	var buckets sync.Map
	for key := range l.fresh() {
		bucket := newXtime(l)
		bucket.Allow()
		buckets.Store(key, bucket)
	}
	boxed := make([]any, len(l.visit))
	for i, key := range l.visit {
		boxed[i] = key
	}
	mask := len(boxed) - 1
	return func(from, n int) (allowed int) {
		for i := from; i < from+n; i++ {
			bucket, _ := buckets.Load(boxed[i&mask])
			if bucket.(*rate.Limiter).Allow() {
				allowed++
			}
		}
		return allowed
	}
}

// goLimiter has its map made at its final size and no sweeper.
func goLimiter(l *load) run {
	store, err := memorystore.New(&memorystore.Config{
		Tokens: uint64(l.window()), Interval: windowLength, InitialAlloc: l.hint, DisablePurge: true,
	})
	check(err)
	ctx := context.Background()
	for key := range l.fresh() {
		_, _, _, _, err := store.Take(ctx, key)
		check(err)
	}
	visit, mask := l.visit, len(l.visit)-1
	return func(from, n int) (allowed int) {
		for i := from; i < from+n; i++ {
			_, _, _, ok, err := store.Take(ctx, visit[i&mask])
			check(err)
			if ok {
				allowed++
			}
		}
		return allowed
	}
}

// throttledGCRA has its unbounded store, a plain map, which is faster and smaller
// than the LRU, and is asked through the method that the others wrap. A decision
// is tried until it is one: with the ten tries of the default, some on a hot key
// would be errors instead.
func throttledGCRA(l *load) run {
	store, err := throttledstore.NewCtx(0)
	check(err)
	limit := l.limit()
	gcra, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
		MaxRate:  throttled.PerDuration(int(limit.Tokens), limit.Per),
		MaxBurst: int(limit.Burst) - 1,
	})
	check(err)
	gcra.SetMaxCASAttemptsLimit(1 << 30)
	ctx := context.Background()
	for key := range l.fresh() {
		_, _, err := gcra.RateLimitCtx(ctx, key, 1)
		check(err)
	}
	visit, mask := l.visit, len(l.visit)-1
	return func(from, n int) (allowed int) {
		for i := from; i < from+n; i++ {
			limited, _, err := gcra.RateLimitCtx(ctx, visit[i&mask], 1)
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
	lim := ulule.New(store, ulule.Rate{Period: windowLength, Limit: l.window()})
	ctx := context.Background()
	for key := range l.fresh() {
		_, err := lim.Get(ctx, key)
		check(err)
	}
	visit, mask := l.visit, len(l.visit)-1
	return func(from, n int) (allowed int) {
		for i := from; i < from+n; i++ {
			c, err := lim.Get(ctx, visit[i&mask])
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
	lim := httprate.NewRateLimiter(int(l.window()), windowLength,
		httprate.WithResponseHeaders(httprate.ResponseHeaders{}))
	request, err := http.NewRequest(http.MethodGet, "/v1/exports/1", nil)
	check(err)
	var w http.ResponseWriter = discard{}
	for key := range l.fresh() {
		lim.OnLimit(w, request, key)
	}
	visit, mask := l.visit, len(l.visit)-1
	return func(from, n int) (allowed int) {
		for i := from; i < from+n; i++ {
			if !lim.OnLimit(w, request, visit[i&mask]) {
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
	limit := l.limit()
	lim := tollbooth.NewLimiter(float64(limit.Tokens)/limit.Per.Seconds(), nil).
		SetBurst(int(limit.Burst))
	for key := range l.fresh() {
		lim.LimitReached(key)
	}
	visit, mask := l.visit, len(l.visit)-1
	return func(from, n int) (allowed int) {
		for i := from; i < from+n; i++ {
			if !lim.LimitReached(visit[i&mask]) {
				allowed++
			}
		}
		return allowed
	}
}
