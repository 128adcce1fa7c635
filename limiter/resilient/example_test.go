package resilient_test

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
	"github.com/ration-go/ration/limiter/redisstore"
	"github.com/ration-go/ration/limiter/resilient"
)

// No Redis server listens here, so that each of the four processes may admit a quarter
// of the limit.
func ExampleNew() {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	shared := limiter.Must(redisstore.New(client, redisstore.Config{}))
	local := limiter.Must(memstore.New(memstore.Config{}))
	store := limiter.Must(resilient.New(shared, local, resilient.Config{
		Replicas: func() int { return 4 },
	}))
	l := limiter.Must(limiter.New(store, []limiter.Budget{{
		Name: "reads", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(8), OnError: limiter.Local,
	}}, limiter.Config{Logger: quiet}))

	alice := limiter.Caller{Principal: limiter.Principal{Kind: "user", ID: "alice"}}
	for range 3 {
		d, err := l.Take(context.Background(), alice, 1)
		fmt.Println(d.Outcome, err != nil)
	}
	// Output:
	// allow true
	// allow true
	// deny true
}
