package redisstore_test

import (
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/redisstore"
)

// These are the recommended options.
func ExampleNew() {
	logging.Disable() // go-redis's own log lines, in the whole process
	client := redis.NewClient(&redis.Options{
		Addr:            "redis.internal:6379",
		Username:        "ration", // with the rights of the package comment
		Password:        "secret",
		Dialer:          redisstore.Dialer(nil), // with TLS: redisstore.Dialer(&tls.Config{})
		DialTimeout:     500 * time.Millisecond,
		PoolSize:        16,
		DisableIdentity: true,
	})
	defer func() { _ = client.Close() }()
	store, err := redisstore.New(client, redisstore.Config{Timeout: 50 * time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return
	}
	// No I/O yet: the server may be down.
	_, err = limiter.New(store, []limiter.Budget{{
		Name: "api", Scope: limiter.ByPrincipal, Limit: limiter.PerMinute(600), OnError: limiter.Closed,
	}}, limiter.Config{})
	fmt.Println(err)
	// Output: <nil>
}
