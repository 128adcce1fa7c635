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
)

// Config configures an [Interceptor] or a [Tap]. The zero Config is usable. Its
// functions are called by many goroutines, with no lock held.
type Config struct {
	// MaxPushback is the longest wait after which clients are told to retry; for a
	// longer one they are told not to. It is at most 2147483647 ms (24 days), because
	// clients read 32 bits. 0 means 30 s.
	MaxPushback time.Duration
	// Jitter adds a random time up to this to the wait that a refusal states, so that
	// clients that are refused together do not retry together. RetryInfo, pushback and
	// retry-after have the same wait. It makes no wait too long for a retry. At most 1 h;
	// 0 means none.
	Jitter time.Duration
	// RetryAfter adds the trailer retry-after, in seconds, to refusals that state a wait,
	// for the proxies that read it, such as Envoy and grpc-gateway.
	RetryAfter bool
	// Trailers adds the trailers x-ratelimit-limit (the capacity), x-ratelimit-remaining
	// and x-ratelimit-reset (seconds until the account is full) to allowed calls. They
	// describe the account with the least left, of those that belong to the caller or to
	// a Public budget. In a chain of interceptors, set it in the outermost.
	Trailers bool
	// Cost returns the cost of a unary call in tokens, at least 0; msg is the request
	// message. A stream costs 1, because it is charged before a message is read; with
	// Messages, Cost is called for each message. Nil means 1.
	Cost func(ctx context.Context, fullMethod string, msg any) int64
	// Messages charges each message that a stream receives. A stream then costs as much
	// as unary calls with its messages would, and at least the 1 that it paid when it
	// opened, even if its first message is refused. False means that the messages of an
	// open stream are free.
	Messages bool
	// SentCost returns the cost of a message that the handler of a stream sends, at least 0.
	// The message is sent if the caller of the stream can pay; otherwise the stream ends
	// with the refusal. A handler whose cost depends on more than the message returns 0
	// here and calls [Charge]. Opening the stream costs 1 besides. Nil means that sent
	// messages are free.
	SentCost func(ctx context.Context, fullMethod string, msg any) int64
	// Settles lets handlers correct the cost of their call with [Settle]. Cost is then
	// what is reserved: the most that the call can cost. It costs some allocations and,
	// like ByCode, one more call of a store that does I/O, before the answer.
	Settles bool
	// ByCode returns what a call really cost, at least 0, from the code that its handler
	// returned and the reserved cost: 0 for OK counts failures only. A Settle of the
	// handler takes precedence. The reserved cost stands after a panic, after CANCELED and
	// DEADLINE_EXCEEDED, if the caller has disconnected or its deadline has passed, and for
	// streams with Messages or SentCost. Nil corrects nothing.
	ByCode func(code codes.Code, reserved int64) int64
	// Skip reports whether a call is free. Calls of [Health] always are. Free calls are
	// counted as skipped. An unknown method is passed as [keying.Unmatched], never by
	// the name that the caller chose. Nil means that no other call is free.
	Skip func(ctx context.Context, fullMethod string) bool
	// Workloads are the labels by which callers split their own budgets, for budgets
	// ByWorkload. Its Header is a metadata key. The zero value means no labels.
	Workloads keying.Workloads
	// Methods are the full methods, "/pkg.Service/Method", that the server handles in its
	// grpc.UnknownServiceHandler. Each becomes a route. Methods of registered services
	// do not belong here.
	Methods []string
	// Domain is the domain in ErrorInfo: the name of the service. Empty means "ration".
	Domain string
}

// Health reports whether the method is Check or List of grpc.health.v1.Health, which
// load balancers call to see whether a server is alive. Watch is not one of them: it
// holds a stream and a goroutine for as long as the caller likes, so it costs as much as
// any stream.
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

// maxJitter is longer than any client should wait, and cannot overflow a wait.
const maxJitter = time.Hour

func (c Config) validate() error {
	switch {
	case c.MaxPushback < 0 || c.MaxPushback > maxPushback:
		return wrong("Config.MaxPushback", c.MaxPushback,
			fmt.Sprintf("want more than 0 and at most %v, or 0 for 30s", maxPushback))
	case c.Jitter < 0 || c.Jitter > maxJitter:
		return wrong("Config.Jitter", c.Jitter, fmt.Sprintf("want at least 0 and at most %v", maxJitter))
	case !utf8.ValidString(c.Domain):
		return wrong("Config.Domain", c.Domain, "want UTF-8")
	}
	for i, method := range c.Methods {
		if !routes.IsFullMethod(method) {
			return wrong(fmt.Sprintf("Config.Methods[%d]", i), method,
				`want the form "/pkg.Service/Method"`)

		}
	}
	return nil
}

// orDefaults returns c with defaults in place of zero fields.
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

// meters reports whether messages of streams are charged.
func (c *Config) meters() bool { return c.Messages || c.SentCost != nil }

// one is the cost of opening a stream, and the default of Config.Cost.
func one(context.Context, string, any) int64 { return 1 }
