// Package breaker decides when a server that does not answer is no longer asked, and
// when it is tried again.
//
// It counts calls, not requests, and opens by silence: if for a whole timeout no call
// was answered in time, and at least [Least] were not. Any reply in time starts the
// count again, whatever it says, because a server that replies is not hung. While the
// breaker is open, nothing is sent but probes, and those only when somebody asks.
package breaker

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// The numbers of a [Breaker].
const (
	Least      = 3                      // calls without an answer
	Probes     = 2                      // at most, at once
	MaxPause   = 150 * time.Millisecond // from the start of a probe to the next
	firstPause = 10 * time.Millisecond
)

// Breaker is open while a server does not answer. Instants are nanoseconds on any
// clock that does not go back. It is safe for concurrent use; the zero Breaker is not
// usable, see [New].
type Breaker struct {
	timeout int64
	open    atomic.Bool
	quiet   atomic.Bool // a call has had no answer

	mu     sync.Mutex
	missed int   // calls without an answer, since the last answer
	since  int64 // when the first of them began
	probes int   // outstanding
	next   int64 // when the next probe may begin
	pause  int64
}

// New returns a closed breaker for a server that has so much time for an answer.
func New(timeout time.Duration) *Breaker { return &Breaker{timeout: int64(timeout)} }

// Open reports whether nothing is to be sent.
func (b *Breaker) Open() bool { return b.open.Load() }

// Answered notes a reply in time. It closes the breaker.
func (b *Breaker) Answered() {
	if !b.quiet.Load() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.missed = 0
	b.open.Store(false)
	b.quiet.Store(false)
}

// Missed notes that a call had no answer in time, and reports whether that opened the
// breaker.
func (b *Breaker) Missed(began, now int64) (opened bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.quiet.Store(true)
	if b.missed++; b.missed == 1 {
		b.since = began
	}
	b.since = min(b.since, began)
	if b.open.Load() || b.missed < Least || now-b.since < b.timeout {
		return false
	}
	b.next, b.pause = now, int64(firstPause)
	b.open.Store(true)
	return true
}

// Probe reports whether a probe may begin. If it does, call [Breaker.Probed] when the
// probe ends. Pauses double, with jitter, up to [MaxPause].
func (b *Breaker) Probe(now int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.open.Load() || b.probes >= Probes || now < b.next {
		return false
	}
	b.probes++
	b.next = now + b.pause/2 + rand.Int64N(b.pause/2+1)
	b.pause = min(2*b.pause, int64(MaxPause))
	return true
}

// Probed notes the end of a probe; an answer in time closes the breaker.
func (b *Breaker) Probed(answered bool) {
	b.mu.Lock()
	b.probes--
	b.mu.Unlock()
	if answered {
		b.Answered()
	}
}
