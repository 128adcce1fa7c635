package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
)

// delivery is a message of a queue, with the principal that the broker has
// authenticated.
type delivery struct {
	queue, sender string
	bytes         int64
}

// consumer handles the messages of queues within the budgets of a limiter.
type consumer struct{ adapter *limiter.Adapter }

func newConsumer(l *limiter.Limiter, queues ...string) (*consumer, error) {
	c := &consumer{l.Adapter()}
	// No handler makes up messages with the context of another one, so none needs an ID.
	_, err := c.adapter.Setup("mq", true, func(
		budgets []limiter.Budget, _ limiter.Capabilities, transports []string,
	) error {
		return knownQueues(budgets, queues, transports)
	})
	if err != nil {
		return nil, err
	}
	c.adapter.Routes("mq", queues...)
	return c, nil
}

// knownQueues refuses a budget for a queue that the service does not consume.
func knownQueues(budgets []limiter.Budget, queues, transports []string) error {
	if len(transports) > 1 {
		return nil // it may be a route of the other one
	}
	known := map[string]bool{}
	for _, queue := range queues {
		known[queue] = true
	}
	for _, b := range budgets {
		for _, route := range b.Routes {
			if !known[route] {
				return fmt.Errorf("budget %s: no queue %q", b.Name, route)
			}
		}
	}
	return nil
}

// consume handles one message, or says when the queue shall deliver it again.
func (c *consumer) consume(
	ctx context.Context, m delivery, handle func(context.Context, delivery),
) (again time.Duration, err error) {
	r := limiter.Request{Transport: "mq", Cost: m.bytes, Settles: true, WantState: true,
		Caller: limiter.Caller{Route: m.queue}}
	r.Caller.Principal = limiter.Principal{Kind: "sender", ID: m.sender}
	if m.sender == "" {
		r.Err = limiter.ErrNobody
	}
	ctx, err = c.adapter.Take(ctx, &r)
	if !r.Decision.Allowed() {
		return r.Decision.RetryAfter, cannotHandle(&r, err)
	}
	// The error, if there is one, is that of a store that failed: OnError is Open.
	handle(ctx, m)
	if r.State.Budget != "" {
		fmt.Printf("%s has %d left of %s\n", m.sender, r.State.Remaining, r.State.Budget)
	}
	return 0, nil
}

func cannotHandle(r *limiter.Request, err error) error {
	switch {
	case err != nil:
		return err
	case r.Decision.Outcome == limiter.Never:
		return errors.New("to the dead letters: it can never be paid")
	case r.Named:
		return fmt.Errorf("%s is used up", r.Decision.Budget)
	default:
		return errors.New("busy")
	}
}

// An adapter of a transport of one's own: a consumer of a message queue. Its
// handlers learn what a message really cost, and settle it.
func ExampleLimiter_Adapter() {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	store := limiter.Must(memstore.New(memstore.Config{Now: func() time.Time { return now }}))
	l := limiter.Must(limiter.New(store, []limiter.Budget{
		{Name: "bytes", Scope: limiter.ByPrincipal, Limit: limiter.PerMinute(1000)},
		{Name: "all", Limit: limiter.PerMinute(5000), Routes: []string{"orders"}},
	}, limiter.Config{}))
	c := limiter.Must(newConsumer(l, "orders", "mails"))

	handle := func(ctx context.Context, m delivery) {
		if err := limiter.Settle(ctx, m.bytes/2); err != nil { // it was compressed
			fmt.Println(err)
		}
	}
	for _, m := range []delivery{{"orders", "shop", 800}, {"orders", "shop", 800},
		{"orders", "shop", 2000}, {"mails", "", 1}} {
		again, err := c.consume(context.Background(), m, handle)
		if err != nil {
			fmt.Println(again, err)
		}
	}
	fmt.Println(l.Reload([]limiter.Budget{
		{Name: "bytes", Limit: limiter.PerMinute(1000), Routes: []string{"oders"}}}))
	// Output:
	// shop has 200 left of bytes
	// 12s bytes is used up
	// 0s to the dead letters: it can never be paid
	// 0s limiter: a principal is required and the caller has none
	// budget bytes: no queue "oders"
}
