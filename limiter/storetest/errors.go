package storetest

import (
	"context"
	"errors"
	"time"

	"github.com/ration-go/ration/limiter"
)

var errorRules = []Rule{
	{"R14", "a caller that is gone", "With a context that has ended Take and Peek return the " +
		"context's error, and nothing was debited.", callerIsGone},
	{"R14", "errors first", "A mistake of the caller's is reported as such by Peek and Take " +
		"alike, whatever the state of its accounts.", errorsFirst},
}

func callerIsGone(p *probe) {
	gone, leave := context.WithCancel(context.Background())
	leave()
	late, stop := context.WithTimeout(context.Background(), -time.Second)
	defer stop()
	for _, ctx := range []context.Context{gone, late} {
		for range 3 {
			charges := []limiter.Charge{in("a", plain, 2), in("b", plain, 2)}
			_, err := p.store.Take(ctx, charges)
			isOwn(ctx, "Take", err)
			noReceipt("Settle of what was not taken", p.settle(&charges[0], -1))
			_, err = p.store.Peek(ctx, charges)
			isOwn(ctx, "Peek", err)
		}
		p.left(5, in("a", plain, 0))
		p.left(5, in("b", plain, 0))
	}
}

func isOwn(ctx context.Context, verb string, err error) {
	if !errors.Is(err, ctx.Err()) {
		violated("%s with a context that has ended: error %v, want %v", verb, err, ctx.Err())
	}
}

func errorsFirst(p *probe) {
	p.allowed(on("alice", plain, 5))
	above := on("alice", plain, 6)
	for _, call := range []call{p.store.Take, p.store.Peek} {
		ctx := context.Background()
		_, err := call(ctx, []limiter.Charge{above, on("alice", plain, -1)})
		wrong[*limiter.CostError]("a negative cost beside one above the capacity", err)
		_, err = call(ctx, []limiter.Charge{above, on("bob", limiter.Limit{}, 1)})
		wrong[*limiter.ConfigError]("no limit beside a cost above the capacity", err)
	}
}
