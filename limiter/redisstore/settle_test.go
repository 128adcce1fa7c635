package redisstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/redistest"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/redisstore"
)

// A server out of memory deletes still, but writes no more unless the script has
// written before: an account that a credit fills is deleted, and those that a
// credit does not fill are written.
func TestSettle_AServerOutOfMemoryCorrectsAllOrNone(t *testing.T) {
	server := redistest.Start(t)
	s := newStore(t, newClient(t, server.Network, server.Addr), redisstore.Config{Timeout: patient})
	for _, l := range each {
		l.Per = 24 * time.Hour
		for _, users := range [][2]string{{"filled", "other"}, {"other", "filled"}} {
			server.Do("FLUSHALL")
			allowed(t, s, on("other", l, 1))
			charges := append(on(users[0], l, 2), on(users[1], l, 2)...)
			allowed(t, s, charges)
			charges[0].Cost, charges[1].Cost = -2, -2

			server.Do("CONFIG", "SET", "maxmemory", "1")
			err := s.Settle(t.Context(), charges)
			server.Do("CONFIG", "SET", "maxmemory", "0")
			if err != nil {
				failed(t, err, limiter.Unavailable)
				assert.Equal(t, l.Capacity()-2, left(t, s, "filled", l), "%v, %v", l, users)
				assert.Equal(t, l.Capacity()-3, left(t, s, "other", l), "%v, %v", l, users)
				require.NoError(t, s.Settle(t.Context(), charges), "the receipts are valid still")
			}
			assert.Equal(t, l.Capacity(), left(t, s, "filled", l), "%v, %v", l, users)
			assert.Equal(t, l.Capacity()-1, left(t, s, "other", l), "%v, %v", l, users)
		}
	}
}
