package memstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
)

// BenchmarkTake measures Store.Take with charges prepared outside.
func BenchmarkTake(b *testing.B) {
	allowed := limiter.Limit{Tokens: 1_000_000_000, Per: time.Second, Burst: 1_000_000_000}
	denied := limiter.Limit{Tokens: 1, Per: 24 * time.Hour}
	b.Run("store=mem/keys=1/outcome=allow", func(b *testing.B) { benchHot(b, allowed, 1) })
	b.Run("store=mem/keys=1/outcome=deny", func(b *testing.B) { benchHot(b, denied, 1) })
	b.Run("store=mem/keys=1/outcome=allow/budgets=3", func(b *testing.B) { benchHot(b, allowed, 3) })
	b.Run("store=mem/keys=1/outcome=allow/par", func(b *testing.B) { benchHotParallel(b, allowed) })
	b.Run("store=mem/keys=1e6/outcome=allow", func(b *testing.B) { benchMany(b, allowed) })
}

func charges(l limiter.Limit, id string, budgets int) []limiter.Charge {
	c := make([]limiter.Charge, budgets)
	for i := range c {
		c[i] = limiter.Charge{Limit: l, Cost: 1, Key: limiter.Key{
			Budget:    fmt.Sprintf("budget-%d", i),
			Principal: limiter.Principal{Kind: "user", ID: id},
			Route:     "GET /v1/exports/{id}",
		}}
	}
	return c
}

func benchHot(b *testing.B, l limiter.Limit, budgets int) {
	store := limiter.Must(memstore.New(memstore.Config{}))
	c := charges(l, "alice-0123456789", budgets)
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := store.Take(ctx, c); err != nil {
			b.Fatal(err)
		}
	}
}

func benchHotParallel(b *testing.B, l limiter.Limit) {
	store := limiter.Must(memstore.New(memstore.Config{}))
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		c := charges(l, "alice-0123456789", 1)
		for pb.Next() {
			if _, err := store.Take(context.Background(), c); err != nil {
				b.Error(err)
			}
		}
	})
}

func benchMany(b *testing.B, l limiter.Limit) {
	const keys = 1 << 20
	store := limiter.Must(memstore.New(memstore.Config{MaxAccounts: 16 << 20}))
	store.Plan([]string{"budget-0"})
	all := make([]limiter.Charge, keys)
	ctx := context.Background()
	for i, j := range rand.Perm(keys) {
		all[i] = charges(l, fmt.Sprintf("user-%010d", j), 1)[0]
		all[i].Cost = l.Burst
		if _, err := store.Take(ctx, all[i:i+1]); err != nil {
			b.Fatal(err)
		}
		all[i].Cost = 1
	}
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		i = (i + 1) & (keys - 1)
		if _, err := store.Take(ctx, all[i:i+1]); err != nil {
			b.Fatal(err)
		}
	}
}
