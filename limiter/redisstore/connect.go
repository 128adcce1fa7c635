package redisstore

import (
	"context"
	"time"

	"github.com/ration-go/ration/internal/breaker"
)

const (
	// connectTimeout is how long a call may last for the sake of its connection, after
	// its requests have been answered, and how long a short probe lasts.
	connectTimeout = time.Second
	// holdTimeout is how long a held probe waits for its reply.
	holdTimeout = time.Minute
)

// connect leaves the client with a connection that the next call can use. It follows
// a call in a caller's own goroutine that has timed out: the deadline of such a call
// also ends its dial, so if dialing takes longer, no call would ever get a connection.
//
// Only a call that a caller made begins this. It is one attempt: if it fails, the
// next begins with the next such call, after a pause. If the server is hung, it is the
// first probe.
func (s *Store) connect() { s.begin(s.combiner.breaker.Connect(s.elapsed())) }

// probe asks whether the server answers again, if it is time to: at the request of a
// caller, who does not wait for it.
func (s *Store) probe() { s.begin(s.combiner.breaker.Probe(s.elapsed())) }

// begin makes a probe, if there is one to make, in a goroutine.
func (s *Store) begin(p breaker.Probe) {
	if p == breaker.None {
		return
	}
	go func() {
		result := breaker.Failed
		defer func() { s.combiner.breaker.Probed(p, result, s.elapsed()) }()
		result = s.reach(p)
	}()
}

// reach makes a connection if there is none, and calls the server. If it replies late,
// as it does after a pause, it is called again at once.
func (s *Store) reach(p breaker.Probe) breaker.Result {
	limit := max(connectTimeout, s.timeout)
	if p == breaker.Held && s.holds {
		limit = max(holdTimeout, s.timeout)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	result, late := s.tryProbe(ctx)
	if late && p == breaker.Held {
		result, _ = s.tryProbe(ctx)
	}
	return result
}

// tryProbe makes a call that is late already, on no account, so that it does nothing.
// It also reports whether there was a late reply.
func (s *Store) tryProbe(ctx context.Context) (_ breaker.Result, late bool) {
	b := &call{began: s.elapsed()}
	o := guarded(func() outcome { return s.try(ctx, b) })
	switch {
	case o.replied() && o.took <= int64(s.timeout):
		return breaker.Answered, false
	case o.replied():
		return breaker.Failed, true
	}
	s.combiner.failed(o.err)
	if b.sent || isDialError(o.err) || !timedOut(o.err) || s.combiner.crowded() {
		return breaker.Failed, false
	}
	return breaker.Abandoned, false
}
