package grpcinterceptor

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc"

	"github.com/ration-go/ration/limiter"
)

// metered is a stream each of whose received messages is charged, to the caller
// who has opened it. The open has paid 1 of what the first one costs.
type metered struct {
	admitted
	interceptor *Interceptor
	caller      limiter.Caller
	held        *hold // what the open, then the last message, has reserved; or nil
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
	if !s.received && cost >= 0 {
		return s.chargeFirst(cost)
	}
	d, r, err := i.take(s.ctx, s.caller, cost, i.cfg.settles())
	if r != nil && s.held != nil && r.Decision.Allowed() {
		s.held.Store(&reserved{Reservation: r, cost: cost})
	}
	no := i.judge(s.ctx, route, d, err)
	if s.received {
		return no.final()
	}
	return no
}

// chargeFirst charges a first message what the open has not paid of it. The open
// stays paid whatever becomes of the message, since the handler has run; so only
// the rest of the cost is asked for. What the caller is told is of the cost as a
// whole, which is what a new stream with that message has to pay: never where no
// account can hold it, though the rest may fit, and else the wait for all of it.
func (s *metered) chargeFirst(cost int64) *refusal {
	paid, open := s.opened()
	i, rest := s.interceptor, cost-paid
	if rest <= 0 {
		return nil
	}
	whole, failed := i.limiter.Peek(s.ctx, s.caller, cost)
	if failed == nil && whole.Outcome == limiter.Never {
		rest = cost
	}
	r, err := i.limiter.ReserveMore(s.ctx, s.caller, rest)
	d := r.Decision
	if s.held != nil && err == nil && d.Allowed() {
		s.held.Store(&reserved{Reservation: r, cost: cost, open: open})
	}
	if failed == nil && err == nil && d.Outcome == limiter.Deny && whole.Outcome == limiter.Deny {
		d = whole
	}
	return i.judge(s.ctx, s.caller.Route, d, err)
}

// opened returns what the open has paid of the first message, and its reservation
// where it may be settled: nothing, once the handler has said what the open cost
// by itself.
func (s *metered) opened() (paid int64, open *limiter.Reservation) {
	if s.held == nil {
		return 1, nil
	}
	if r := s.held.Load(); !r.settled.Load() {
		return 1, r.Reservation
	}
	return 0, nil
}
