package grpcinterceptor

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/ration-go/ration/internal/misuse"
	"github.com/ration-go/ration/internal/rpcstatus"
	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
)

// transport is the metric label of all calls.
const transport = "grpc"

// Interceptor limits the calls of a gRPC server. Its methods [Interceptor.Unary] and
// [Interceptor.Stream] are the interceptors. One Interceptor can serve any number of
// servers. It is safe for concurrent use. The zero Interceptor is not usable; see
// [New].
type Interceptor struct {
	adapter   *limiter.Adapter
	who       keying.Who
	workloads *keying.Folding
	cfg       Config
	details   rpcstatus.Cache                  // of refusals
	nobody    misuse.Streak                    // calls of unauthenticated callers
	logged    misuse.Once                      // codes of warnings
	known     atomic.Pointer[[]string]         // methods of the server; nil before Check
	budgets   atomic.Pointer[[]limiter.Budget] // the budgets that were checked last
	unchecked atomic.Pointer[[]string]         // names of those that need Check; nil if none do
}

// New returns the interceptors that charge calls to the budgets of l; who identifies
// the callers. All configuration errors are reported here, as *[limiter.ConfigError],
// except for budgets on methods that do not exist: see [Interceptor.Check].
func New(l *limiter.Limiter, who keying.Who, cfg Config) (*Interceptor, error) {
	i, err := newInterceptor(l, who, cfg, nil)
	if err != nil {
		return nil, err
	}
	// A chain may have the same Interceptor twice. Only with a second Setup does the
	// limiter look for an earlier charge.
	if _, err := i.adapter.Setup(transport, cfg.settles(), nil); err != nil {
		return nil, err
	}
	return i, nil
}

// newInterceptor is New for one registration. It runs check, if not nil, on the
// capabilities of the store.
func newInterceptor(
	l *limiter.Limiter, who keying.Who, cfg Config, check func(limiter.Capabilities) error,
) (*Interceptor, error) {
	if l == nil || l.Name() == "" {
		return nil, wrong("Limiter", nil, "want a limiter made by limiter.New")
	}
	if err := who.Validate(); err != nil {
		return nil, err
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	workloads, err := cfg.Workloads.Folding()
	if err != nil {
		return nil, err
	}
	cfg.Methods = slices.Clone(cfg.Methods)
	i := &Interceptor{adapter: l.Adapter(), who: who, workloads: workloads, cfg: cfg.orDefaults()}
	i.details.Domain = i.cfg.Domain
	if _, err := i.adapter.Setup(transport, cfg.settles(), i.check(check)); err != nil {
		return nil, err
	}
	return i, nil
}

// Unary is a grpc.UnaryServerInterceptor. It charges the call and runs the handler, or
// refuses the call. gRPC calls it after the request message was read.
func (i *Interceptor) Unary(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	i.watchChecked(ctx)
	var r limiter.Request
	ctx, refused := i.admit(ctx, info.FullMethod, req, i.cfg.Cost, &r)
	if refused != nil {
		if trailer := refused.trailer(); trailer != nil {
			_ = grpc.SetTrailer(ctx, trailer) // fails only outside a call, which has no trailer
		}
		return nil, refused.status.Err()
	}
	if trailer := state(&r); trailer != nil {
		_ = grpc.SetTrailer(ctx, trailer)
	}
	resp, err := handler(ctx, req)
	i.correct(ctx, &r, err)
	return resp, err
}

// Stream is a grpc.StreamServerInterceptor. It charges the stream and runs the handler,
// or refuses the stream. gRPC calls it when the stream opens, before any message was
// read. With [Config.Messages] it also charges each message that the handler receives, and
// with [Config.SentCost] each one that it sends.
func (i *Interceptor) Stream(
	srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler,
) error {
	ctx := stream.Context()
	i.watchChecked(ctx)
	var r limiter.Request
	ctx, refused := i.admit(ctx, i.route(srv, info.FullMethod), nil, one, &r)
	if refused != nil {
		return refused.end(stream)
	}
	if trailer := state(&r); trailer != nil {
		stream.SetTrailer(trailer)
	}
	if s := i.meter(stream, ctx, &r); s != nil {
		return s.run(srv, handler)
	}
	err := handler(srv, &admitted{stream, ctx})
	if !i.cfg.meters() { // otherwise an outer interceptor charges the messages
		i.correct(ctx, &r, err)
	}
	return err
}

// admitted is a stream with the context of a charged call.
type admitted struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *admitted) Context() context.Context { return s.ctx }

// admit charges a call and fills r. It returns the context to handle the call in, or
// the refusal.
func (i *Interceptor) admit(
	ctx context.Context, route string, msg any, cost costFunc, r *limiter.Request,
) (context.Context, *refusal) {
	r.Transport, r.Caller.Route, r.KnowsCaller = transport, route, true
	r.WantState = i.cfg.Trailers
	if r.Skip = i.cfg.free(ctx, route); !r.Skip {
		r.Err = i.principal(ctx, &r.Caller.Principal)
	}
	if !r.Skip && r.Err == nil {
		r.Caller.Workload = i.workloads.Call(ctx, metadata.ValueFromIncomingContext)
		r.Cost = cost(ctx, route, msg)
		r.Reserve, r.Settles = i.cfg.ByCode != nil, i.cfg.Settles
	}
	charged, err := i.adapter.Take(ctx, r)
	if refused := i.refusal(ctx, r, err); refused != nil {
		return ctx, refused
	}
	return charged, nil
}

// costFunc is the type of Config.Cost.
type costFunc = func(ctx context.Context, fullMethod string, msg any) int64

// warn logs a misuse once for each code.
func (i *Interceptor) warn(ctx context.Context, code, message string, attrs ...slog.Attr) {
	if i.logged.First(code) {
		i.adapter.Warn(ctx, code, message, attrs...)
	}
}
