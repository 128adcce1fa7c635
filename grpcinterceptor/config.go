package grpcinterceptor

import (
	"context"
	"fmt"
	"math"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"

	"github.com/ration-go/ration/internal/routes"
	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
)

// Config is what differs from server to server; the zero Config is usable.
// Functions are called with no lock held, by many goroutines.
type Config struct {
	// MaxPushback is the longest wait that clients are told to sit out; beyond
	// it they are told not to retry. At most 2147483647 ms (24 days), since
	// clients read 32 bits; 0 means 30 s.
	MaxPushback time.Duration
	// Cost answers how many tokens a unary call costs, at least 0; msg is the
	// request message. A stream costs 1, since it is charged before a message is
	// read; with Messages, Cost is asked about each message. Nil means 1.
	Cost func(ctx context.Context, fullMethod string, msg any) int64
	// Messages charges each message that a stream receives, so that a stream
	// costs what unary calls with its messages would, and at least the 1 of its
	// open, which stands also where the first message is refused. False means that
	// the messages of an open stream are free.
	Messages bool
	// Settles lets handlers say what a call really cost, with [Settle]; Cost is then
	// what is reserved, so the most that it may cost. It costs some allocations and,
	// as ByCode does, one more call of a store that does I/O, before the answer.
	Settles bool
	// ByCode, if set, answers what a call really cost, at least 0, by the code that
	// its handler returns and by what was reserved: 0 for OK counts only failures.
	// A handler that has called Settle was first. What has no code of the handler's
	// own stays reserved: a panic, a caller that has gone or is too late, CANCELED,
	// DEADLINE_EXCEEDED; so do streams with Messages.
	ByCode func(code codes.Code, reserved int64) int64
	// Skip answers which calls are free besides those of [Health], which always
	// are; free calls are counted as skipped. Nil means no others. An unknown
	// method is shown as [keying.Unmatched], never by the name the caller chose.
	Skip func(ctx context.Context, fullMethod string) bool
	// Workloads are labels by which callers split their own budgets, for budgets
	// ByWorkload; the zero value means none. Its Header is a metadata key.
	Workloads keying.Workloads
	// Methods are the full methods, "/pkg.Service/Method", that the server
	// answers in its grpc.UnknownServiceHandler, each a route of its own. It is
	// not needed for registered services.
	Methods []string
	// Public are the names of the budgets that any caller may be told of. A
	// budget ByPrincipal or ByTenant is always told to its owner; the others
	// would show everyone how much is left for everyone.
	Public []string
	// Domain is the domain of ErrorInfo: the name of the service. Empty means
	// "ration".
	Domain string
}

// Health reports whether the method is Check or List of grpc.health.v1.Health, by
// which load balancers decide whether the server lives. Watch is not among them:
// it holds a stream, and a goroutine of the server, for as long as the caller
// likes, so it costs what other streams cost.
func Health(_ context.Context, fullMethod string) bool {
	return fullMethod == healthCheck || fullMethod == healthList
}

const (
	healthCheck = "/grpc.health.v1.Health/Check"
	healthList  = "/grpc.health.v1.Health/List"
	healthWatch = "/grpc.health.v1.Health/Watch"
)

// maxPushback is the longest pushback that clients can read.
const maxPushback = math.MaxInt32 * time.Millisecond

func (c Config) validate(l *limiter.Limiter) error {
	switch {
	case c.MaxPushback < 0 || c.MaxPushback > maxPushback:
		return wrong("Config.MaxPushback", c.MaxPushback,
			fmt.Sprintf("want more than 0 and at most %v, or 0 for 30s", maxPushback))

	case !utf8.ValidString(c.Domain):
		return wrong("Config.Domain", c.Domain, "want UTF-8")
	}
	for i, method := range c.Methods {
		if !routes.IsFullMethod(method) {
			return wrong(fmt.Sprintf("Config.Methods[%d]", i), method,
				`want the form "/pkg.Service/Method"`)

		}
	}
	for i, name := range c.Public {
		if _, ok := l.Budget(name); !ok {
			return wrong(fmt.Sprintf("Config.Public[%d]", i), name,
				"want the name of a budget of the limiter")

		}
	}
	return nil
}

// orDefaults returns c with its zero fields spelt out.
func (c Config) orDefaults() Config {
	if c.MaxPushback == 0 {
		c.MaxPushback = 30 * time.Second
	}
	if c.Cost == nil {
		c.Cost = one
	}
	if c.Domain == "" {
		c.Domain = "ration"
	}
	return c
}

// free reports whether calls of the route are free.
func (c *Config) free(ctx context.Context, route string) bool {
	return Health(ctx, route) || c.Skip != nil && c.Skip(ctx, route)
}

// one is what opening a stream costs, and the default of a message.
func one(context.Context, string, any) int64 { return 1 }
