package resilient_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/resilient"
)

// A request that meets its limiter several times pays each account once and is counted
// once, and one Settle corrects all of it, however often outages begin and end in between.
func TestAdapter_MountsAcrossOutages(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 16))
		answers := 0
		p := newProcessWith(t, newShared(t), limiter.Config{Logger: quiet, Observer: limiter.Observer{
			Answered: func(limiter.RequestEvent) { answers++ },
		}}, resilient.Config{Replicas: func() int { return 1 }},
			limiter.Budget{Name: "a", Limit: slow, OnError: limiter.Local},
			limiter.Budget{Name: "each", Limit: slow, OnError: limiter.Local, PerRequest: true},
			limiter.Budget{Name: "open", Limit: slow, OnError: limiter.Open},
			limiter.Budget{Name: "shadow", Limit: slow, OnError: limiter.Local, Shadow: true})
		for range 4 {
			_, err := p.Adapter().Setup("test", true, nil)
			require.NoError(t, err)
		}
		used := func(budget string) (sum int64) {
			for _, s := range []limiter.Store{p.shared.Store, p.local.Store} {
				d, err := s.Peek(background, []limiter.Charge{{Key: limiter.Key{Budget: budget}, Limit: slow}})
				require.NoError(t, err)
				sum += slow.Tokens - d.Remaining
			}
			return sum
		}
		settled := int64(0)
		for request := range int64(5) {
			ctx, dearest := background, int64(0)
			for range 1 + random.IntN(4) {
				p.shared.down.Store(random.IntN(2) == 0)
				r := limiter.Request{Transport: "test", Cost: random.Int64N(10), Settles: true}
				ctx, _ = p.Adapter().Take(ctx, &r)
				require.True(t, r.Decision.Allowed())
				dearest = max(dearest, r.Cost)
			}
			require.Equal(t, settled+dearest, used("a"), "seed %d", seed)
			require.Equal(t, request+1, used("each"), "seed %d", seed)

			actual := random.Int64N(14)
			err := error(errDown)
			for failed := (*limiter.StoreError)(nil); errors.As(err, &failed); {
				p.shared.down.Store(random.IntN(2) == 0)
				err = limiter.Settle(ctx, actual)
			}
			require.NoError(t, err)
			settled += actual
			require.Equal(t, settled, used("a"), "seed %d", seed)
			require.Equal(t, request+1, used("each"), "seed %d", seed)
		}
		require.Equal(t, 5, answers)
	}
}
