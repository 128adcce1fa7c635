package grpcinterceptor

import (
	"context"
	"strconv"
	"time"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ration-go/ration/internal/rpcstatus"
	"github.com/ration-go/ration/limiter"
)

// refusal is the answer to a call that is refused.
type refusal struct {
	status   *status.Status
	pushback string // milliseconds, or -1; empty if there is none
	seconds  string // of the trailer retry-after; empty if there is none
}

// Refuse returns the status error with which the interceptors refuse a call, and sets the
// trailer of the call. It is for a handler that has charged its call by itself and was
// refused: d and err are what [limiter.Limiter.Take] returned. The handler returns the
// error. It names no budget, because it cannot know whether the caller may see it.
//
// If the handler of a stream has received several messages or sent any, a retry would
// repeat them; return the error of [Interceptor.Status] instead, which sets no trailer.
// So does a handler that refuses several things in one call: clients that find two
// pushbacks do not retry.
func (i *Interceptor) Refuse(ctx context.Context, d limiter.Decision, err error) error {
	refused := i.answer(ctx, &limiter.Request{Decision: d}, err)
	if trailer := refused.trailer(); trailer != nil {
		_ = grpc.SetTrailer(ctx, trailer) // fails only outside a call, which has no trailer
	}
	return refused.status.Err()
}

// Status returns the status of [Interceptor.Refuse] and sets no trailer: for an item of a
// batch, or for the end of a stream.
func (i *Interceptor) Status(ctx context.Context, d limiter.Decision, err error) *status.Status {
	return i.answer(ctx, &limiter.Request{Decision: d}, err).status
}

// trailer returns the trailer of a refusal, or nil. Clients that find two pushbacks do
// not retry, so only the interceptor that refuses sets it.
func (r *refusal) trailer() metadata.MD {
	if r.pushback == "" {
		return nil
	}
	if r.seconds == "" {
		return metadata.MD{"grpc-retry-pushback-ms": {r.pushback}}
	}
	return metadata.MD{"grpc-retry-pushback-ms": {r.pushback}, "retry-after": {r.seconds}}
}

// end sets the trailer of a stream and returns the status.
func (r *refusal) end(stream grpc.ServerStream) error {
	if trailer := r.trailer(); trailer != nil {
		stream.SetTrailer(trailer)
	}
	return r.status.Err()
}

// final makes r, unless it is nil, the refusal of a call that clients should not retry.
func (r *refusal) final() *refusal {
	if r != nil && r.pushback != "" {
		r.pushback = rpcstatus.DoNotRetry
	}
	return r
}

// refusal returns the answer to a call that is refused, or nil if it is allowed.
func (i *Interceptor) refusal(ctx context.Context, r *limiter.Request, err error) *refusal {
	if r.Decision.Allowed() {
		return nil
	}
	return i.answer(ctx, r, err)
}

// answer returns the answer to a call that is refused. One draw of the jitter is in all
// its parts.
func (i *Interceptor) answer(ctx context.Context, r *limiter.Request, err error) *refusal {
	s := rpcstatus.Of(r, err)
	patience := rpcstatus.Patience{Longest: i.cfg.MaxPushback, Left: rpcstatus.NoDeadline}
	if deadline, ok := ctx.Deadline(); ok {
		patience.Left = time.Until(deadline)
	}
	s.Delay(i.cfg.Jitter, patience)
	refused := &refusal{pushback: s.Pushback(patience), status: encode(&s, i.details.Details(s.Reason))}
	if i.cfg.RetryAfter && s.Wait > 0 {
		refused.seconds = strconv.FormatInt(rpcstatus.Seconds(s.Wait), 10)
	}
	return refused
}

// encode returns s with its details.
func encode(s *rpcstatus.Status, d *rpcstatus.Details) *status.Status {
	p := &spb.Status{Code: int32(s.Code), Message: s.Message(), Details: make([]*anypb.Any, 0, 3)}
	add := func(name string, value []byte) {
		if value != nil {
			p.Details = append(p.Details, &anypb.Any{TypeUrl: rpcstatus.TypeURL + name, Value: value})
		}
	}
	add(rpcstatus.RetryInfo, s.RetryInfo())
	add(rpcstatus.QuotaFailure, d.QuotaFailure)
	add(rpcstatus.ErrorInfo, d.ErrorInfo)
	return status.FromProto(p)
}

// state returns the trailer that states what is left after an allowed call, or nil.
func state(r *limiter.Request) metadata.MD {
	d := &r.State
	if d.Budget == "" {
		return nil
	}
	reset := int64(0)
	if d.ResetAfter > 0 {
		reset = rpcstatus.Seconds(d.ResetAfter)
	}
	return metadata.MD{
		"x-ratelimit-limit":     {strconv.FormatInt(d.Limit.Capacity(), 10)},
		"x-ratelimit-remaining": {strconv.FormatInt(d.Remaining, 10)},
		"x-ratelimit-reset":     {strconv.FormatInt(reset, 10)},
	}
}
