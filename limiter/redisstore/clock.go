package redisstore

import (
	"math"
	"sync"
	"time"
)

// serverClock tells how the server's clock and this process's go together, from
// replies that say what the server's clock was between two local instants. All
// numbers are microseconds, the local ones since start.
type serverClock struct {
	start time.Time

	mu        sync.Mutex
	low, high int64 // server less local: between these
	known     bool
}

// local returns the local instant; it is monotonic.
func (c *serverClock) local(t time.Time) int64 { return t.Sub(c.start).Microseconds() }

// saw learns that the server's clock read server after sent and before received.
// Where that contradicts what is known, one of the clocks was set.
func (c *serverClock) saw(server int64, sent, received time.Time) {
	low, high := server-c.local(received)-1, server-c.local(sent)+1
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known && low <= c.high && c.low <= high {
		low, high = max(low, c.low), min(high, c.high)
	}
	c.low, c.high, c.known = low, high, true
}

// deadline returns what the server's clock reads at the local instant t, or
// somewhat before; the beginning of time where nothing is known yet, so that no
// script runs.
func (c *serverClock) deadline(t time.Time) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return math.MinInt64
	}
	return c.local(t) + c.low
}
