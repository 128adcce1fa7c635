package memstore_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
)

// Peek says what Take would say (R8), also if a share is used up and full accounts are
// dropped to make room.
func TestPeek_SearchesAsTakeDoes(t *testing.T) {
	limits := []limiter.Limit{
		{Tokens: 10, Per: time.Hour}, {Tokens: 100, Per: time.Minute},
		{Tokens: 5, Per: time.Minute, Algorithm: limiter.RollingLog},
	}
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 8))
		now := time.Unix(1_800_000_000, 0)
		s := limiter.Must(memstore.New(memstore.Config{
			MaxAccounts: 8 << random.IntN(3), Now: func() time.Time { return now }}))
		budgets := []string{"a", "b", "c"}
		s.Capabilities().Plan(budgets, nil)
		for step := range 400 {
			if random.IntN(3) == 0 {
				now = now.Add(time.Duration(random.Int64N(int64(2 * time.Minute))))
			}
			principal := limiter.Principal{Kind: "user", ID: fmt.Sprint(random.IntN(30))}
			var peeked, taken []limiter.Charge
			for _, i := range random.Perm(len(budgets))[:1+random.IntN(len(budgets))] {
				peeked = append(peeked, limiter.Charge{
					Key:   limiter.Key{Budget: budgets[i], Principal: principal},
					Limit: limits[i], Cost: random.Int64N(3), Shadow: random.IntN(4) == 0})
			}
			taken = append(taken, peeked...)
			want, err := s.Peek(t.Context(), peeked)
			require.NoError(t, err)
			got, err := s.Take(t.Context(), taken)
			require.NoError(t, err)
			require.Equal(t, got, want, "seed %d, step %d", seed, step)
			for i := range taken {
				require.Equal(t, taken[i].Result, peeked[i].Result, "seed %d, step %d", seed, step)
			}
		}
	}
}
