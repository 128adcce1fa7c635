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

// Tap refuses calls by address before they become any: calls of methods that the
// server does not know and unary calls that never send a message, too, which no
// interceptor sees. It is the cheapest refusal, against floods; the budgets of
// callers belong to an [Interceptor].
//
//	guard, err := grpcinterceptor.NewTap(l, keying.Addresses{}, grpcinterceptor.Config{})
//	...
//	server := grpc.NewServer(grpc.InTapHandle(guard.Handle), ...)
//	orders.RegisterOrdersServer(server, service)
//	err = guard.Learn(server)
//
// What it cannot do: it has no trailer, so a refused client gets the status with
// all its details but no pushback, and retries by its own backoff; it sees no
// principal, no certificate and no message; stats handlers and other
// interceptors do not see what it refuses, although the limiter's metrics do;
// a server has one at most, and none behind (*grpc.Server).ServeHTTP.
//
// grpc-go calls it with a lock of the connection held, so it must not block: its
// limiter is in memory, and the limiter's hooks must answer at once.
//
// It is safe for concurrent use. The zero Tap is not usable; see [NewTap].
type Tap struct {
	interceptor *Interceptor
	known       atomic.Pointer[map[string]struct{}] // full methods
	learned     atomic.Bool                         // Learn was called
	first       sync.Once                           // the first call was looked at
}

// NewTap returns the tap of l, which counts addresses. Of the Config it uses
// Skip, Methods, Public and Domain.
//
// The error is a *[limiter.ConfigError], also for a limiter whose store can fail
// (it would block connections) and for a field that a tap cannot serve.
func NewTap(l *limiter.Limiter, from keying.Addresses, cfg Config) (*Tap, error) {
	const reason = "want none: a tap "
	switch {
	case l != nil && l.CanFail():
		return nil, wrong("Limiter", l.Name(),
			"its store does I/O, which would block connections: want one in memory")
	case cfg.MaxPushback != 0:
		return nil, wrong("Config.MaxPushback", cfg.MaxPushback,
			reason+"cannot send pushback")
	case cfg.Cost != nil:
		return nil, wrong("Config.Cost", nil, reason+"sees no message")
	case cfg.Settles:
		return nil, wrong("Config.Settles", true,
			reason+"sees no handler")
	case cfg.ByCode != nil:
		return nil, wrong("Config.ByCode", nil, reason+"sees no answer")
	case cfg.Messages:
		return nil, wrong("Config.Messages", true,
			reason+"sees no message")
	}
	i, err := New(l, keying.ByAddress(from), cfg)
	if err != nil {
		return nil, err
	}
	t := &Tap{interceptor: i}
	// A server without the health service learns that by Learn; until then it is
	// better to answer health checks for nothing than to refuse them.
	t.know(append([]string{healthCheck, healthList, healthWatch}, i.cfg.Methods...))
	return t, nil
}

// Learn makes the methods of a server the routes of their calls; call it once
// all services are registered. All other calls share the route
// [keying.Unmatched], as do those of all methods but health before Learn: a
// budget with that alone in its Routes holds back nothing but unknown methods.
// If the first call arrives before Learn and a budget goes by routes, that is
// logged, once, under the code tap-unlearned.
//
// The error is that of [Interceptor.Check], about the tap's own limiter; the
// methods are learnt all the same.
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

// Handle is a tap.ServerInHandle, for grpc.InTapHandle: it charges 1 and lets
// the call go on, or returns the refusal as the error of a status. An
// interceptor of the same limiter that counts addresses does not charge again.
func (t *Tap) Handle(ctx context.Context, info *tap.Info) (context.Context, error) {
	t.first.Do(func() { t.checkLearned(ctx) })
	route := keying.Unmatched
	if _, ok := (*t.known.Load())[info.FullMethodName]; ok {
		route = info.FullMethodName
	}
	m, no := t.interceptor.admit(ctx, route, nil, one, false)
	if no != nil {
		return ctx, no.status.Err()
	}
	return m, nil
}

// checkLearned warns of budgets that go by routes if Learn was not called.
func (t *Tap) checkLearned(ctx context.Context) {
	if t.learned.Load() {
		return
	}
	var budgets []string
	for _, b := range t.interceptor.limiter.Budgets() {
		if t.needsLearn(&b) {
			budgets = append(budgets, b.Name)
		}
	}
	if budgets != nil {
		t.interceptor.limiter.Warn(ctx, "tap-unlearned", "calls arrive before Tap.Learn, so nearly "+
			"all methods count as unmatched, and these budgets do not limit the methods that they "+
			"are for: call Learn once all services are registered",
			slog.Any("budgets", budgets))
	}
}

// needsLearn reports whether the budget tells methods apart that only Learn makes
// known.
func (t *Tap) needsLearn(b *limiter.Budget) bool {
	known := *t.known.Load()
	return b.Scope&limiter.ByRoute != 0 || slices.ContainsFunc(b.Routes, func(route string) bool {
		_, ok := known[route]
		return !ok
	})
}
