package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/lab/redistest"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/redisstore"
)

// A value of which bits have changed or a part is missing is an account, or an error that
// names its key and ends by itself: not one of the whole batch, and not one that stays.
func TestStore_DamagedValuesAreErrorsOfTheirAccount(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	now := time.Unix(1_800_000_000, 0)
	s := newStore(t, newClient(t, server.Network, server.Addr),
		redisstore.Config{Timeout: patient, Now: func() time.Time { return now }})
	r := rand.New(rand.NewPCG(20, 20))
	log := limiter.Limit{Tokens: 300, Per: time.Hour, Algorithm: limiter.RollingLog}
	window, bucket := log, log
	window.Algorithm, bucket.Algorithm = limiter.FixedWindow, limiter.TokenBucket
	for n, limit := range []limiter.Limit{1: log, 2: bucket, 3: window, 7: log, 70: log} {
		if limit.Tokens == 0 {
			continue
		}
		user := fmt.Sprint(n)
		if n == 7 { // made from a bucket
			allowed(t, s, on(user, bucket, 10))
		}
		var taken []limiter.Charge
		for i := range n {
			now = now.Add(time.Second)
			taken = on(user, limit, 1+int64(i%3))
			allowed(t, s, taken)
		}
		value := server.Do("GET", keyOf(user)).(string)
		try := func(what string, damaged []byte) {
			for _, cost := range []int64{5, 300, 0, -1} {
				server.Do("SET", keyOf(user), string(damaged))
				failed := false // the last time
				for range 3 {
					var err error
					var d limiter.Decision
					switch cost {
					case -1:
						c := slices.Clone(taken)
						c[0].Cost = -1
						err = s.Settle(t.Context(), c)
					case 0:
						d, err = s.Peek(t.Context(), on(user, limit, 300))
					default:
						d, err = s.Take(t.Context(), on(user, limit, cost))
					}
					if err != nil {
						require.ErrorContains(t, err, keyOf(user), "%s: %q", what, damaged)
						newer := damaged[0] > 2 && damaged[0] < 32
						require.False(t, failed && cost != 0 && !newer, "%s: %q: %v", what, damaged, err)
					}
					failed = err != nil
					assert.LessOrEqual(t, d.Remaining, int64(300))
				}
			}
		}
		for at := range len(value) {
			if at > 50 && at < len(value)-60 && r.IntN(8) > 0 {
				continue
			}
			b := []byte(value)
			b[at] ^= 1 << r.IntN(8)
			try("a bit", b)
		}
		for range 30 {
			cut := 1 + r.IntN(len(value)-1)
			try("the end is missing", []byte(value[:cut]))
			try("the beginning is missing", []byte(value[cut:]))
			b := []byte(value)
			for at := cut; at < min(cut+8, len(b)); at++ {
				b[at] = 0xff
			}
			try("eight bytes", b)
			for range 4 {
				b[2+r.IntN(len(b)-2)] = byte(r.IntN(256))
			}
			try("any bytes", b)
		}
	}
}
