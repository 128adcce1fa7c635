package grpcinterceptor

import (
	"context"
	"slices"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/ration-go/ration/internal/misuse"
	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
)

// transport is the metric label of all calls.
const transport = "grpc"

// Interceptor asks a limiter about every call of a gRPC server. Its methods
// [Interceptor.Unary] and [Interceptor.Stream] are the interceptors; one
// Interceptor serves both, and any number of servers. It is safe for concurrent
// use. The zero Interceptor is not usable; see [New].
type Interceptor struct {
	limiter   *limiter.Limiter
	who       keying.Who
	workloads *keying.Folding
	cfg       Config
	nobody    misuse.Streak            // calls of callers whom nobody has named
	callers   misuse.Once              // how callers are named; see keying.Who.Misuse
	lost      atomic.Bool              // told that a cost could not be corrected
	known     atomic.Pointer[[]string] // the methods of the server, since Check
}

// New returns the interceptors of l, which counts the callers that who names.
// The error is a *[limiter.ConfigError].
func New(l *limiter.Limiter, who keying.Who, cfg Config) (*Interceptor, error) {
	if l == nil || l.Name() == "" {
		return nil, wrong("Limiter", nil, "want a limiter made by limiter.New")
	}
	if err := who.Validate(); err != nil {
		return nil, err
	}
	if err := cfg.validate(l); err != nil {
		return nil, err
	}
	workloads, err := cfg.Workloads.FoldingFor(l)
	if err != nil {
		return nil, err
	}
	cfg.Methods = slices.Clone(cfg.Methods)
	cfg.Public = slices.Clone(cfg.Public)
	i := &Interceptor{limiter: l, who: who, workloads: workloads, cfg: cfg.orDefaults()}
	i.checkOnReload()
	return i, nil
}

// Unary is a grpc.UnaryServerInterceptor: it charges the call and runs the
// handler, or answers the refusal. It runs after the request message was read.
func (i *Interceptor) Unary(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	m, no := i.admit(ctx, info.FullMethod, req, i.cfg.Cost, i.cfg.settles())
	if no != nil {
		if no.pushback != "" {
			// It fails only where there is no call to answer, as in a direct
			// invocation; the status says all the same then.
			_ = grpc.SetTrailer(ctx, no.trailer())
		}
		return nil, no.status.Err()
	}
	resp, err := handler(i.within(m), req)
	i.settle(m, err)
	return resp, err
}

// Stream is a grpc.StreamServerInterceptor: it charges a stream when it opens
// and runs the handler, or answers the refusal; no message was read yet. With
// [Config.Messages] it charges each message that the handler receives, too.
func (i *Interceptor) Stream(
	srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler,
) error {
	m, no := i.admit(stream.Context(), i.route(srv, info.FullMethod), nil, one, i.cfg.settles())
	if no != nil {
		return no.end(stream)
	}
	if i.cfg.Messages && !m.messages {
		return i.meter(srv, stream, m, handler)
	}
	err := handler(srv, &admitted{stream, i.within(m)})
	i.settle(m, err)
	return err
}

// admitted is a stream whose context says that it was asked about.
type admitted struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *admitted) Context() context.Context { return s.ctx }

// admit asks whether the call may run, and reports the answer. It returns the
// context to run it in, or the refusal.
func (i *Interceptor) admit(
	ctx context.Context, route string, req any, cost costFunc, reserve bool,
) (*mark, *refusal) {
	caller := limiter.Caller{Route: route}
	if i.cfg.free(ctx, route) {
		return i.skip(ctx, caller), nil
	}
	var err error
	if caller.Principal, err = i.principal(ctx); err != nil {
		return nil, i.judge(ctx, route, limiter.Decision{}, err)
	}
	caller.Workload = i.workloads.Call(ctx, metadata.ValueFromIncomingContext)
	if before := asked(ctx, i.limiter, caller); before != nil {
		return &mark{ctx, i.limiter, caller, before.messages, nil}, nil
	}
	price := cost(ctx, route, req)
	d, held, err := i.take(ctx, caller, price, reserve)
	if no := i.judge(ctx, route, d, err); no != nil {
		return nil, no
	}
	m := &mark{Context: ctx, limiter: i.limiter, caller: caller}
	m.hold(held, price)
	return m, nil
}

type costFunc = func(ctx context.Context, fullMethod string, msg any) int64

// skip reports a free call, once.
func (i *Interceptor) skip(ctx context.Context, caller limiter.Caller) *mark {
	if asked(ctx, i.limiter, caller) == nil {
		i.limiter.Answered(transport, caller.Route, limiter.AnswerSkipped)
	}
	return &mark{ctx, i.limiter, caller, true, nil}
}
