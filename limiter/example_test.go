package limiter_test

import (
	"context"
	"fmt"
	"time"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
)

func ExampleNewBucket() {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	limit := limiter.Limit{Tokens: 2, Per: time.Second, Burst: 5}
	bucket, err := limiter.NewBucket(limit, func() time.Time { return now })
	if err != nil {
		fmt.Println(err)
		return
	}
	ask := func(cost int64) {
		d, err := bucket.Take(cost)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("cost %d: %v, %d left, wait %v\n", cost, d.Outcome, d.Remaining, d.RetryAfter)
	}
	ask(5)
	now = now.Add(100 * time.Millisecond)
	ask(1)
	now = now.Add(400 * time.Millisecond)
	ask(1)
	ask(6)
	// Output:
	// cost 5: allow, 0 left, wait 0s
	// cost 1: deny, 0 left, wait 400ms
	// cost 1: allow, 0 left, wait 0s
	// cost 6: never, 0 left, wait 0s
}

func ExampleNew() {
	store, err := memstore.New(memstore.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	l, err := limiter.New(store, []limiter.Budget{
		{Name: "user", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(2)},
		{Name: "tenant", Scope: limiter.ByTenant, Limit: limiter.PerHour(3)},
	}, limiter.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, id := range []string{"alice", "alice", "alice", "bob", "bob"} {
		caller := limiter.Caller{
			Principal: limiter.Principal{Kind: "user", Tenant: "acme", ID: id},
		}
		d, err := l.Take(context.Background(), caller, 1)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s: %v by %s\n", id, d.Outcome, d.Budget)
	}
	// Output:
	// alice: allow by user
	// alice: allow by user
	// alice: deny by user
	// bob: allow by tenant
	// bob: deny by tenant
}

func ExampleLimiter_Reserve() {
	store := limiter.Must(memstore.New(memstore.Config{}))
	l := limiter.Must(limiter.New(store, []limiter.Budget{
		{Name: "tokens", Scope: limiter.ByPrincipal, Limit: limiter.PerDay(1000)},
	}, limiter.Config{}))
	ctx := context.Background()
	caller := limiter.Caller{Principal: limiter.Principal{Kind: "user", ID: "alice"}}

	// The answer may be up to 400 tokens long; nobody knows yet.
	r, err := l.Reserve(ctx, caller, 400)
	if err != nil || !r.Decision.Allowed() {
		fmt.Println("refused", err)
		return
	}
	fmt.Println("reserved,", r.Decision.Remaining, "left")

	// It was 150 long.
	if err := r.Settle(ctx, 150); err != nil {
		fmt.Println(err)
	}
	d, err := l.Peek(ctx, caller, 0)
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println("settled,", d.Remaining, "left")
	// Output:
	// reserved, 600 left
	// settled, 850 left
}
