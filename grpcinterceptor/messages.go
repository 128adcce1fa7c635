package grpcinterceptor

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc"

	"github.com/ration-go/ration/limiter"
)

// metered is a stream each of whose received messages is charged, to the caller
// who has opened it. The open has paid 1 of the first one's cost.
type metered struct {
	admitted
	interceptor *Interceptor
	caller      limiter.Caller
	held        *hold // nil where costs are final
	received    bool  // a message; RecvMsg has one goroutine at a time
	cancel      context.CancelCauseFunc
	no          atomic.Pointer[refusal] // the first message that could not pay
}

// meter runs the handler of a stream that the mark has admitted. A refused
// message ends the stream with its refusal, whatever the handler makes of it.
func (i *Interceptor) meter(
	srv any, stream grpc.ServerStream, m *mark, handler grpc.StreamHandler,
) error {
	m.messages = true
	ctx, cancel := context.WithCancelCause(i.within(m))
	defer cancel(nil)
	s := &metered{
		admitted: admitted{stream, ctx}, interceptor: i, caller: m.caller, held: m.held,
		cancel: cancel,
	}
	err := handler(srv, s)
	if no := s.no.Load(); no != nil {
		return no.end(stream)
	}
	return err
}

// RecvMsg returns the next message, or the refusal of one that could not pay;
// from then on the context is done and no message passes in either direction.
func (s *metered) RecvMsg(msg any) error {
	if no := s.no.Load(); no != nil {
		return no.status.Err()
	}
	if err := s.ServerStream.RecvMsg(msg); err != nil {
		return err
	}
	no := s.charge(msg)
	s.received = true
	if no == nil {
		return nil
	}
	s.no.Store(no)
	s.cancel(no.status.Err())
	return no.status.Err()
}

// SendMsg sends a message, unless a received one was refused.
func (s *metered) SendMsg(msg any) error {
	if no := s.no.Load(); no != nil {
		return no.status.Err()
	}
	return s.ServerStream.SendMsg(msg)
}

// charge asks for the cost of a message, and reports the answer.
func (s *metered) charge(msg any) *refusal {
	i, route := s.interceptor, s.caller.Route
	cost := i.cfg.Cost(s.ctx, route, msg)
	if !s.received {
		return s.chargeFirst(cost)
	}
	d, held, err := i.take(s.ctx, s.caller, cost)
	s.hold(nil, held, cost)
	return i.judge(s.ctx, route, d, err).final()
}

// chargeFirst asks for what the first message costs beyond the 1 that the open
// has paid. Whoever is refused opens another stream and pays that 1 again, so
// the wait is for the whole cost.
func (s *metered) chargeFirst(cost int64) *refusal {
	if cost == 0 || cost == 1 {
		return nil
	}
	rest := cost
	if cost > 0 {
		rest--
	}
	i, l := s.interceptor, s.interceptor.limiter
	d, held, err := i.take(s.ctx, s.caller, rest)
	if s.held != nil {
		s.hold(s.held.Load().open, held, cost)
	}
	if err == nil && d.Outcome == limiter.Deny {
		if whole, err := l.Peek(s.ctx, s.caller, cost); err == nil && !whole.Allowed() {
			d = whole
		}
	}
	return i.judge(s.ctx, s.caller.Route, d, err)
}

// hold makes the stream hold what the message received last has reserved.
func (s *metered) hold(open, rest *limiter.Reservation, cost int64) {
	if s.held != nil && rest.Decision.Allowed() {
		s.held.Store(&reserved{open, rest, cost})
	}
}
