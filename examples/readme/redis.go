package main

import (
	"github.com/redis/go-redis/v9"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/redisstore"
)

func newShared() *limiter.Limiter {
	// readme:redis
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379",
		ContextTimeoutEnabled: true, DialerRetries: 1}) // fails fast while it is down
	limit := limiter.Must(limiter.New(limiter.Must(redisstore.New(client, redisstore.Config{})),
		[]limiter.Budget{{
			Name: "orders", Scope: limiter.ByPrincipal, Limit: limiter.PerMinute(100),
			OnError: limiter.Closed,
		}}, limiter.Config{}))
	// readme:end
	return limit
}
