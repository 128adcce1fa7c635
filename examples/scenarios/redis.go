package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
	"github.com/ration-go/ration/limiter/redisstore"
)

// inRedis returns an opener of stores on one server, and what removes their keys
// again. The keys have a prefix that no other run has.
func inRedis(addr string) (open opener, cleanUp func() error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	prefix, stores := fmt.Sprintf("scenarios:%d:", time.Now().UnixNano()), 0
	open = func(now func() time.Time) (limiter.Store, error) {
		stores++
		store, err := redisstore.New(client, redisstore.Config{
			Prefix:  fmt.Sprintf("%s%d:", prefix, stores),
			Timeout: 5 * time.Second,
			Now:     now,
		})
		return &counted{store, map[limiter.Key]limiter.Limit{}}, err
	}
	return open, func() error { return errors.Join(unlink(client, prefix), client.Close()) }
}

// unlink removes all keys that begin with the prefix.
func unlink(client *redis.Client, prefix string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for cursor := uint64(0); ; {
		keys, next, err := client.Scan(ctx, cursor, prefix+"*", 1000).Result()
		if err != nil {
			return err
		}
		if len(keys) > 0 {
			if err := client.Unlink(ctx, keys...).Err(); err != nil {
				return err
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// counted is a store that can tell how many of its accounts are not full. A
// server drops those that are full by its own clock, which has not moved.
type counted struct {
	*redisstore.Store
	taken map[limiter.Key]limiter.Limit
}

func (c *counted) Take(
	ctx context.Context, charges []limiter.Charge,
) (limiter.Decision, error) {
	for i := range charges {
		c.taken[charges[i].Key] = charges[i].Limit
	}
	return c.Store.Take(ctx, charges)
}

// Stats counts the accounts that are not full by the clock of the store.
func (c *counted) Stats() (s memstore.Stats) {
	for key, limit := range c.taken {
		d, err := c.Peek(context.Background(), []limiter.Charge{{Key: key, Limit: limit}})
		if err == nil && d.ResetAfter > 0 {
			s.Accounts++
		}
	}
	return s
}
