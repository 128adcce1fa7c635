package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/lab/redistest"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/redisstore"
	"github.com/ration-go/ration/limiter/storekit"
)

// on returns a charge on a user's account in the budget "requests".
func on(user string, l limiter.Limit, cost int64) []limiter.Charge {
	principal := limiter.Principal{Kind: "user", ID: user}
	key := limiter.Key{Budget: "requests", Principal: principal}
	return []limiter.Charge{{Key: key, Limit: l, Cost: cost}}
}

// left returns what is left of a user's account.
func left(t *testing.T, s limiter.Store, user string, l limiter.Limit) int64 {
	t.Helper()
	d, err := s.Peek(t.Context(), on(user, l, 0))
	require.NoError(t, err)
	return d.Remaining
}

func allowed(t *testing.T, s limiter.Store, charges []limiter.Charge) {
	t.Helper()
	d, err := s.Take(t.Context(), charges)
	require.NoError(t, err)
	require.Equal(t, limiter.Allow, d.Outcome)
}

// failed requires a *limiter.StoreError for one of the reasons.
func failed(t *testing.T, err error, reasons ...string) {
	t.Helper()
	var store *limiter.StoreError
	require.ErrorAs(t, err, &store)
	require.Contains(t, reasons, store.Reason, "%v", err)
}

// soon requires that f takes the timeout and not much more: the margin is for
// machines under load.
func soon(t *testing.T, timeout time.Duration, f func()) {
	t.Helper()
	start := time.Now()
	f()
	assert.Less(t, time.Since(start), timeout+500*time.Millisecond)
}

func TestTake_ALostReplyIsOneDebitAndAnAnswerInTime(t *testing.T) {
	t.Parallel()
	daily := limiter.PerDay(100)
	for name, test := range map[string]struct {
		fault redistest.Fault
		keeps bool
	}{
		"closed":  {redistest.LoseReply, false},
		"stalled": {redistest.StallReply, false},
		"closed-for-a-client-that-keeps-deadlines":  {redistest.LoseReply, true},
		"stalled-for-a-client-that-keeps-deadlines": {redistest.StallReply, true},
	} {
		t.Run(name, func(t *testing.T) {
			fault := test.fault
			server := redistest.Start(t)
			proxy := redistest.NewProxy(t, server)
			client := newClient(t, proxy.Network, proxy.Addr)
			if test.keeps {
				client = keeping(t, proxy.Network, proxy.Addr)
			}
			s := newStore(t, client, redisstore.Config{Timeout: 200 * time.Millisecond})
			direct := newStore(t, newClient(t, server.Network, server.Addr),
				redisstore.Config{Timeout: patient})
			allowed(t, s, on("alice", daily, 1))

			proxy.Set(fault)
			soon(t, 200*time.Millisecond, func() {
				_, err := s.Take(t.Context(), on("alice", daily, 1))
				failed(t, err, storekit.Ambiguous)
			})
			proxy.Set(redistest.None)
			proxy.Drop()
			assert.EqualValues(t, 98, left(t, direct, "alice", daily))
		})
	}
}

// keeping returns a client that keeps the deadlines of contexts.
func keeping(t testing.TB, network, addr string) *redis.Client {
	client := redis.NewClient(&redis.Options{
		Network: network, Addr: addr, ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func TestTake_AServerThatWakesUpLateDebitsNothing(t *testing.T) {
	t.Run("default", func(t *testing.T) { wakeUpLate(t, newClient) })
	t.Run("a-client-that-keeps-deadlines", func(t *testing.T) {
		wakeUpLate(t, keeping)
	})
}

func wakeUpLate(t *testing.T, connect func(testing.TB, string, string) *redis.Client) {
	server := redistest.Start(t)
	client := connect(t, server.Network, server.Addr)
	daily := limiter.PerDay(100)
	s := newStore(t, client, redisstore.Config{Timeout: 100 * time.Millisecond})
	fresh := newStore(t, client, redisstore.Config{Timeout: 100 * time.Millisecond})
	allowed(t, s, on("alice", daily, 1))

	server.Pause()
	var group sync.WaitGroup
	for i := range 20 {
		group.Go(func() {
			store := s
			if i%4 == 0 {
				store = fresh // one that does not know the server's clock
			}
			_, err := store.Take(t.Context(), on("alice", daily, 1))
			assert.Error(t, err)
		})
	}
	soon(t, 100*time.Millisecond, group.Wait)
	server.Resume()
	patientStore := newStore(t, client, redisstore.Config{Timeout: patient})
	assert.EqualValues(t, 99, left(t, patientStore, "alice", daily))
	require.Eventually(t, func() bool { // commands of the calls that were given up
		return client.PoolStats().IdleConns == client.PoolStats().TotalConns
	}, patient, time.Millisecond)
	assert.EqualValues(t, 99, left(t, patientStore, "alice", daily))
}

func TestTake_GoesOnWhenTheScriptIsForgotten(t *testing.T) {
	server := redistest.Start(t)
	s := newStore(t, newClient(t, server.Network, server.Addr), redisstore.Config{Timeout: patient})
	daily := limiter.PerDay(100)
	allowed(t, s, on("alice", daily, 1))
	server.Do("SCRIPT", "FLUSH")
	allowed(t, s, on("alice", daily, 1))
	assert.EqualValues(t, 98, left(t, s, "alice", daily))
}

func TestTake_GoesOnAfterARestart(t *testing.T) {
	server := redistest.Start(t)
	s := newStore(t, newClient(t, server.Network, server.Addr), redisstore.Config{Timeout: patient})
	daily := limiter.PerDay(100)
	for range 3 {
		allowed(t, s, on("alice", daily, 1))
	}
	server.Restart()
	errs := 0
	for range 10 {
		if _, err := s.Take(t.Context(), on("alice", daily, 1)); err != nil {
			errs++
		}
	}
	assert.LessOrEqual(t, errs, 1, "for a connection of before")
	assert.GreaterOrEqual(t, left(t, s, "alice", daily), int64(90), "at most one fresh capacity")
}

func TestTake_AFlushGivesOneFreshCapacity(t *testing.T) {
	server := redistest.Start(t)
	s := newStore(t, newClient(t, server.Network, server.Addr),
		redisstore.Config{Timeout: patient, RememberDenials: -1})
	daily, total := limiter.PerDay(5), 0
	for i := range 20 {
		if i == 10 {
			server.Do("FLUSHALL")
		}
		d, err := s.Take(t.Context(), on("alice", daily, 1))
		require.NoError(t, err)
		if d.Allowed() {
			total++
		}
	}
	assert.Equal(t, 10, total)
}

func TestTake_AReadOnlyServerIsUnavailableAndHeals(t *testing.T) {
	server := redistest.StartTCP(t)
	s := newStore(t, newClient(t, server.Network, server.Addr),
		redisstore.Config{Timeout: 200 * time.Millisecond})
	daily := limiter.PerDay(100)
	allowed(t, s, on("alice", daily, 1))
	server.Do("REPLICAOF", "127.0.0.1", "1")
	_, err := s.Take(t.Context(), on("alice", daily, 1))
	failed(t, err, storekit.Unavailable)
	server.Do("REPLICAOF", "NO", "ONE")
	allowed(t, s, on("alice", daily, 1))
	assert.EqualValues(t, 98, left(t, s, "alice", daily))
}

func TestTake_AServerOutOfMemoryIsUnavailableAndDebitsNothing(t *testing.T) {
	server := redistest.Start(t)
	s := newStore(t, newClient(t, server.Network, server.Addr), redisstore.Config{Timeout: patient})
	daily := limiter.PerDay(100)
	both := func() []limiter.Charge { return append(on("alice", daily, 1), on("bob", daily, 1)...) }
	allowed(t, s, both())
	server.Do("CONFIG", "SET", "maxmemory", "1")
	_, err := s.Take(t.Context(), both())
	failed(t, err, storekit.Unavailable)
	require.ErrorContains(t, err, "OOM")
	server.Do("CONFIG", "SET", "maxmemory", "0")
	assert.EqualValues(t, 99, left(t, s, "alice", daily))
	assert.EqualValues(t, 99, left(t, s, "bob", daily))
	allowed(t, s, both())
}

func TestNew_NeedsNoServer(t *testing.T) {
	server := redistest.Start(t)
	server.Kill()
	s := newStore(t, newClient(t, server.Network, server.Addr),
		redisstore.Config{Timeout: 100 * time.Millisecond})
	daily := limiter.PerDay(100)
	soon(t, 100*time.Millisecond, func() {
		_, err := s.Take(t.Context(), on("alice", daily, 1))
		failed(t, err, storekit.Unavailable, storekit.Timeout)
	})
	server.Restart()
	require.Eventually(t, func() bool {
		_, err := s.Take(t.Context(), on("alice", daily, 1))
		return err == nil
	}, patient, 10*time.Millisecond)
}

// A server that accepts connections and says nothing, and a client of which no
// time-out is shorter than seconds.
func TestTake_AServerThatHangsHoldsNobody(t *testing.T) {
	t.Run("default", func(t *testing.T) { hang(t, newClient) })
	t.Run("a-client-that-keeps-deadlines", func(t *testing.T) { hang(t, keeping) })
}

func hang(t *testing.T, connect func(testing.TB, string, string) *redis.Client) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	client := connect(t, "tcp", listener.Addr().String())
	s := newStore(t, client, redisstore.Config{Timeout: 100 * time.Millisecond})
	before := runtime.NumGoroutine()
	soon(t, 100*time.Millisecond, func() {
		var group sync.WaitGroup
		for range 100 {
			group.Go(func() {
				_, err := s.Take(t.Context(), on("alice", limiter.PerDay(100), 1))
				var store *limiter.StoreError
				assert.ErrorAs(t, err, &store)
			})
		}
		group.Wait()
	})
	_ = client.Close()
	_ = listener.Close()
	assert.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+2 },
		patient, 10*time.Millisecond)
}

func TestTake_WithoutAFreeConnectionNothingIsSent(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server)
	client := redis.NewClient(&redis.Options{Network: proxy.Network, Addr: proxy.Addr, PoolSize: 1})
	t.Cleanup(func() { _ = client.Close() })
	s := newStore(t, client, redisstore.Config{Timeout: 200 * time.Millisecond})
	daily := limiter.PerDay(100)
	allowed(t, s, on("alice", daily, 1))
	var group sync.WaitGroup
	group.Go(func() { _ = client.BLPop(t.Context(), 0, "nothing").Err() })
	require.Eventually(t, func() bool { return client.PoolStats().IdleConns == 0 },
		patient, time.Millisecond)
	_, err := s.Take(t.Context(), on("alice", daily, 1))
	failed(t, err, storekit.Timeout)
	assert.EqualValues(t, 1, proxy.Dials())
	server.Do("RPUSH", "nothing", "x")
	group.Wait()
	assert.EqualValues(t, 99, left(t, s, "alice", daily))
}

// A busy pool makes callers wait, and opens no more connections.
func TestTake_ManyCallersShareAFewConnections(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server)
	proxy.Delay(time.Millisecond)
	client := redis.NewClient(&redis.Options{Network: proxy.Network, Addr: proxy.Addr, PoolSize: 2})
	t.Cleanup(func() { _ = client.Close() })
	s := newStore(t, client, redisstore.Config{Timeout: patient})
	var group sync.WaitGroup
	var passed atomic.Int64
	for range 200 {
		group.Go(func() {
			d, err := s.Take(t.Context(), on("alice", limiter.PerDay(100), 1))
			if assert.NoError(t, err) && d.Allowed() {
				passed.Add(1)
			}
		})
	}
	group.Wait()
	assert.EqualValues(t, 100, passed.Load())
	assert.LessOrEqual(t, proxy.Dials(), int64(2))
}

func TestTake_ACallerThatLeavesGetsItsOwnError(t *testing.T) {
	server := redistest.Start(t)
	s := newStore(t, newClient(t, server.Network, server.Addr), redisstore.Config{Timeout: patient})
	daily := limiter.PerDay(100)
	allowed(t, s, on("alice", daily, 1))
	server.Pause()
	ctx, leave := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer leave()
	soon(t, 20*time.Millisecond, func() {
		_, err := s.Take(ctx, on("alice", daily, 1))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		var store *limiter.StoreError
		assert.NotErrorAs(t, err, &store)
	})
	server.Resume()
	assert.LessOrEqual(t, left(t, s, "alice", daily), int64(99))
}

// scripted is a client that answers commands with errors before the real one.
type scripted struct {
	redisstore.Client
	errs  []error
	calls int
}

func (s *scripted) Process(ctx context.Context, cmd redis.Cmder) error {
	s.calls++
	if len(s.errs) > 0 {
		err := s.errs[0]
		s.errs = s.errs[1:]
		cmd.SetErr(err)
		return err
	}
	return s.Client.Process(ctx, cmd)
}

// reply is an error reply of a server.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

// redis6 is how a server before Redis 7 begins what a command in a script has
// answered.
const redis6 = "ERR Error running script (call to f_0123): @user_script:40: @user_script: 40: "

func TestTake_TriesAgainOnlyWhereNothingRan(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := newClient(t, server.Network, server.Addr)
	daily := limiter.PerDay(100)
	tests := []struct {
		err   error
		again bool
		want  string
	}{
		{reply("LOADING Redis is loading the dataset in memory"), true, storekit.Unavailable},
		{reply("READONLY You can't write against a read only replica."), true, storekit.Unavailable},
		{reply("MASTERDOWN Link with MASTER is down"), true, storekit.Unavailable},
		{reply("BUSY Redis is busy running a script."), true, storekit.Unavailable},
		{reply("TRYAGAIN Multiple keys request during rehashing of slot"), true, storekit.Unavailable},
		{reply("CLUSTERDOWN The cluster is down"), true, storekit.Unavailable},
		{reply("OOM command not allowed when used memory > 'maxmemory'."), false, storekit.Unavailable},
		{reply("NOREPLICAS Not enough good replicas to write."), false, storekit.Unavailable},
		{reply("MISCONF Redis is configured to save RDB snapshots"), false, storekit.Unavailable},
		{reply("ERR max number of clients reached"), false, storekit.Unavailable},
		{reply("MOVED 3999 127.0.0.1:6381"), false, storekit.Unavailable},
		{reply("ASK 3999 127.0.0.1:6381"), false, storekit.Unavailable},
		{reply("CROSSSLOT Keys in request don't hash to the same slot"), false, storekit.Unavailable},
		{reply(redis6 + "-READONLY You can't write against a read only replica."), true,
			storekit.Unavailable},
		{reply(redis6 + "-OOM command not allowed when used memory > 'maxmemory'."), false,
			storekit.Unavailable},
		{reply(redis6 + "value is not an integer or out of range"), false, storekit.Other},
		{reply("NOAUTH Authentication required."), false, storekit.Other},
		{reply("NOPERM this user has no permissions"), false, storekit.Other},
		{&net.OpError{Op: "dial", Err: errors.New("connection refused")}, false, storekit.Unavailable},
		{redis.ErrPoolTimeout, false, storekit.Timeout},
		{redis.ErrClosed, false, storekit.Unavailable},
	}
	for _, test := range tests {
		t.Run(test.err.Error(), func(t *testing.T) {
			always := &scripted{client, []error{test.err, test.err, test.err, test.err}, 0}
			s := newStore(t, always, redisstore.Config{Prefix: newPrefix()})
			_, err := s.Take(t.Context(), on("alice", daily, 1))
			failed(t, err, test.want)
			require.ErrorIs(t, err, test.err)
			calls := map[bool]int{false: 1, true: 2}[test.again]
			assert.Equal(t, calls, always.calls)

			once := &scripted{client, []error{test.err}, 0}
			s = newStore(t, once, redisstore.Config{Prefix: newPrefix(), Timeout: patient / 5})
			_, err = s.Take(t.Context(), on("alice", daily, 1))
			assert.Equal(t, test.again, err == nil, "%v", err)
		})
	}
}

func TestTake_ANodeOfAClusterIsNamedAsTheCause(t *testing.T) {
	server := redistest.Start(t)
	for _, text := range []reply{"MOVED 3999 127.0.0.1:6381", "ASK 3999 127.0.0.1:6381",
		"CROSSSLOT Keys in request don't hash to the same slot"} {
		s := newStore(t, &scripted{newClient(t, server.Network, server.Addr), []error{text}, 0},
			redisstore.Config{})
		_, err := s.Take(t.Context(), on("alice", limiter.PerDay(1), 1))
		require.ErrorContains(t, err, "want a client of one server")
		require.ErrorIs(t, err, text)
	}
}

// reading is a hook that reads the words of commands, as tracing does.
type reading struct{ words atomic.Int64 }

func (*reading) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *reading) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		r.words.Add(int64(len(fmt.Sprint(cmd.Args()...)) + len(cmd.String())))
		return next(ctx, cmd)
	}
}

func (*reading) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// What a hook has looked at is not sent: nothing ran, so it is not ambiguous.
func TestTake_AHookThatReadsTheCommandMakesNothingAmbiguous(t *testing.T) {
	client := keeping(t, "tcp", "127.0.0.1:1")
	hook := &reading{}
	client.AddHook(hook)
	s := newStore(t, embedded{client}, redisstore.Config{Timeout: patient})
	_, err := s.Take(t.Context(), on("alice", limiter.PerDay(1), 1))
	failed(t, err, storekit.Unavailable)
	assert.Positive(t, hook.words.Load())
}

// The store changes nothing of the user's client.
func TestNew_LeavesTheOptionsOfTheClientAlone(t *testing.T) {
	server := redistest.Start(t)
	client := newClient(t, server.Network, server.Addr)
	before := *client.Options()
	s := newStore(t, client, redisstore.Config{})
	allowed(t, s, on("alice", limiter.PerDay(1), 1))
	after := *client.Options()
	assert.Equal(t, before.ReadTimeout, after.ReadTimeout)
	assert.Equal(t, before.WriteTimeout, after.WriteTimeout)
	assert.False(t, after.ContextTimeoutEnabled)
}

// When replies stall, a client with default options would hold its connections for
// ReadTimeout, some seconds.
func TestTake_GoesOnSoonAfterAStall(t *testing.T) {
	for name, connect := range map[string]func(testing.TB, string, string) *redis.Client{
		"default": newClient, "keeping": keeping,
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			s := newStore(t, connect(t, server.Network, server.Addr), redisstore.Config{})
			ask := func() error {
				_, err := s.Take(t.Context(), on("alice", limiter.PerDay(1000), 1))
				return err
			}
			require.Eventually(t, func() bool { return ask() == nil }, patient, time.Millisecond)
			server.Pause()
			var group sync.WaitGroup
			for range 64 {
				group.Go(func() {
					for range 10 {
						failed(t, ask(), storekit.Ambiguous, storekit.Timeout, storekit.Overload, storekit.Unavailable)
					}
				})
			}
			group.Wait()
			server.Resume()
			start := time.Now()
			require.Eventually(t, func() bool { return ask() == nil }, patient, time.Millisecond)
			assert.Less(t, time.Since(start), time.Second)
		})
	}
}

// panicking is a client with a hook that panics.
type panicking struct{}

func (panicking) Process(context.Context, redis.Cmder) error { panic("a hook") }

func TestTake_APanicOfTheClientIsAnError(t *testing.T) {
	s := newStore(t, panicking{}, redisstore.Config{})
	_, err := s.Take(t.Context(), on("alice", limiter.PerDay(1), 1))
	require.ErrorContains(t, err, "a hook")
}

// exploding is a hook that panics.
type exploding struct{}

func (exploding) DialHook(next redis.DialHook) redis.DialHook { return next }

func (exploding) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(context.Context, redis.Cmder) error { panic("a hook") }
}

func (exploding) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestTake_APanicOfAHookIsAnError(t *testing.T) {
	client := newClient(t, "tcp", "127.0.0.1:1")
	client.AddHook(exploding{})
	s := newStore(t, embedded{client}, redisstore.Config{Timeout: patient})
	_, err := s.Take(t.Context(), on("alice", limiter.PerDay(1), 1))
	require.ErrorContains(t, err, "a hook")
}

func TestSettle_ALostReplyConsumesTheReceipts(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server)
	s := newStore(t, newClient(t, proxy.Network, proxy.Addr),
		redisstore.Config{Timeout: 200 * time.Millisecond})
	charges := on("alice", limiter.PerDay(100), 10)
	allowed(t, s, charges)
	proxy.Set(redistest.LoseReply)
	charges[0].Cost = -4
	failed(t, s.Settle(t.Context(), charges), storekit.Ambiguous)
	proxy.Set(redistest.None)
	require.ErrorIs(t, s.Settle(t.Context(), charges), limiter.ErrReceipt)
	assert.EqualValues(t, 94, left(t, s, "alice", limiter.PerDay(100)))
}

func TestSettle_IsPossibleAgainWhereNothingRan(t *testing.T) {
	server := redistest.Start(t)
	client := &scripted{Client: newClient(t, server.Network, server.Addr)}
	s := newStore(t, client, redisstore.Config{Timeout: patient})
	charges := on("alice", limiter.PerDay(100), 10)
	allowed(t, s, charges)
	client.errs = []error{reply("OOM command not allowed")}
	charges[0].Cost = -4
	failed(t, s.Settle(t.Context(), charges), storekit.Unavailable)
	require.NoError(t, s.Settle(t.Context(), charges))
	assert.EqualValues(t, 94, left(t, s, "alice", limiter.PerDay(100)))
}
