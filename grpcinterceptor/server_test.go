package grpcinterceptor_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
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

// service counts the calls that reach its handlers. They answer at once, unless a
// test says what they do.
type service struct {
	grpc_testing.UnimplementedTestServiceServer
	handled atomic.Int64
	unary   func(context.Context) error // EmptyCall
	stream  func(conversation) error    // FullDuplexCall; nil sends back each message
}

// conversation is the server's side of a bidirectional stream.
type conversation = grpc_testing.TestService_FullDuplexCallServer

func (s *service) EmptyCall(ctx context.Context, _ *grpc_testing.Empty) (*grpc_testing.Empty, error) {
	s.handled.Add(1)
	if s.unary != nil {
		return empty, s.unary(ctx)
	}
	return empty, nil
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
	return stream.Send(response)
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

func (s *service) FullDuplexCall(stream conversation) error {
	s.handled.Add(1)
	if s.stream != nil {
		return s.stream(stream)
	}
	for {
		if _, err := stream.Recv(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if err := stream.Send(response); err != nil {
			return err
		}
	}
}

// networks are the two kinds of connection that most tests run over. There is also
// "unix", on the socket "s" of a new working directory. The prefix "http+" puts
// (*grpc.Server).ServeHTTP behind the server of the standard library.
var networks = []string{"tcp", "bufconn"}

// running is a server with the test service and health, and a way to reach it.
type running struct {
	*grpc.Server
	*service
	target string
	dial   func(context.Context, string) (net.Conn, error)
}

// start starts a server whose handlers answer at once.
func start(t *testing.T, network string, opts ...grpc.ServerOption) *running {
	t.Helper()
	return serve(t, network, &service{}, nil, opts...)
}

// serve starts a server of the service. Behind ServeHTTP, front wraps the handler if
// it is not nil.
func serve(
	t *testing.T, network string, s *service, front func(http.Handler) http.Handler,
	opts ...grpc.ServerOption,
) *running {
	t.Helper()
	leavesNoGoroutine(t)
	r := &running{service: s, Server: grpc.NewServer(opts...)}
	grpc_testing.RegisterTestServiceServer(r, s)
	grpc_health_v1.RegisterHealthServer(r, health.NewServer())
	network, behindHTTP := strings.CutPrefix(network, "http+")
	listener := r.listen(t, network)
	if !behindHTTP {
		go func() { _ = r.Serve(listener) }()
		t.Cleanup(r.Stop)
		return r
	}
	h := &http.Server{Handler: r, Protocols: new(http.Protocols)}
	if front != nil {
		h.Handler = front(r)
	}
	h.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = h.Serve(listener) }()
	t.Cleanup(func() { _ = h.Close() })
	return r
}

// leavesNoGoroutine fails the test if there are more goroutines at its end than now.
func leavesNoGoroutine(t *testing.T) {
	t.Helper()
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		assert.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+1 }, // its own
			10*time.Second, time.Millisecond, "goroutines are left")
	})
}

func (r *running) listen(t *testing.T, network string) net.Listener {
	t.Helper()
	address := "127.0.0.1:0"
	switch network {
	case "bufconn":
		buffer := bufconn.Listen(1 << 16)
		r.target = "passthrough:///bufconn"
		r.dial = func(ctx context.Context, _ string) (net.Conn, error) {
			return buffer.DialContext(ctx)
		}
		return buffer
	case "unix":
		dir, err := os.MkdirTemp("", "unix") // t.TempDir may be too long for a socket
		require.NoError(t, err)
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		t.Chdir(dir)
		address = "s"
	}
	listener, err := net.Listen(network, address)
	require.NoError(t, err)
	r.target = listener.Addr().String()
	return listener
}

// act starts a server of the service behind the interceptors, and returns its client
// and a function that waits for the handlers and ends both.
func act(
	t *testing.T, s *service, is ...*grpcinterceptor.Interceptor,
) (grpc_testing.TestServiceClient, func()) {
	t.Helper()
	opts := append([]grpc.ServerOption{
		grpc.UnaryInterceptor(recoverUnary), grpc.StreamInterceptor(recoverStream),
	}, chain(is...)...)
	r := serve(t, "bufconn", s, nil, opts...)
	conn := r.connect(t, "{}")
	return grpc_testing.NewTestServiceClient(conn), func() { r.GracefulStop(); _ = conn.Close() }
}

// recoverUnary and recoverStream answer a panic as most services do.
func recoverUnary(
	ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (resp any, err error) {
	defer func() {
		if recover() != nil {
			err = status.Error(codes.Internal, "mistake")
		}
	}()
	return handler(ctx, req)
}

func recoverStream(
	srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler,
) (err error) {
	defer func() {
		if recover() != nil {
			err = status.Error(codes.Internal, "mistake")
		}
	}()
	return handler(srv, stream)
}

// connect returns a connection with the service config, "{}" for no retries.
func (r *running) connect(t *testing.T, config string) *grpc.ClientConn {
	t.Helper()
	return r.connectWith(t, insecure.NewCredentials(), config)
}

func (r *running) connectWith(
	t *testing.T, creds credentials.TransportCredentials, config string,
) *grpc.ClientConn {
	t.Helper()
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(creds), grpc.WithDefaultServiceConfig(config),
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

// newThawing returns a limiter on such a clock.
func newThawing(t *testing.T, budget limiter.Budget) (*limiter.Limiter, *reports) {
	t.Helper()
	clock := &thawing{}
	l, log := newLimiterAt(t, clock.now, budget)
	log.denied = clock.thaw
	return l, log
}

// soon allows one call, and the next after 100 ms.
var soon = limiter.Limit{Tokens: 10, Per: time.Second, Burst: 1}

// perUser is a budget for each user.
func perUser(limit limiter.Limit) limiter.Budget {
	return limiter.Budget{Name: "per-user", Scope: limiter.ByPrincipal, Limit: limit,
		OnError: limiter.Closed}
}

// newLimiter returns a limiter in memory, whose clock stands still, and the log of
// what it reports.
func newLimiter(t *testing.T, budgets ...limiter.Budget) (*limiter.Limiter, *reports) {
	t.Helper()
	return newLimiterAt(t, standing, budgets...)
}

func newLimiterAt(
	t *testing.T, now func() time.Time, budgets ...limiter.Budget,
) (*limiter.Limiter, *reports) {
	t.Helper()
	return limiterOver(t, newStore(now), budgets...)
}

func newStore(now func() time.Time) *memstore.Store {
	return limiter.Must(memstore.New(memstore.Config{Now: now}))
}

func limiterOver(
	t *testing.T, store limiter.Store, budgets ...limiter.Budget,
) (*limiter.Limiter, *reports) {
	t.Helper()
	return limiterWith(t, limiter.Config{}, store, budgets...)
}

// limiterWith is what all limiters of the tests are made by.
func limiterWith(
	t *testing.T, cfg limiter.Config, store limiter.Store, budgets ...limiter.Budget,
) (*limiter.Limiter, *reports) {
	t.Helper()
	log := &reports{}
	cfg.Observer = log.observer().And(cfg.Observer)
	cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
	l, err := limiter.New(store, budgets, cfg)
	require.NoError(t, err)
	return l, log
}

// users counts users only.
var users = keying.Authenticated(keying.Refuse(`Bearer realm="test"`))

// addresses counts addresses only.
var addresses = keying.ByAddress(keying.Addresses{})

func intercept(
	t *testing.T, l *limiter.Limiter, who keying.Who, cfg grpcinterceptor.Config,
) *grpcinterceptor.Interceptor {
	t.Helper()
	i, err := grpcinterceptor.New(l, who, cfg)
	require.NoError(t, err)
	return i
}

// reports keeps what a limiter reports and logs.
type reports struct {
	mu     sync.Mutex
	seen   []report
	caller limiter.Caller   // of the latest decision
	left   map[string]int64 // of each of its budgets, after it
	text   strings.Builder
	denied func() // called at each denial, if it is not nil
}

type report struct{ transport, route, outcome string }

func (r *reports) observer() limiter.Observer {
	return limiter.Observer{
		Answered: func(e limiter.RequestEvent) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.seen = append(r.seen, report{e.Transport, e.Route, e.Outcome})
			if e.Outcome == "deny" && r.denied != nil {
				r.denied()
			}
		},
		Decided: func(_ context.Context, e limiter.DecisionEvent) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.caller, r.left = e.Caller, map[string]int64{}
			for _, c := range e.Charges {
				r.left[c.Key.Budget] = c.Result.Remaining
			}
		},
	}
}

// Write takes what is logged.
func (r *reports) Write(line []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(line)
}

func (r *reports) logged() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// warnings returns the codes that were logged, in order.
func (r *reports) warnings() (found []string) {
	for _, field := range strings.Fields(r.logged()) {
		if code, ok := strings.CutPrefix(field, "code="); ok {
			found = append(found, code)
		}
	}
	return found
}

func (r *reports) all() []report {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.seen)
}

// answers returns the outcome of each call, in order.
func (r *reports) answers() []string {
	var answers []string
	for _, seen := range r.all() {
		answers = append(answers, seen.outcome)
	}
	return answers
}

// count returns how often each outcome was reported.
func (r *reports) count() map[string]int {
	n := map[string]int{}
	for _, answer := range r.answers() {
		n[answer]++
	}
	return n
}

// latest returns the caller of the latest decision.
func (r *reports) latest() limiter.Caller {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.caller
}

// remaining returns what each budget has left for a caller. To budgets PerRequest,
// asking is a request.
func (r *reports) remaining(t *testing.T, l *limiter.Limiter, c limiter.Caller) map[string]int64 {
	t.Helper()
	_, err := l.Take(t.Context(), c, 0)
	require.NoError(t, err)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.left
}
