package resilient

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/ration-go/ration/limiter"
)

// shares computes what one of several processes may admit by itself.
type shares struct {
	maxCost  int64
	replicas *replicas
}

// of returns this process's share of a limit. All shares together refill as fast as the
// limit. The capacity must not follow the cost of a request, because each change of a
// capacity could admit more.
func (s *shares) of(l limiter.Limit, perRequest bool) (limiter.Limit, error) {
	n := s.replicas.get()
	if n == 0 {
		return limiter.Limit{}, wrong("Config.Replicas", nil,
			"it has not returned a number of processes yet: want at least 1")
	}
	least := s.maxCost
	if perRequest {
		least = 1
	}
	if l.Algorithm != limiter.TokenBucket {
		l.Tokens = ceilDiv(l.Tokens, n)
		l.Burst = 0
		return l, nil
	}
	capacity := l.Capacity()
	l.Burst = min(capacity, max(ceilDiv(capacity, n), least))
	// Tokens/(Per*n), in lowest terms of Tokens and n.
	common := gcd(l.Tokens, n)
	if n /= common; int64(l.Per) > math.MaxInt64/n {
		return limiter.Limit{}, wrong("Limit.Per", l.Per, "the share refills too slowly")
	}
	l.Tokens, l.Per = l.Tokens/common, l.Per*time.Duration(n)
	return l, nil
}

// ceilDiv returns a/b rounded up; a and b are above 0.
func ceilDiv(a, b int64) int64 { return (a-1)/b + 1 }

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// replicas remembers the number of processes. The hook is called with no lock held.
type replicas struct {
	hook  func() int
	start time.Time
	due   atomic.Int64 // when the hook may be called next, in nanoseconds since start
	last  atomic.Int64 // its last good value; 0: none
}

// running is the due of a hook that has not returned.
const running = math.MaxInt64

func newReplicas(hook func() int) *replicas {
	r := &replicas{hook: hook, start: time.Now()}
	r.get()
	return r
}

// get returns the number of processes, or 0 if it is not known.
func (r *replicas) get() int64 {
	now, due := int64(time.Since(r.start)), r.due.Load()
	if now >= due && r.due.CompareAndSwap(due, running) {
		r.read()
	}
	return r.last.Load()
}

func (r *replicas) read() {
	defer func() {
		_ = recover() // its last good value counts
		r.due.Store(int64(time.Since(r.start) + time.Second))
	}()
	if n := r.hook(); n >= 1 {
		r.last.Store(int64(n))
	}
}
