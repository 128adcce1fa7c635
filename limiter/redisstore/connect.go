package redisstore

import (
	"context"
	"time"
)

// connectTimeout bounds what calls do not wait for, and connectors is how many do
// so at once.
const (
	connectTimeout = 5 * time.Second
	connectors     = 8
)

// connect leaves the client with a connection that the next call can use. A client
// that keeps the deadlines of calls breaks off what they begin: where a
// connection takes longer than a call has, none would ever be made. It asks for
// the server's clock, and so leaves the server with the script, too.
func (s *Store) connect() {
	if s.connecting.Add(1) > connectors {
		s.connecting.Add(-1)
		return
	}
	go func() {
		defer s.connecting.Add(-1)
		ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
		defer cancel()
		// A call that is late already, on no account: all that it does is answer.
		late := &call{store: s, verb: peek}
		late.guarded(ctx)
	}()
}
