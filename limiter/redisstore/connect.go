package redisstore

import (
	"context"
	"time"
)

// connectTimeout is the longest that an attempt beside the calls takes. At most
// connectors run at once, and one begins at most every connectPause.
const (
	connectTimeout = time.Second
	connectors     = 2
	connectPause   = 50 * time.Millisecond
)

// connect leaves the client with a connection that the next call can use. It follows
// a call in a caller's own goroutine that has timed out: the deadline of such a call
// also ends its dial, so if dialing takes longer, no call would ever get a connection.
//
// Only a call that a caller made begins this. It is one attempt: if it fails, the
// next begins with the next such call, after the pause.
func (s *Store) connect() {
	now, last := s.clock.local(time.Now()), s.connectedAt.Load()
	if last > 0 && now-last < connectPause.Microseconds() ||
		!s.connectedAt.CompareAndSwap(last, max(now, 1)) {
		return
	}
	if s.connecting.Add(1) > connectors {
		s.connecting.Add(-1)
		return
	}
	go func() {
		defer s.connecting.Add(-1)
		s.reach()
	}()
}

// probe asks whether the server answers again, if it is time to: at the request of a
// caller, who does not wait for it.
func (s *Store) probe() {
	if !s.combiner.breaker.Probe(s.elapsed()) {
		return
	}
	go func() {
		answers := false
		defer func() { s.combiner.breaker.Probed(answers) }()
		answers = s.reach()
	}()
}

// reach makes a connection if there is none, and reports whether the server replies
// in time. It is a call that is late already, on no account, which does nothing.
func (s *Store) reach() bool {
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	o := guarded(func() outcome { return s.try(ctx, &call{}) })
	return o.replied() && o.took <= int64(s.timeout)
}
