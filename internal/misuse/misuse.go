// Package misuse notices that a limiter is mounted where it cannot work.
package misuse

import (
	"math"
	"sync"
	"sync/atomic"
)

// Patience is how many requests in a row have to lack what each is expected to
// have before that is misuse.
const Patience = 100

// Streak counts the misses from the first request on, until there is a hit. The
// zero Streak is ready for use, by many goroutines.
type Streak struct {
	misses atomic.Int64
}

// Hit ends the streak for good.
func (s *Streak) Hit() {
	if s.misses.Load() >= 0 {
		s.misses.Store(math.MinInt64)
	}
}

// Miss reports, once in the life of s, that as many requests have missed as
// patience allows and none has hit.
func (s *Streak) Miss() bool {
	return s.misses.Load() >= 0 && s.misses.Add(1) == Patience
}

// Once remembers which codes were logged. The zero Once is ready for use, by many
// goroutines.
type Once struct {
	logged sync.Map
}

// First reports, once for each code, that it was not logged before.
func (o *Once) First(code string) bool {
	_, logged := o.logged.LoadOrStore(code, struct{}{})
	return !logged
}
