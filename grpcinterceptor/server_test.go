package grpcinterceptor_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"

	"github.com/ration-go/ration/grpcinterceptor"
	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
)

const (
	emptyCall = "/grpc.testing.TestService/EmptyCall"
	unaryCall = "/grpc.testing.TestService/UnaryCall"
	duplex    = "/grpc.testing.TestService/FullDuplexCall"
)

// retrying makes a client obey pushback; its own backoff is far longer than any
// test waits, so a retry that comes in time was told when to come.
const retrying = `{"methodConfig":[{"name":[{}],"retryPolicy":{"maxAttempts":4,
	"initialBackoff":"60s","maxBackoff":"60s","backoffMultiplier":1,
	"retryableStatusCodes":["RESOURCE_EXHAUSTED","UNAVAILABLE"]}}]}`

// service counts the calls that reach its handlers.
type service struct {
	grpc_testing.UnimplementedTestServiceServer
	handled atomic.Int64
}

func (s *service) EmptyCall(context.Context, *grpc_testing.Empty) (*grpc_testing.Empty, error) {
	s.handled.Add(1)
	return &grpc_testing.Empty{}, nil
}

func (s *service) UnaryCall(
	context.Context, *grpc_testing.SimpleRequest,
) (*grpc_testing.SimpleResponse, error) {
	s.handled.Add(1)
	return &grpc_testing.SimpleResponse{}, nil
}

func (s *service) StreamingOutputCall(
	_ *grpc_testing.StreamingOutputCallRequest,
	stream grpc.ServerStreamingServer[grpc_testing.StreamingOutputCallResponse],
) error {
	s.handled.Add(1)
	return stream.Send(&grpc_testing.StreamingOutputCallResponse{})
}

func (s *service) StreamingInputCall(stream grpc.ClientStreamingServer[
	grpc_testing.StreamingInputCallRequest, grpc_testing.StreamingInputCallResponse,
]) error {
	s.handled.Add(1)
	for {
		if _, err := stream.Recv(); err == io.EOF {
			return stream.SendAndClose(&grpc_testing.StreamingInputCallResponse{})
		} else if err != nil {
			return err
		}
	}
}

func (s *service) FullDuplexCall(stream grpc.BidiStreamingServer[
	grpc_testing.StreamingOutputCallRequest, grpc_testing.StreamingOutputCallResponse,
]) error {
	s.handled.Add(1)
	for {
		if _, err := stream.Recv(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if err := stream.Send(&grpc_testing.StreamingOutputCallResponse{}); err != nil {
			return err
		}
	}
}

// running is a server with the test service and health, and a way to reach it.
type running struct {
	*grpc.Server
	*service
	network string
	target  string
	dial    func(context.Context, string) (net.Conn, error)
}

// networks are the two kinds of real connection that tests run over. The third,
// "http", is (*grpc.Server).ServeHTTP behind the server of the standard library.
var networks = []string{"tcp", "bufconn"}

func start(t *testing.T, network string, opts ...grpc.ServerOption) *running {
	t.Helper()
	r := &running{service: &service{}, network: network, Server: grpc.NewServer(opts...)}
	grpc_testing.RegisterTestServiceServer(r, r.service)
	grpc_health_v1.RegisterHealthServer(r, health.NewServer())
	if network == "bufconn" {
		buffer := bufconn.Listen(1 << 16)
		r.target = "passthrough:///bufconn"
		r.dial = func(ctx context.Context, _ string) (net.Conn, error) {
			return buffer.DialContext(ctx)
		}
		go func() { _ = r.Serve(buffer) }()
		t.Cleanup(r.Stop)
		return r
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r.target = listener.Addr().String()
	if network == "tcp" {
		go func() { _ = r.Serve(listener) }()
		t.Cleanup(r.Stop)
		return r
	}
	front := &http.Server{Handler: r, Protocols: new(http.Protocols)}
	front.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = front.Serve(listener) }()
	t.Cleanup(func() { _ = front.Close() })
	return r
}

// connect returns a connection with the service config, "{}" for no retries.
func (r *running) connect(t *testing.T, config string) *grpc.ClientConn {
	t.Helper()
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(config),
	}
	if r.dial != nil {
		opts = append(opts, grpc.WithContextDialer(r.dial))
	}
	conn, err := grpc.NewClient(r.target, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (r *running) client(t *testing.T, config string) grpc_testing.TestServiceClient {
	t.Helper()
	return grpc_testing.NewTestServiceClient(r.connect(t, config))
}

// chain makes the interceptors those of a server, behind the authentication.
func chain(is ...*grpcinterceptor.Interceptor) []grpc.ServerOption {
	unary := []grpc.UnaryServerInterceptor{authenticate}
	stream := []grpc.StreamServerInterceptor{authenticateStream}
	for _, i := range is {
		unary, stream = append(unary, i.Unary), append(stream, i.Stream)
	}
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(unary...), grpc.ChainStreamInterceptor(stream...),
	}
}

// authenticate believes the metadata "user", as only a test may.
func authenticate(
	ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	return handler(withUser(ctx), req)
}

func authenticateStream(
	srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler,
) error {
	return handler(srv, &inContext{stream, withUser(stream.Context())})
}

type inContext struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *inContext) Context() context.Context { return s.ctx }

func withUser(ctx context.Context) context.Context {
	for _, id := range metadata.ValueFromIncomingContext(ctx, "user") {
		ctx = keying.WithPrincipal(ctx, limiter.Principal{Kind: "user", ID: id})
	}
	return ctx
}

// as returns a context in which the user calls, for at most 10 s.
func as(t *testing.T, user string) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	return metadata.AppendToOutgoingContext(ctx, "user", user)
}

// standing is a clock that stands still, so that every wait is known.
func standing() time.Time { return time.Unix(1_800_000_000, 0) }

// thawing is a clock that stands still until the first denial is reported and
// goes with the real one from then on: the client's wait begins later than that,
// so a retry that comes when it was told to is allowed, and none before.
type thawing struct{ since atomic.Pointer[time.Time] }

func (c *thawing) now() time.Time {
	if since := c.since.Load(); since != nil {
		return standing().Add(time.Since(*since))
	}
	return standing()
}

func (c *thawing) thaw() {
	now := time.Now()
	c.since.CompareAndSwap(nil, &now)
}

// newThawing returns a limiter that allows one call, and the next 100 ms after a
// denial.
func newThawing(t *testing.T) (*limiter.Limiter, *reports) {
	t.Helper()
	clock := &thawing{}
	l, log := newLimiter(t, clock.now,
		perUser(limiter.Limit{Tokens: 10, Per: time.Second, Burst: 1}))
	log.denied = clock.thaw
	return l, log
}

// perUser is a budget for each user.
func perUser(limit limiter.Limit) limiter.Budget {
	return limiter.Budget{Name: "per-user", Scope: limiter.ByPrincipal, Limit: limit,
		OnError: limiter.Closed}
}

// newLimiter returns a limiter in memory and the log of what it reports.
func newLimiter(
	t *testing.T, now func() time.Time, budgets ...limiter.Budget,
) (*limiter.Limiter, *reports) {
	t.Helper()
	store, err := memstore.New(memstore.Config{Now: now})
	require.NoError(t, err)
	return limiterOver(t, store, budgets...)
}

func limiterOver(
	t *testing.T, store limiter.Store, budgets ...limiter.Budget,
) (*limiter.Limiter, *reports) {
	t.Helper()
	log := &reports{}
	l, err := limiter.New(store, budgets, limiter.Config{Observer: log})
	require.NoError(t, err)
	return l, log
}

// users counts users only.
var users = keying.Authenticated(keying.Refuse(`Bearer realm="test"`))

func intercept(
	t *testing.T, l *limiter.Limiter, who keying.Who, cfg grpcinterceptor.Config,
) *grpcinterceptor.Interceptor {
	t.Helper()
	i, err := grpcinterceptor.New(l, who, cfg)
	require.NoError(t, err)
	return i
}

// reports is an observer that keeps what adapters report.
type reports struct {
	mu     sync.Mutex
	seen   []report
	denied func() // called at each denial; nil: nothing is
}

type report struct {
	transport, route string
	answer           limiter.Answer
}

func (*reports) Configured(string, []string)   {}
func (*reports) Decided(limiter.DecisionEvent) {}
func (r *reports) Answered(e limiter.RequestEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, report{e.Transport, e.Route, e.Answer})
	if e.Answer == limiter.AnswerDeny && r.denied != nil {
		r.denied()
	}
}

func (r *reports) all() []report {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]report(nil), r.seen...)
}

// answers returns what was reported of each call, in order.
func (r *reports) answers() []limiter.Answer {
	var answers []limiter.Answer
	for _, seen := range r.all() {
		answers = append(answers, seen.answer)
	}
	return answers
}
