package redisstore_test

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/lab/redistest"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/redisstore"
)

// large is a rolling log with as many entries as there can be.
var large = limiter.Limit{Tokens: 10_000, Per: time.Hour, Algorithm: limiter.RollingLog}

// fillLog makes the account one with so many entries, 1 ms apart, and returns the
// charges that wrote them. clock is the clock of the store.
func fillLog(t testing.TB, s *redisstore.Store, clock *time.Time, user string, entries int,
) (charges []limiter.Charge) {
	t.Helper()
	for range entries {
		*clock = clock.Add(time.Millisecond)
		one := on(user, large, 1)
		_, err := s.Take(t.Context(), one)
		require.NoError(t, err)
		charges = append(charges, one...)
	}
	return charges
}

// stat returns a number of the server's statistics of a command.
func stat(server *redistest.Server, command, name string) float64 {
	for line := range strings.Lines(server.Do("INFO", "commandstats").(string)) {
		if fields, ok := strings.CutPrefix(strings.TrimSpace(line), "cmdstat_"+command+":"); ok {
			for field := range strings.SplitSeq(fields, ",") {
				if text, ok := strings.CutPrefix(field, name+"="); ok {
					n, _ := strconv.ParseFloat(text, 64)
					return n
				}
			}
		}
	}
	return 0
}

// serverTime returns the server's time for one script call, in microseconds: the mean
// of some, in the best of a few rounds.
func serverTime(t testing.TB, server *redistest.Server, calls int, call func(i int)) float64 {
	t.Helper()
	best := math.Inf(1)
	for round := range 5 {
		server.Do("CONFIG", "RESETSTAT")
		for i := range calls {
			call(round*calls + i)
		}
		best = min(best, stat(server, "evalsha", "usec")/stat(server, "evalsha", "calls"))
	}
	return best
}

func newClocked(t testing.TB) (*redistest.Server, *redisstore.Store, *time.Time) {
	t.Helper()
	server, clock := redistest.Start(t), time.Unix(1_800_000_000, 0)
	return server, newStore(t, newClient(t, server.Network, server.Addr), redisstore.Config{
		Timeout: patient, Now: func() time.Time { return clock }}), &clock
}

func TestStore_WhatACallCostsTheServer(t *testing.T) {
	server, s, clock := newClocked(t)
	charges := fillLog(t, s, clock, "log", 9_999)
	reserved := on("bucket", limiter.PerDay(1_000_000), 5000)
	allowed(t, s, reserved)
	settled := func(c limiter.Charge, delta int64) {
		c.Cost = delta
		require.NoError(t, s.Settle(t.Context(), []limiter.Charge{c}))
	}
	taken := func(user string, l limiter.Limit, cost int64, want limiter.Outcome) {
		d, err := s.Take(t.Context(), on(user, l, cost))
		require.NoError(t, err)
		require.Equal(t, want, d.Outcome)
	}
	cost := map[string]float64{}
	for name, call := range map[string]func(i int){
		"bucket, take":   func(int) { taken("bucket", limiter.PerDay(1_000_000), 1, limiter.Allow) },
		"bucket, deny":   func(int) { taken("bucket", limiter.PerDay(1_000_000), 999_999, limiter.Deny) },
		"bucket, settle": func(i int) { settled(reserved[0], int64(i%2*2-1)) },
		"log, deny":      func(int) { taken("log", large, 2, limiter.Deny) },
		"log, settle":    func(i int) { settled(charges[4999-i/2], int64(i%2*2-1)) },
	} {
		cost[name] = serverTime(t, server, 40, call)
	}
	cost["log, take"] = serverTime(t, server, 40, func(int) {
		*clock = clock.Add(time.Millisecond)
		taken("log of few", large, 1, limiter.Allow)
	})
	t.Logf("server time, us: %v", cost)
}

func TestStore_WhatAnAccountTakesOfTheServersMemory(t *testing.T) {
	server, s := run(t)
	of := func(key limiter.Key, l limiter.Limit) float64 {
		allowed(t, s, []limiter.Charge{{Key: key, Limit: l, Cost: 1}})
		return float64(server.Do("MEMORY", "USAGE", redisstore.KeyFor(redisstore.Config{}, key)).(int64))
	}
	alice := limiter.Principal{Kind: "user", Tenant: "acme", ID: "alice"}
	org := of(limiter.Key{Budget: "org", Principal: limiter.Principal{Tenant: "acme"}}, limiter.PerDay(100_000))
	user := of(limiter.Key{Budget: "user", Principal: alice}, limiter.PerMinute(100))
	route := of(limiter.Key{Budget: "orders", Principal: alice, Route: "GET /orders/{id}"}, limiter.PerHour(1000))
	lone := of(limiter.Key{Budget: "user", Principal: limiter.Principal{Kind: "user", ID: "bob"}}, limiter.PerMinute(100))
	window := of(limiter.Key{Budget: "window", Principal: alice}, limiter.Limit{Tokens: 100, Per: time.Hour, Algorithm: limiter.FixedWindow})
	log := of(limiter.Key{Budget: "log", Principal: alice}, limiter.Limit{Tokens: 100, Per: time.Hour, Algorithm: limiter.RollingLog})
	t.Log(fmt.Sprint(org, user, route, lone, window, log), (org+user+route)/3)
	assert.LessOrEqual(t, user, 160.)
	assert.LessOrEqual(t, (org+user+route)/3, 200.)
}
