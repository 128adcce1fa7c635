package redisstore

import (
	"context"
	"time"
)

// connectTimeout bounds what calls do not wait for, connectors is how many do so at
// once, and connectPause is the least time from one to the next.
const (
	connectTimeout = time.Second
	connectors     = 2
	connectPause   = 50 * time.Millisecond
)

// connect leaves the client with a connection that the next call can use, after a
// call in a caller's own goroutine has timed out: the call breaks off what it begins,
// so that if a connection takes longer than a call has, none would ever be made.
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
	if !s.breaker.Probe(s.elapsed()) {
		return
	}
	go func() {
		answers := false
		defer func() { s.breaker.Probed(answers) }()
		answers = s.reach()
	}()
}

// reach makes a connection if there is none, and reports whether the server replies
// in time. It is a call that is late already, on no account: all that it does is
// answer, and leave the server with the script.
func (s *Store) reach() bool {
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	o := guarded(func() outcome { return s.try(ctx, &call{}) })
	return o.replied() && o.took <= int64(s.timeout)
}
