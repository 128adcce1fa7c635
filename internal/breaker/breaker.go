// Package breaker decides when a server that does not answer is no longer asked, and
// when it is probed.
//
// It counts calls, not requests, and opens by silence: if for a whole timeout no call
// was answered in time, and at least [Least] were not. Any reply in time starts the
// count again, whatever it says, because a server that replies is not hung. While the
// breaker is open, nothing is sent but probes, and those only when somebody asks.
//
// The kernel of a hung process still accepts connections, and keeps those that clients
// give up. So one probe is [Held]: it keeps its connection and waits, because a reply,
// however late, shows that the server is back. Beside it, [Short] probes try other
// connections, in case that one is dead. A server that refuses connections is probed by
// one probe after the other.
package breaker

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// The numbers of a [Breaker].
const (
	Least        = 3                      // calls without an answer
	MaxPause     = 150 * time.Millisecond // between probes that leave nothing behind
	MaxLongPause = 30 * time.Second       // after Short probes that leave a connection behind

	firstPause     = 10 * time.Millisecond
	connectPause   = 50 * time.Millisecond
	firstLongPause = 500 * time.Millisecond // also from the start of Held to the first Short
	longPauseGrows = 4
)

// Probe is one attempt to get an answer.
type Probe uint8

// The probes of which at most one each is outstanding.
const (
	None  Probe = iota // no probe may begin
	Held               // waits for its reply as long as it can
	Short              // waits for a moment
)

// Result is how a probe ended.
type Result uint8

// The results of a probe.
const (
	Answered  Result = iota // by a reply in time
	Failed                  // by an error or a late reply
	Abandoned               // without either: its connection may wait at the server
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

	held      bool // outstanding
	next      int64
	pause     int64
	short     bool // outstanding
	nextShort int64
	longPause int64
}

// New returns a closed breaker for a server that has so much time for an answer.
func New(timeout time.Duration) *Breaker {
	return &Breaker{timeout: int64(timeout), pause: int64(firstPause), longPause: int64(firstLongPause)}
}

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
	b.next, b.pause, b.longPause = now, int64(firstPause), int64(firstLongPause)
	b.nextShort = min(b.nextShort, now+b.longPause)
	b.open.Store(true)
	return true
}

// Probe returns which probe is to begin now. Call [Breaker.Probed] when it ends.
func (b *Breaker) Probe(now int64) Probe {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !b.open.Load():
		return None
	case !b.held && now >= b.next:
		b.next = now + jitter(b.pause)
		b.pause = min(2*b.pause, int64(MaxPause))
		return b.hold(now)
	case b.held && !b.short && now >= b.nextShort:
		b.short = true
		return Short
	default:
		return None
	}
}

// Connect is Probe for a caller that wants a connection, though the breaker is closed.
func (b *Breaker) Connect(now int64) Probe {
	if b.Open() {
		return b.Probe(now)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held || now < b.next {
		return None
	}
	b.next = now + int64(connectPause)
	return b.hold(now)
}

func (b *Breaker) hold(now int64) Probe {
	b.held = true
	b.nextShort = max(b.nextShort, now+int64(firstLongPause))
	return Held
}

// jitter returns something between the half and the whole of a pause.
func jitter(pause int64) int64 { return pause/2 + rand.Int64N(pause/2+1) }

// Probed notes the end of a probe. An answer in time closes the breaker.
func (b *Breaker) Probed(p Probe, r Result, now int64) {
	b.mu.Lock()
	switch {
	case p == Held:
		b.held = false
	case r == Abandoned:
		b.longPause = min(longPauseGrows*b.longPause, int64(MaxLongPause))
		b.short, b.nextShort = false, now+b.longPause
	default:
		b.short, b.nextShort = false, now+jitter(int64(MaxPause))
	}
	b.mu.Unlock()
	if r == Answered {
		b.Answered()
	}
}
