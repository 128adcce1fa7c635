package service

import (
	"net"

	"github.com/redis/go-redis/v9"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
	"github.com/ration-go/ration/limiter/redisstore"
	"github.com/ration-go/ration/limiter/resilient"
)

// Shared returns a store in the Redis server at an address, which so many processes
// share. While the server is away, each of them decides with its part of the limits.
func Shared(server string, processes int) (limiter.Store, error) {
	client := redis.NewClient(&redis.Options{Addr: server,
		Dialer: redisstore.Dialer(nil)}) // fails fast while the server is down, and is back at once
	shared, err := redisstore.New(client, redisstore.Config{Prefix: "quickstart:"})
	if err != nil {
		return nil, err
	}
	local, err := memstore.New(memstore.Config{})
	if err != nil {
		return nil, err
	}
	return resilient.New(shared, local, resilient.Config{Replicas: func() int { return processes }})
}

// CommandLine returns the arguments by which redis-cli reaches a server.
func CommandLine(server string) string {
	if host, port, err := net.SplitHostPort(server); err == nil {
		return "-h " + host + " -p " + port
	}
	return "-s " + server // a unix socket
}
