package redisstore_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
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

// These tests are of clients and servers that do not do what they should, and of
// callers who make the most of it.

// within requires that f returns in time: what it tests would else wait for ever, or
// for minutes.
func within(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(patient):
		t.Fatal("no answer")
	}
}

// late lets a batch of two requests start, the second of which has more time, and
// returns when the time of the first has passed; the client has written nothing yet.
func (c *crowded) late(t *testing.T, first, second func()) {
	t.Helper()
	c.fill(t)
	var told sync.WaitGroup
	told.Add(1)
	c.send(t, func() { defer told.Done(); first() })
	time.Sleep(c.timeout / 2)
	c.send(t, second)
	c.gate.pass()
	require.Eventually(t, func() bool { return c.Waiting() == 0 }, patient, time.Millisecond)
	told.Wait()
}

// pass lets go who is held back, and holds back who comes from now on.
func (g *gate) pass() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.open)
	g.open = make(chan struct{})
}

// A request that was answered with timeout does not run, though its batch is sent later.
func TestStore_NothingRunsAfterATimeout(t *testing.T) {
	server := redistest.Start(t)
	daily := limiter.PerDay(100)
	t.Run("take", func(t *testing.T) {
		s := newCrowded(t, server, redisstore.Config{Timeout: 600 * time.Millisecond})
		s.late(t, func() {
			_, err := s.Take(t.Context(), on("alice", daily, 10))
			failed(t, err, storekit.Timeout)
		}, func() { allowed(t, s, on("bob", daily, 1)) })
		s.flush()
		assert.EqualValues(t, 100, left(t, s, "alice", daily))
	})
	t.Run("settle", func(t *testing.T) {
		s := newCrowded(t, server, redisstore.Config{Timeout: 600 * time.Millisecond})
		charges := on("carol", daily, 40)
		allowed(t, s, charges)
		charges[0].Cost = -10
		s.late(t, func() { failed(t, s.Settle(t.Context(), charges), storekit.Timeout) },
			func() { allowed(t, s, on("bob", daily, 1)) })
		s.flush()
		require.NoError(t, s.Settle(t.Context(), charges), "the receipts are valid still")
		assert.EqualValues(t, 70, left(t, s, "carol", daily))
	})
}

// While calls hang, a line whose requests have left or timed out can be joined, and
// holds neither memory nor a place.
func TestStore_LinesOfThoseWhoHaveLeftAreForgotten(t *testing.T) {
	server := redistest.Start(t)
	hung := func(t *testing.T) *crowded {
		s := newCrowded(t, server, redisstore.Config{Timeout: 20 * time.Millisecond})
		s.gate.shut()
		t.Cleanup(s.gate.release)
		for i := range 20 {
			_, err := s.Take(t.Context(), on(fmt.Sprint(i), limiter.PerDay(100), 1))
			failed(t, err, storekit.Timeout, storekit.Overload)
		}
		return s
	}
	t.Run("joined", func(t *testing.T) {
		s := hung(t)
		for range 3 {
			within(t, func() {
				_, err := s.Take(t.Context(), on("alice", limiter.PerDay(100), 1))
				failed(t, err, storekit.Timeout, storekit.Overload)
			})
		}
	})
	t.Run("memory", func(t *testing.T) {
		s := hung(t)
		charges := on("alice", limiter.PerDay(100), 1)
		charges[0].Receipt = limiter.Receipt{Taken: 1, Valid: true}
		heap := func() uint64 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return m.HeapObjects
		}
		before := heap()
		var group sync.WaitGroup
		for range 200 {
			group.Go(func() {
				for range 20 {
					_ = s.Settle(t.Context(), slices.Clone(charges))
				}
			})
		}
		group.Wait()
		assert.Less(t, heap(), before+4000)
	})
	t.Run("places", func(t *testing.T) {
		s := newCrowded(t, server, redisstore.Config{})
		s.Bound(8, 8, 128)
		s.fill(t)
		ctx, leave := context.WithCancel(t.Context())
		var gone sync.WaitGroup
		for i := range 8 {
			gone.Add(1)
			s.send(t, func() {
				defer gone.Done()
				_, _ = s.Take(ctx, on(fmt.Sprint(i), limiter.PerDay(100), 1))
			})
		}
		leave()
		gone.Wait()
		s.count = 0
		s.send(t, func() { allowed(t, s, on("late", limiter.PerDay(100), 1)) })
		s.flush()
	})
}

// embedded is a client inside a type of a user's, which the store cannot bound.
type embedded struct{ *redis.Client }

func TestStore_AClientThatIgnoresDeadlinesHoldsNobody(t *testing.T) {
	server := redistest.Start(t)
	noReadTimeout := redis.NewClient(&redis.Options{Network: server.Network, Addr: server.Addr,
		ContextTimeoutEnabled: true, ReadTimeout: -2})
	t.Cleanup(func() { _ = noReadTimeout.Close() })
	for name, client := range map[string]redisstore.Client{
		"embedded": embedded{newClient(t, server.Network, server.Addr)}, "no-read-timeout": noReadTimeout,
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t, client, redisstore.Config{Timeout: 100 * time.Millisecond})
			require.Eventually(t, func() bool {
				_, err := s.Take(t.Context(), on("alice", limiter.PerDay(100), 1))
				return err == nil
			}, patient, time.Millisecond)
			server.Pause()
			defer server.Resume()
			for range 20 {
				soon(t, 100*time.Millisecond, func() {
					_, err := s.Take(t.Context(), on("alice", limiter.PerDay(100), 1))
					assert.ErrorAs(t, err, new(*limiter.StoreError))
				})
			}
		})
	}
}

func TestStore_AReadTimeoutShorterThanTheStoresIsNoBound(t *testing.T) {
	proxy := redistest.NewProxy(t, redistest.Start(t))
	client := redis.NewClient(&redis.Options{Network: proxy.Network, Addr: proxy.Addr,
		ContextTimeoutEnabled: true, ReadTimeout: 20 * time.Millisecond})
	t.Cleanup(func() { _ = client.Close() })
	s := newStore(t, client, redisstore.Config{Timeout: patient})
	proxy.Delay(100 * time.Millisecond)
	allowed(t, s, on("alice", limiter.PerDay(100), 1))
}

// One caller's settles, which are first, delay others by a call and no more.
func TestStore_SettlesOfOneDelayNobody(t *testing.T) {
	server := redistest.Start(t)
	s := newCrowded(t, server, redisstore.Config{})
	charges := on("alice", limiter.PerDay(1_000_000), 2)
	allowed(t, s, charges)
	charges[0].Cost = -1
	s.fill(t)
	for range 1000 {
		s.send(t, func() { _ = s.Settle(t.Context(), slices.Clone(charges)) })
	}
	var calls int64
	s.send(t, func() {
		allowed(t, s, on("bob", limiter.PerDay(100), 1))
		calls = s.gate.calls.Load()
	})
	before := s.gate.calls.Load()
	s.flush()
	assert.LessOrEqual(t, calls-before, int64(3))
}

// A full queue is no failure of the store for callers whose own deadline comes first.
func TestStore_AFullQueueOpensNothingForShortDeadlines(t *testing.T) {
	server := redistest.Start(t)
	s := newCrowded(t, server, redisstore.Config{Timeout: 2 * time.Second})
	l := limiter.Must(limiter.New(s.Store, []limiter.Budget{{Name: "api",
		Scope: limiter.ByPrincipal | limiter.ByRoute, Limit: limiter.PerDay(1), OnError: limiter.Open}},
		limiter.Config{}))
	s.gate.shut()
	defer s.gate.release()
	var passed atomic.Int64
	var group sync.WaitGroup
	for i := range 1500 {
		group.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			d, _ := l.Take(ctx, limiter.Caller{Principal: limiter.Principal{Kind: "user", ID: "alice"},
				Route: fmt.Sprint(i)}, 1)
			if d.Allowed() {
				passed.Add(1)
			}
		})
	}
	group.Wait()
	assert.Zero(t, passed.Load())
}

func TestStore_ASlotIsGivenBackThoughAllHaveLeft(t *testing.T) {
	server := redistest.Start(t)
	s := newCrowded(t, server, redisstore.Config{Timeout: 200 * time.Millisecond})
	s.gate.shut()
	held := s.gate.open
	defer close(held)
	for i := range 2 {
		ctx, leave := context.WithTimeout(t.Context(), 10*time.Millisecond)
		_, err := s.Take(ctx, on(fmt.Sprint(i), limiter.PerDay(100), 1))
		leave()
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	s.gate.mu.Lock()
	s.gate.open = nil // those two hang still, others do not
	s.gate.mu.Unlock()
	require.Eventually(t, func() bool {
		_, err := s.Take(t.Context(), on("late", limiter.PerDay(100), 1))
		return err == nil
	}, patient, time.Millisecond)
}

// exiting is a client whose goroutine ends in it, as in a test that fails there.
type exiting struct {
	redisstore.Client
	exits atomic.Bool
}

func (e *exiting) Process(ctx context.Context, cmd redis.Cmder) error {
	if e.exits.Load() {
		runtime.Goexit()
	}
	return e.Client.Process(ctx, cmd)
}

func TestStore_AClientThatEndsTheGoroutineIsAnError(t *testing.T) {
	server := redistest.Start(t)
	client := &exiting{Client: newClient(t, server.Network, server.Addr)}
	s := newStore(t, client, redisstore.Config{Timeout: patient})
	client.exits.Store(true)
	within(t, func() {
		for range 20 {
			_, err := s.Take(t.Context(), on("alice", limiter.PerDay(100), 1))
			failed(t, err, storekit.Unavailable)
		}
	})
	client.exits.Store(false)
	allowed(t, s, on("alice", limiter.PerDay(100), 1))
}

// A user who lacks a right gets an error, and no account is changed, whatever the
// right.
func TestTake_WhoLacksARightChangesNothing(t *testing.T) {
	const rights = "evalsha eval time get mget getrange exists set setrange pexpireat del hello"
	log := limiter.Limit{Tokens: 10, Per: time.Hour, Algorithm: limiter.RollingLog}
	for lacks := range strings.FieldsSeq("time get mget getrange exists set setrange pexpireat del") {
		t.Run(lacks, func(t *testing.T) {
			server := redistest.Start(t)
			rule := []any{"ACL", "SETUSER", "ration", "on", ">secret", "~ration:*", "-@all"}
			for right := range strings.FieldsSeq(rights) {
				if right != lacks {
					rule = append(rule, "+"+right)
				}
			}
			server.Do(rule...)
			good := newStore(t, newClient(t, server.Network, server.Addr), redisstore.Config{Timeout: patient})
			client := redis.NewClient(&redis.Options{Network: server.Network, Addr: server.Addr,
				Username: "ration", Password: "secret"})
			t.Cleanup(func() { _ = client.Close() })
			s := newStore(t, client, redisstore.Config{Timeout: patient})
			for name, l := range map[string]limiter.Limit{"bucket": limiter.PerDay(10), "log": log} {
				allowed(t, good, on(name, l, 5))
				for range 3 {
					before := left(t, good, name, l)
					if _, err := s.Take(t.Context(), on(name, l, 1)); err != nil {
						assert.Equal(t, before, left(t, good, name, l), name)
					}
				}
				assert.Positive(t, server.Do("PTTL", keyOf(name)), name)
			}
		})
	}
}

// The rights of the package comment are enough for all that a store does.
func TestStore_NeedsNoMoreRightsThanDocumented(t *testing.T) {
	server := redistest.StartTCP(t)
	server.Do(words(asUser(t))...)
	options := recommendedOptions()
	s := newStore(t, withUser(options)(t, server.Network, server.Addr), redisstore.Config{Timeout: patient})
	for _, a := range []limiter.Algorithm{limiter.TokenBucket, limiter.FixedWindow, limiter.RollingLog} {
		l := limiter.Limit{Tokens: 10, Per: time.Hour, Algorithm: a}
		charges := on(fmt.Sprint(a), l, 5)
		allowed(t, s, charges)
		charges[0].Cost = -2
		require.NoError(t, s.Settle(t.Context(), charges))
		assert.EqualValues(t, 7, left(t, s, fmt.Sprint(a), l))
		server.Do("SCRIPT", "FLUSH")
		require.NoError(t, s.Reset(t.Context(), charges))
		assert.EqualValues(t, 10, left(t, s, fmt.Sprint(a), l))
	}
	assert.Empty(t, server.Do("ACL", "LOG"), "nothing was refused")
}

func TestStore_ALongTimeoutIsNoReasonToWaitForMinutes(t *testing.T) {
	server := redistest.Start(t)
	client := &scripted{newClient(t, server.Network, server.Addr), []error{reply("LOADING x")}, 0}
	s := newStore(t, client, redisstore.Config{Timeout: time.Hour})
	within(t, func() { allowed(t, s, on("alice", limiter.PerDay(100), 1)) })
}

// The clock of a test may stand still: an account that is used stays.
func TestTake_AClockThatStandsStillKeepsAccounts(t *testing.T) {
	server := redistest.Start(t)
	at := time.Now()
	s := newStore(t, newClient(t, server.Network, server.Addr),
		redisstore.Config{Timeout: patient, Now: func() time.Time { return at }})
	for _, l := range each {
		l.Per = time.Hour
		user := l.String()
		allowed(t, s, on(user, l, 1))
		server.Do("PEXPIRE", keyOf(user), 5000) // most of the time of its key has passed
		allowed(t, s, on(user, l, 1))
		assert.Greater(t, server.Do("PTTL", keyOf(user)), int64(time.Hour/2/time.Millisecond), user)
	}
}

// A call that cannot end holds none of the client's connections for longer than a
// second, so that others can be made.
func TestTake_GoesOnSoonAfterRepliesWereLost(t *testing.T) {
	for _, size := range []int{1, 4, 10} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			proxy := redistest.NewProxy(t, redistest.Start(t))
			client := redis.NewClient(&redis.Options{Network: proxy.Network, Addr: proxy.Addr, PoolSize: size})
			t.Cleanup(func() { _ = client.Close() })
			s := newStore(t, client, redisstore.Config{})
			ask := func(n int) error {
				_, err := s.Take(t.Context(), on(fmt.Sprint(n), limiter.PerDay(1000), 1))
				return err
			}
			require.Eventually(t, func() bool { return ask(0) == nil }, patient, time.Millisecond)
			proxy.Set(redistest.StallReply)
			var group sync.WaitGroup
			for g := range 8 {
				group.Go(func() {
					for range 5 {
						assert.Error(t, ask(g))
					}
				})
			}
			group.Wait()
			proxy.Set(redistest.None)
			start := time.Now()
			require.Eventually(t, func() bool { return ask(9) == nil }, patient, time.Millisecond)
			assert.Less(t, time.Since(start), 2*time.Second)
		})
	}
}

func TestNew_RefusesTimeoutsOfNoUse(t *testing.T) {
	client := redis.NewClient(&redis.Options{})
	defer func() { _ = client.Close() }()
	for _, timeout := range []time.Duration{math.MaxInt64, time.Hour + 1, time.Microsecond} {
		_, err := redisstore.New(client, redisstore.Config{Timeout: timeout})
		require.ErrorContains(t, err, "Config.Timeout")
	}
}

// What a request waits for a connection is no part of the round trip: with the rest of
// its time it can be answered.
func TestTake_AWaitForAConnectionIsNoRoundTrip(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Network: server.Network, Addr: server.Addr, PoolSize: 1})
	t.Cleanup(func() { _ = client.Close() })
	s := newStore(t, client, redisstore.Config{Timeout: 600 * time.Millisecond})
	allowed(t, s, on("alice", limiter.PerDay(1000), 1))
	for range 8 {
		conn := client.Conn()
		require.NoError(t, conn.Ping(t.Context()).Err())
		time.AfterFunc(350*time.Millisecond, func() { _ = conn.Close() })
		allowed(t, s, on("alice", limiter.PerDay(1000), 1))
	}
	assert.Less(t, s.RoundTrip(), 200*time.Millisecond)
}

// After a slow period, when nothing is in flight, a server is asked whatever the
// estimate of the round trip is.
func TestTake_AnIdleServerIsAsked(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Start(t))
	s := newStore(t, newClient(t, proxy.Network, proxy.Addr), redisstore.Config{Timeout: patient})
	allowed(t, s, on("alice", limiter.PerDay(1000), 1))
	proxy.Delay(900 * time.Millisecond)
	for range 4 {
		allowed(t, s, on("alice", limiter.PerDay(1000), 1))
	}
	proxy.Delay(0)
	estimate := s.RoundTrip()
	ctx, cancel := context.WithTimeout(t.Context(), estimate*3/4)
	defer cancel()
	_, err := s.Take(ctx, on("alice", limiter.PerDay(1000), 1))
	require.NoError(t, err)
}

// As gRPC makes of "grpc-timeout: 99999999H".
func TestTake_ADeadlineFarAwayIsNone(t *testing.T) {
	server := redistest.Start(t)
	s := newCrowded(t, server, redisstore.Config{Timeout: 20 * time.Millisecond})
	s.gate.shut()
	for i := range 20 {
		_, err := s.Take(t.Context(), on(fmt.Sprint(i), limiter.PerDay(100), 1))
		failed(t, err, storekit.Timeout, storekit.Overload)
	}
	ctx, cancel := context.WithTimeout(t.Context(), math.MaxInt64)
	defer cancel()
	within(t, func() {
		_, err := s.Take(ctx, on("alice", limiter.PerDay(100), 1))
		failed(t, err, storekit.Timeout, storekit.Overload)
	})
	s.gate.release()
}

func TestTake_ADeadlineFarAwayIsNoneInAFullQueue(t *testing.T) {
	server := redistest.Start(t)
	s := newCrowded(t, server, redisstore.Config{})
	s.Bound(1, 1, 128)
	s.fill(t)
	s.send(t, func() { _, _ = s.Take(t.Context(), on("bob", limiter.PerDay(100), 1)) })
	ctx, cancel := context.WithTimeout(t.Context(), math.MaxInt64)
	defer cancel()
	_, err := s.Take(ctx, on("alice", limiter.PerDay(100), 1))
	s.flush()
	failed(t, err, storekit.Overload)
}

// unwritten lets the first command through, and of the others none gets a connection.
type unwritten struct {
	redisstore.Client
	armed atomic.Bool
	calls atomic.Int64
}

func (u *unwritten) Process(ctx context.Context, cmd redis.Cmder) error {
	if u.armed.Load() && u.calls.Add(1) > 1 {
		<-ctx.Done()
		cmd.SetErr(ctx.Err())
		return ctx.Err()
	}
	return u.Client.Process(ctx, cmd)
}

// The first attempt is refused with NOSCRIPT, the second is never written: nothing ran.
func TestSettle_RefusedAndThenNotSentIsNotAmbiguous(t *testing.T) {
	server := redistest.Start(t)
	u := &unwritten{Client: newClient(t, server.Network, server.Addr)}
	s := newStore(t, u, redisstore.Config{Timeout: 200 * time.Millisecond})
	charges := on("alice", limiter.PerDay(100), 10)
	require.Eventually(t, func() bool {
		_, err := s.Take(t.Context(), charges)
		return err == nil
	}, patient, time.Millisecond)
	server.Do("SCRIPT", "FLUSH")
	u.armed.Store(true)
	charges[0].Cost = -5
	err := s.Settle(t.Context(), charges)
	u.armed.Store(false)
	var store *limiter.StoreError
	require.ErrorAs(t, err, &store)
	assert.Equal(t, storekit.Timeout, store.Reason)
	assert.True(t, charges[0].Receipt.Valid)
}

// A peek changes nothing, whatever instants the others of its batch have (R8).
func TestPeek_MovesNoAccountOfItsBatch(t *testing.T) {
	got := map[bool]limiter.Result{}
	for _, shadow := range []bool{false, true} {
		server := redistest.Start(t)
		var now atomic.Int64
		start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		now.Store(start.UnixNano())
		s := newCrowded(t, server, redisstore.Config{MaxAhead: time.Hour,
			Now: func() time.Time { return time.Unix(0, now.Load()) }})
		l := limiter.PerMinute(60)
		s.fill(t)
		s.send(t, func() { _, err := s.Peek(t.Context(), on("alice", l, 1)); assert.NoError(t, err) })
		now.Add(-int64(30 * time.Second))
		s.send(t, func() { _, err := s.Take(t.Context(), on("alice", l, 60)); assert.NoError(t, err) })
		s.send(t, func() {
			charges := on("bob", l, 1)
			charges[0].Shadow = shadow
			_, err := s.Take(t.Context(), charges)
			assert.NoError(t, err)
		})
		s.flush()
		now.Add(int64(15 * time.Second))
		charges := on("alice", l, 1)
		_, err := s.Peek(t.Context(), charges)
		require.NoError(t, err)
		got[shadow] = charges[0].Result
	}
	assert.Equal(t, got[true], got[false])
}
