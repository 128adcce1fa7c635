//go:build faults

package redisstore_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ration-go/ration/internal/lab/redistest"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/redisstore"
)

// A caller that was denied asks 20,000 times a second from 4,000 goroutines: it gets
// nothing, and 200 others are decided.
func TestFaults_ADeniedCallerHarmsNobody(t *testing.T) {
	for _, trip := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond} {
		for _, warm := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/warm=%v", trip, warm), func(t *testing.T) {
				proxy := redistest.NewProxy(t, redistest.Start(t))
				proxy.Delay(trip)
				s := newStore(t, newClient(t, proxy.Network, proxy.Addr), redisstore.Config{})
				l := newLimiter(t, s, limiter.Limit{Tokens: 10, Per: time.Hour}, limiter.Closed)
				attacker := userCaller("attacker")
				for range 10 {
					_, _ = l.Take(t.Context(), attacker, 1)
				}
				if warm {
					_, _ = l.Take(t.Context(), attacker, 1)
				}
				var attack, others tally
				var group sync.WaitGroup
				const d = 3 * time.Second
				group.Go(func() {
					offer(4000, 20_000, d, func(int, int) { attack.ask(t.Context(), l, attacker) })
				})
				group.Go(func() {
					offer(200, 1000, d, func(g, n int) { others.ask(t.Context(), l, userCaller(fmt.Sprint(g, "-", n/5))) })
				})
				group.Wait()
				t.Logf("attacker: %v; others: %v; %d denied from memory", &attack, &others,
					s.Capabilities().DeniedFromMemory())
				assert.Zero(t, attack.allowed.Load())
				all := others.decided.Load() + others.failed.Load() + others.canceled.Load()
				assert.GreaterOrEqual(t, others.decided.Load()*100, all*99)
			})
		}
	}
}
