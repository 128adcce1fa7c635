package main

import (
	"context"
	"time"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
)

const budget = "exports"

// accountKey is the key of the same account as name is for peers.
func accountKey(name string) limiter.Key {
	return limiter.Key{Budget: budget, Principal: principal(name), Route: route}
}

func principal(name string) limiter.Principal {
	return limiter.Principal{Kind: "user", ID: name[:idLength]}
}

// newStore returns a store that is nowhere near its bound with n accounts.
func newStore(n int, now func() time.Time, budgets ...string) *memstore.Store {
	store := limiter.Must(memstore.New(memstore.Config{MaxAccounts: max(4*n, 1<<16), Now: now}))
	store.Capabilities().Plan(budgets, nil)
	return store
}

// newLimiter returns a limiter of one budget for each caller and route.
func newLimiter(l *load) *limiter.Limiter {
	b := limiter.Budget{Name: budget, Limit: l.limit,
		Scope: limiter.ByPrincipal | limiter.ByRoute, OnError: limiter.Closed}
	if l.plans {
		double := l.limit
		double.Tokens, double.Burst = 2*double.Tokens, 2*double.Burst
		b.LimitFor = func(_ context.Context, c limiter.Caller) limiter.Limit {
			if c.Principal.ID[idLength-1]%2 == 0 {
				return double
			}
			return limiter.Limit{}
		}
	}
	size := max(4*l.keys, 1<<16)
	if l.maxAccounts > 0 {
		size = l.maxAccounts
	}
	store := limiter.Must(memstore.New(memstore.Config{MaxAccounts: size}))
	return limiter.Must(limiter.New(store, []limiter.Budget{b}, limiter.Config{}))
}

// ours is this module as a service calls it, by Limiter.Take.
func ours(l *load) run {
	lim := newLimiter(l)
	ctx := context.Background()
	i := 0
	for name := range l.fresh() {
		_, err := lim.Take(ctx, limiter.Caller{Principal: principal(name), Route: route}, l.spent(i))
		check(err)
		i++
	}
	return takeBy(lim)
}

// takeBy decides by Limiter.Take.
func takeBy(lim *limiter.Limiter) run {
	ctx := context.Background()
	return func(_ int, keys []string) (allowed int) {
		for _, key := range keys {
			d, err := lim.Take(ctx, limiter.Caller{Principal: principal(key), Route: route}, 1)
			check(err)
			if d.Allowed() {
				allowed++
			}
		}
		return allowed
	}
}

// oursStore is the memory store alone, asked by Store.Take. The charge is prepared;
// only the caller's id is put in.
func oursStore(l *load) run {
	store := newStore(l.keys, nil, budget)
	ctx := context.Background()
	i := 0
	for name := range l.fresh() {
		_, err := store.Take(ctx, []limiter.Charge{
			{Key: accountKey(name), Limit: l.limit, Cost: l.spent(i)}})
		check(err)
		i++
	}
	return func(_ int, keys []string) (allowed int) {
		charges := []limiter.Charge{{Key: accountKey(keys[0]), Limit: l.limit, Cost: 1}}
		for _, key := range keys {
			charges[0].Key.Principal.ID = key[:idLength]
			d, err := store.Take(ctx, charges)
			check(err)
			if d.Allowed() {
				allowed++
			}
		}
		return allowed
	}
}
