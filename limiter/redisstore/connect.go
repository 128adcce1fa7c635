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
// so that if a connection takes longer than a call has, none would ever be made. It
// asks for the server's clock, and so leaves the server with the script, too.
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
		ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
		defer cancel()
		// A call that is late already, on no account: all that it does is answer.
		guarded(func() outcome { return s.try(ctx, &call{}) })
	}()
}
