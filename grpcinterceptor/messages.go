package grpcinterceptor

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ration-go/ration/limiter"
)

// metered is a stream whose messages are charged to the caller who opened it. The open
// has paid 1 of the cost of the first received message.
type metered struct {
	admitted
	outer       *metered // the next one outside
	interceptor *Interceptor
	caller      limiter.Caller
	receives    bool // received messages are charged
	sends       bool // sent messages are charged, and what the handler says
	received    int  // messages; RecvMsg has one goroutine at a time
	cancel      context.CancelCauseFunc
	refused     atomic.Pointer[refusal] // of the first message that could not pay
}

type meteredKey struct{}

func meteredFrom(ctx context.Context) *metered {
	s, _ := ctx.Value(meteredKey{}).(*metered)
	return s
}

// meters sets which messages of a stream this interceptor charges: those that no outer
// interceptor of the same limiter charges to the same principal.
func (s *metered) meters() bool {
	cfg := &s.interceptor.cfg
	s.receives, s.sends = cfg.Messages, cfg.SentCost != nil
	for o := s.outer; o != nil; o = o.outer {
		if o.interceptor.adapter == s.interceptor.adapter && o.caller.Principal == s.caller.Principal {
			s.receives, s.sends = s.receives && !o.receives, s.sends && !o.sends
		}
	}
	return s.receives || s.sends
}

// meter returns the stream for the handler of an admitted call, whose messages are
// charged, or nil if none are.
func (i *Interceptor) meter(
	stream grpc.ServerStream, ctx context.Context, r *limiter.Request,
) *metered {
	if !i.cfg.meters() {
		return nil
	}
	s := &metered{outer: meteredFrom(ctx), interceptor: i, caller: r.Caller}
	if !r.Skip && !s.meters() {
		return nil
	}
	ctx, s.cancel = context.WithCancelCause(context.WithValue(ctx, meteredKey{}, s))
	s.admitted = admitted{stream, ctx}
	return s
}

// run runs the handler. A refused message ends the stream, whatever the handler returns.
func (s *metered) run(srv any, handler grpc.StreamHandler) error {
	defer s.cancel(nil)
	err := handler(srv, s)
	if refused := s.refused.Load(); refused != nil {
		return refused.end(s.ServerStream)
	}
	return err
}

// RecvMsg receives and charges the next message. Once one was refused, RecvMsg and
// SendMsg return its status, and the context is done.
func (s *metered) RecvMsg(msg any) error {
	if refused := s.refused.Load(); refused != nil {
		return refused.status.Err()
	}
	if err := s.ServerStream.RecvMsg(msg); err != nil || !s.receives {
		return err
	}
	s.received++
	refused := s.charge(s.received, s.interceptor.cfg.Cost(s.ctx, s.caller.Route, msg))
	if s.received > 1 {
		// A retry would pay for all messages again.
		refused = refused.final()
	}
	return s.end(refused)
}

// SendMsg charges and sends a message, unless one was refused.
func (s *metered) SendMsg(msg any) error {
	if refused := s.refused.Load(); refused != nil {
		return refused.status.Err()
	}
	if s.sends {
		if err := s.pay(s.interceptor.cfg.SentCost(s.ctx, s.caller.Route, msg)); err != nil {
			return err
		}
	}
	return s.ServerStream.SendMsg(msg)
}

// Charge charges the caller of a stream for what its handler is about to send, such as a
// token of a language model. ctx is the context of the stream, and [Config.SentCost] must
// be set. If the cost cannot be paid, the stream ends with the refusal that Charge
// returns, whatever the handler returns, with pushback -1. A free stream costs nothing.
//
// If several limiters meter the stream, the innermost is charged first, and those further
// out only if it could pay. Charge may be called by several goroutines.
func Charge(ctx context.Context, cost int64) error {
	configured := false
	for s := meteredFrom(ctx); s != nil; s = s.outer {
		if refused := s.refused.Load(); refused != nil {
			return refused.status.Err()
		}
		configured = configured || s.interceptor.cfg.SentCost != nil
		if !s.sends {
			continue
		}
		if err := s.pay(cost); err != nil {
			return err
		}
	}
	if !configured {
		return errNotMetered
	}
	return nil
}

// errNotMetered is the error of Charge if nobody would pay.
var errNotMetered = status.Error(codes.Internal,
	"grpcinterceptor: Charge needs the context of a stream and Config.SentCost")

// sentMessage is the Request.Message of what the handler sends. Settle does not correct it.
const sentMessage = -1

// pay charges what the handler sends.
func (s *metered) pay(cost int64) error {
	if cost == 0 {
		return nil
	}
	return s.end(s.charge(sentMessage, cost).final())
}

// charge charges a message and returns nil or the refusal.
func (s *metered) charge(number int, cost int64) *refusal {
	i := s.interceptor
	var r limiter.Request // filled in place, since a literal would be copied
	r.Transport, r.Caller, r.Message, r.Cost = transport, s.caller, number, cost
	r.Settles = i.cfg.Settles && number != sentMessage
	_, err := i.adapter.Take(s.ctx, &r)
	return i.refusal(s.ctx, &r, err)
}

// end ends the stream if it was refused. It returns the first refusal.
func (s *metered) end(refused *refusal) error {
	if refused == nil {
		return nil
	}
	if !s.refused.CompareAndSwap(nil, refused) {
		refused = s.refused.Load()
	}
	err := refused.status.Err()
	s.cancel(err)
	return err
}
