package main

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
)

const budget = "exports"

// accountKey is the key of the same account as name is for peers.
func accountKey(name string) limiter.Key {
	return limiter.Key{
		Budget:    budget,
		Principal: limiter.Principal{Kind: "user", ID: name[:idLength]},
		Route:     route,
	}
}

// newStore returns a store that is nowhere near its bound with n accounts.
func newStore(n int, now func() time.Time, budgets ...string) *memstore.Store {
	store := limiter.Must(memstore.New(memstore.Config{MaxAccounts: max(4*n, 1<<16), Now: now}))
	store.Capabilities().Plan(budgets, nil)
	return store
}

// ours is the memory store of this module, asked by Store.Take. The charge is
// prepared; only the caller's id is put in, as a Limiter does for each request.
func ours(l *load) run {
	store := newStore(l.keys, nil, budget)
	ctx := context.Background()
	half := max(l.limit().Burst/2, 1)
	for name := range l.fresh() {
		_, err := store.Take(ctx, []limiter.Charge{{Key: accountKey(name), Limit: l.limit(), Cost: half}})
		check(err)
	}
	visit, mask := l.visit, len(l.visit)-1
	return func(from, n int) (allowed int) {
		charges := []limiter.Charge{{Key: accountKey(visit[0]), Limit: l.limit(), Cost: 1}}
		for i := from; i < from+n; i++ {
			charges[0].Key.Principal.ID = visit[i&mask][:idLength]
			d, err := store.Take(ctx, charges)
			check(err)
			if d.Allowed() {
				allowed++
			}
		}
		return allowed
	}
}

// sink keeps what the floor computes, so that the compiler does too.
var sink atomic.Uint64

// floor is what no keyed limiter with a clock can do without: a look at the
// monotonic clock, a keyed hash of 128 bits over the fields of a limiter.Key, and
// a lock that nobody else wants. It has no table and decides nothing.
func floor(l *load) run {
	start := time.Now()
	a, b := maphash.MakeSeed(), maphash.MakeSeed()
	visit, mask := l.visit, len(l.visit)-1
	return func(from, n int) (allowed int) {
		var mu sync.Mutex
		var sum uint64
		k := accountKey(visit[0])
		for i := from; i < from+n; i++ {
			k.Principal.ID = visit[i&mask][:idLength]
			now := time.Since(start)
			high, low := hash(a, &k), hash(b, &k)
			mu.Lock()
			sum += high ^ low ^ uint64(now)
			mu.Unlock()
		}
		sink.Store(sum)
		if l.deny {
			return 0
		}
		return n
	}
}

// hash is one lane: the hash of each field that is not empty, times an odd number
// for its place.
func hash(seed maphash.Seed, k *limiter.Key) uint64 {
	sum := field(seed, k.Principal.Kind, 0xbf58476d1ce4e5b9)
	sum += field(seed, k.Principal.Tenant, 0x94d049bb133111eb)
	sum += field(seed, k.Principal.ID, 0xd6e8feb86659fd93)
	sum += field(seed, k.Budget, 0x9e3779b97f4a7c15)
	sum += field(seed, k.Route, 0xa0761d6478bd642f)
	return sum + field(seed, k.Workload, 0xe7037ed1a0b428db)
}

func field(seed maphash.Seed, s string, place uint64) uint64 {
	if s == "" {
		return 0
	}
	return maphash.String(seed, s) * place
}
