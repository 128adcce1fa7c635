package grpcinterceptor

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc"

	"github.com/ration-go/ration/limiter"
)

// metered is a stream whose received messages are charged to the caller who opened it.
// The open has paid 1 of the cost of the first message.
type metered struct {
	admitted
	interceptor *Interceptor
	caller      limiter.Caller
	received    int // messages; RecvMsg has one goroutine at a time
	cancel      context.CancelCauseFunc
	refused     atomic.Pointer[refusal] // of the first message that could not pay
}

// metering is a context key. It is set if the messages of a stream are charged to the
// principal.
type metering struct {
	adapter   *limiter.Adapter
	principal limiter.Principal
}

// chargesMessages reports whether an outer interceptor of the same limiter charges the
// messages of the principal.
func (i *Interceptor) chargesMessages(ctx context.Context, p limiter.Principal) bool {
	return ctx.Value(metering{i.adapter, p}) != nil
}

// meter runs the handler of an admitted stream and charges the messages that it
// receives. A refused message ends the stream, whatever the handler returns.
func (i *Interceptor) meter(
	srv any, stream grpc.ServerStream, ctx context.Context, r *limiter.Request,
	handler grpc.StreamHandler,
) error {
	ctx, cancel := context.WithCancelCause(
		context.WithValue(ctx, metering{i.adapter, r.Caller.Principal}, true))
	defer cancel(nil)
	s := &metered{admitted: admitted{stream, ctx}, interceptor: i, caller: r.Caller, cancel: cancel}
	err := handler(srv, s)
	if refused := s.refused.Load(); refused != nil {
		return refused.end(stream)
	}
	return err
}

// RecvMsg receives and charges the next message. Once one was refused, RecvMsg and
// SendMsg return its status, and the context is done.
func (s *metered) RecvMsg(msg any) error {
	if refused := s.refused.Load(); refused != nil {
		return refused.status.Err()
	}
	if err := s.ServerStream.RecvMsg(msg); err != nil {
		return err
	}
	refused := s.charge(msg)
	if refused == nil {
		return nil
	}
	s.refused.Store(refused)
	s.cancel(refused.status.Err())
	return refused.status.Err()
}

// SendMsg sends a message, unless a received one was refused.
func (s *metered) SendMsg(msg any) error {
	if refused := s.refused.Load(); refused != nil {
		return refused.status.Err()
	}
	return s.ServerStream.SendMsg(msg)
}

// charge charges a message and returns nil or the refusal. Only the refusal of the first
// message lets clients retry: after that, a retry would pay for all messages again.
func (s *metered) charge(msg any) *refusal {
	s.received++
	i := s.interceptor
	var r limiter.Request // filled in place, since a literal would be copied
	r.Transport, r.Caller, r.Message, r.Settles = transport, s.caller, s.received, i.cfg.Settles
	r.Cost = i.cfg.Cost(s.ctx, s.caller.Route, msg)
	_, err := i.adapter.Take(s.ctx, &r)
	refused := i.refusal(s.ctx, &r, err)
	if s.received > 1 {
		return refused.final()
	}
	return refused
}
