package grpcinterceptor

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/tap"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
)

// Tap limits calls by address, when their headers arrive. It also sees the calls that
// no interceptor sees: those of methods that the server does not have, and unary calls
// that never send a message. It is the cheapest refusal, against floods; the budgets of
// authenticated callers belong to an [Interceptor].
//
//	guard, err := grpcinterceptor.NewTap(l, keying.Addresses{}, grpcinterceptor.Config{})
//	...
//	server := grpc.NewServer(grpc.InTapHandle(guard.Handle), ...)
//	orders.RegisterOrdersServer(server, service)
//	err = guard.Learn(server)
//
// Its limits:
//
//   - It cannot set a trailer. A refused client gets the status with all its details
//     but no pushback, and retries after its own backoff.
//   - It sees no principal, no certificate and no message.
//   - Stats handlers and interceptors do not see the calls that it refuses; the
//     limiter's metrics do.
//   - A server has at most one, and none behind (*grpc.Server).ServeHTTP.
//   - gRPC calls it while it holds a lock of the connection, so it must not block. Its
//     store must be in memory, and the limiter's hooks must return at once.
//
// It is safe for concurrent use. The zero Tap is not usable; see [NewTap].
type Tap struct {
	interceptor *Interceptor
	known       atomic.Pointer[map[string]struct{}] // full methods
	learned     atomic.Bool                         // Learn was called
	first       sync.Once                           // runs checkLearned at the first call
}

// NewTap returns a tap that charges calls to the budgets of l, by address. It uses the
// fields Skip, Methods, Jitter and Domain of the Config.
//
// The error is a *[limiter.ConfigError]. A limiter whose store can fail is refused,
// because waiting for the store would block connections. So are the fields of Config
// that a tap cannot use.
func NewTap(l *limiter.Limiter, from keying.Addresses, cfg Config) (*Tap, error) {
	const reason = "want none: a tap "
	switch {
	case cfg.MaxPushback != 0:
		return nil, wrong("Config.MaxPushback", cfg.MaxPushback, reason+"cannot send pushback")
	case cfg.Cost != nil:
		return nil, wrong("Config.Cost", nil, reason+"sees no message")
	case cfg.Settles:
		return nil, wrong("Config.Settles", true, reason+"sees no handler")
	case cfg.ByCode != nil:
		return nil, wrong("Config.ByCode", nil, reason+"sees no answer")
	case cfg.Messages:
		return nil, wrong("Config.Messages", true, reason+"sees no message")
	case cfg.SentCost != nil:
		return nil, wrong("Config.SentCost", nil, reason+"sees no message")
	case cfg.RetryAfter:
		return nil, wrong("Config.RetryAfter", true, reason+"cannot set a trailer")
	case cfg.Trailers:
		return nil, wrong("Config.Trailers", true, reason+"cannot set a trailer")
	}
	i, err := newInterceptor(l, keying.ByAddress(from), cfg, doesNotBlock)
	if err != nil {
		return nil, err
	}
	t := &Tap{interceptor: i}
	// Before Learn, health checks are known, so that they are not refused.
	t.know(append([]string{healthCheck, healthList, healthWatch}, i.cfg.Methods...))
	return t, nil
}

// doesNotBlock returns an error for a store that does I/O.
func doesNotBlock(store limiter.Capabilities) error {
	if store.NeverFails {
		return nil
	}
	return wrong("Limiter", store.Name,
		"want a store in memory: one that can fail would block connections")
}

// Learn makes each method of a server a route. Call it once all services are registered.
// All other methods share the route [keying.Unmatched], so a budget with only that in its
// Routes limits unknown methods and no others. Before Learn, all methods share it, except
// those of the health service and of [Config.Methods]. If the first call arrives before
// Learn and a budget depends on routes, that is logged once under the code tap-unlearned.
//
// The error is that of [Interceptor.Check], for the limiter of the tap. The methods are
// learned even if there is an error.
func (t *Tap) Learn(server Server) error {
	t.learned.Store(true)
	t.know(t.interceptor.Routes(server))
	return t.interceptor.Check(server)
}

func (t *Tap) know(methods []string) {
	known := make(map[string]struct{}, len(methods))
	for _, method := range methods {
		known[method] = struct{}{}
	}
	t.known.Store(&known)
}

// Handle is a tap.ServerInHandle, for grpc.InTapHandle. It charges 1 and lets the call
// through, or returns the status of the refusal as an error. If an interceptor of the
// same limiter also counts addresses, the 1 is part of its cost: the interceptor charges
// the rest.
func (t *Tap) Handle(ctx context.Context, info *tap.Info) (context.Context, error) {
	t.first.Do(func() { t.checkLearned(ctx) })
	route := keying.Unmatched
	if _, ok := (*t.known.Load())[info.FullMethodName]; ok {
		route = info.FullMethodName
	}
	var r limiter.Request
	charged, refused := t.interceptor.admit(ctx, route, nil, one, &r)
	if refused != nil {
		return ctx, refused.status.Err()
	}
	return charged, nil
}

// checkLearned warns if Learn was not called although budgets depend on routes.
func (t *Tap) checkLearned(ctx context.Context) {
	if t.learned.Load() {
		return
	}
	var budgets []string
	for _, b := range *t.interceptor.budgets.Load() {
		if t.needsLearn(&b) {
			budgets = append(budgets, b.Name)
		}
	}
	if budgets != nil {
		t.interceptor.warn(ctx, "tap-unlearned", "calls arrive before Tap.Learn, so nearly all "+
			"methods count as unmatched, and budgets that depend on routes do not limit the methods "+
			"that they are for: call Learn once all services are registered",
			slog.Any("budgets", budgets))
	}
}

// needsLearn reports whether the budget depends on methods that only Learn makes known.
func (t *Tap) needsLearn(b *limiter.Budget) bool {
	known := *t.known.Load()
	return b.Scope&limiter.ByRoute != 0 || slices.ContainsFunc(b.Routes, func(route string) bool {
		_, ok := known[route]
		return !ok
	})
}
