package redisstore

import (
	"context"
	"time"
)

// connectTimeout bounds what calls do not wait for.
const connectTimeout = 5 * time.Second

// connect leaves the client with a connection that the next call can use. A client
// that keeps the deadlines of calls breaks off what they begin: where a
// connection takes longer than a call has, none would ever be made. It asks for
// the server's clock, and so leaves it with the script, too. One goroutine at a
// time does so.
func (s *Store) connect() {
	if s.connecting.Swap(true) {
		return
	}
	go func() {
		defer s.connecting.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
		defer cancel()
		// A call that is late already, on no account: all that it does is answer.
		late := &call{store: s, verb: peek}
		late.guarded(ctx)
	}()
}
