package redisstore_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/lab/redistest"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/redisstore"
)

// A server that evicts used-up accounts makes them full. The package comment says which
// policies do that; the used-up accounts here are the oldest keys, and those that live
// longest.
func TestStore_WhichPoliciesGiveUsedUpAccountsBack(t *testing.T) {
	t.Parallel()
	for policy, gives := range map[string]bool{
		"noeviction": false, "volatile-ttl": false,
		"volatile-lru": true, "allkeys-lru": true, "volatile-lfu": true, "allkeys-lfu": true,
		"volatile-random": true, "allkeys-random": true,
	} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, "--maxmemory", "4mb", "--maxmemory-policy", policy)
			s := newStore(t, newClient(t, server.Network, server.Addr), redisstore.Config{Timeout: patient})
			const accounts = 500
			daily := limiter.PerDay(1)
			for i := range accounts {
				allowed(t, s, on(fmt.Sprint(i), daily, 1))
			}
			// Their callers have been away for ten minutes.
			server.Do("EVAL", `for _, key in ipairs(redis.call('KEYS', 'ration:*')) do
				redis.call('RESTORE', key, redis.call('PTTL', key), redis.call('DUMP', key),
					'REPLACE', 'IDLETIME', 600) end`, 0)
			// Other accounts, as strangers make them: they expire within the hour.
			server.Do("EVAL", `for i = 1, 40000 do redis.pcall('SET', 'ration:stranger' .. i,
				string.rep('x', 50), 'EX', 3600) end`, 0)
			full := 0
			for i := range accounts {
				d, err := s.Peek(t.Context(), on(fmt.Sprint(i), daily, 1))
				require.NoError(t, err)
				if d.Allowed() {
					full++
				}
			}
			t.Logf("%s: %d of %d used-up accounts are full again", policy, full, accounts)
			assert.Equal(t, gives, full > accounts/4)
			assert.True(t, gives || full == 0)
		})
	}
}
