package redisstore_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
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

// bench is a store, and what can be done to its server.
type bench struct {
	server *redistest.Server
	proxy  *redistest.Proxy
	client *redis.Client
	store  *redisstore.Store
}

// fault is one thing that can be wrong with a server, or with the way to it.
type fault struct {
	name    string
	args    []string // of redis-server
	forgets int      // how often the server forgets all accounts
	decides bool     // some requests are decided meanwhile
	short   bool     // in the ordinary tests, too

	fail, heal func(t *testing.T, b *bench)
}

// proxied is a fault of the proxy; it ends with new connections.
func proxied(name string, f redistest.Fault) fault {
	return fault{
		name: name,
		fail: func(_ *testing.T, b *bench) { b.proxy.Set(f) },
		heal: func(_ *testing.T, b *bench) {
			b.proxy.Set(redistest.None)
			b.proxy.Drop()
		},
	}
}

// late is a fault of the proxy that only delays.
func late(name string, least, most time.Duration) fault {
	return fault{
		name: name, decides: least < timeout,
		fail: func(_ *testing.T, b *bench) { b.proxy.DelayBetween(least, most) },
		heal: func(_ *testing.T, b *bench) { b.proxy.Delay(0) },
	}
}

// commanded is a fault that commands of the server begin and end.
func commanded(name string, fail, heal string) fault {
	return fault{
		name: name,
		fail: func(_ *testing.T, b *bench) { b.do(fail) },
		heal: func(_ *testing.T, b *bench) { b.do(heal) },
	}
}

// do sends commands, with a semicolon between them.
func (b *bench) do(commands string) {
	for command := range strings.SplitSeq(commands, ";") {
		b.server.Do(words(command)...)
	}
}

// words returns the words of a command.
func words(command string) (all []any) {
	for word := range strings.FieldsSeq(command) {
		all = append(all, word)
	}
	return all
}

// with changes a fault.
func (f fault) with(change func(*fault)) fault {
	change(&f)
	return f
}

func inShort(f *fault) { f.short = true }

func faults() []fault {
	return []fault{
		{name: "SIGSTOP",
			fail: func(_ *testing.T, b *bench) { b.server.Pause() },
			heal: func(_ *testing.T, b *bench) { b.server.Resume() }},
		{name: "SIGKILL", forgets: 1, short: true,
			fail: func(_ *testing.T, b *bench) { b.server.Kill() },
			heal: func(t *testing.T, b *bench) { b.restart(t) }},
		{name: "restart", forgets: 1, decides: true,
			fail: func(t *testing.T, b *bench) { b.restart(t) },
			heal: func(*testing.T, *bench) {}},
		{name: "restart with persistence", decides: true,
			args: []string{"--appendonly", "yes", "--appendfsync", "always"},
			fail: func(t *testing.T, b *bench) { b.restart(t) },
			heal: func(*testing.T, *bench) {}},
		proxied("accept and never answer", redistest.Mute).with(inShort),
		proxied("black hole", redistest.BlackHole),
		proxied("half a reply", redistest.HalveReply).with(inShort),
		proxied("a byte each 5 ms", redistest.TrickleReply),
		proxied("RST", redistest.ResetReply),
		late("45 to 60 ms", 45*time.Millisecond, 60*time.Millisecond),
		late("500 ms", 500*time.Millisecond, 500*time.Millisecond),
		commanded("OOM", "CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0").with(inShort),
		commanded("READONLY", "REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"),
		{name: "BUSY",
			fail: func(t *testing.T, b *bench) { b.busy(t) },
			heal: func(_ *testing.T, b *bench) { b.do("SCRIPT KILL") }},
		// The first request to find a foreign value deletes it.
		{name: "wrong type", forgets: 1, decides: true, short: true,
			fail: func(_ *testing.T, b *bench) {
				for i := range accounts {
					key := b.store.KeysOf([]limiter.Key{keyOfAccount(i)})[0]
					b.server.Do("EVAL", "redis.call('DEL', KEYS[1]) redis.call('RPUSH', KEYS[1], 'x')", 1, key)
				}
			},
			heal: func(*testing.T, *bench) {}},
		commanded("wrong password",
			"ACL SETUSER ration resetpass >other;CLIENT KILL USER ration",
			"ACL SETUSER ration resetpass >secret").with(inShort),
		commanded("ACL without EVAL",
			"ACL SETUSER ration -eval -evalsha", "ACL SETUSER ration +eval +evalsha"),
	}
}

const (
	accounts = 20
	timeout  = 50 * time.Millisecond
)

func keyOfAccount(i int) limiter.Key {
	return limiter.Key{Budget: "api", Principal: userCaller(fmt.Sprint(i)).Principal}
}

// asUser returns the ACL line of the package comment.
func asUser(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	_, line, found := strings.Cut(string(text), "//	ACL SETUSER ")
	require.True(t, found)
	line, _, _ = strings.Cut(line, "\n//\n")
	return "ACL SETUSER " + strings.ReplaceAll(line, "//", "")
}

// restart kills the server and starts it again.
func (b *bench) restart(t *testing.T) {
	b.server.Restart()
	b.do(asUser(t))
}

// busy lets the server run a script that does not end.
func (b *bench) busy(t *testing.T) {
	b.do("CONFIG SET busy-reply-threshold 1")
	client := newClient(t, b.server.Network, b.server.Addr)
	go func() { _ = client.Eval(context.Background(), "while true do end", nil).Err() }()
	require.Eventually(t, func() bool {
		err := client.Ping(t.Context()).Err()
		return err != nil && strings.HasPrefix(err.Error(), "BUSY")
	}, patient, time.Millisecond)
}

// newBench starts a server whose accounts have been used a little.
func newBench(t *testing.T, f fault, connect func(testing.TB, string, string) *redis.Client) *bench {
	b := &bench{server: redistest.StartTCP(t, f.args...)}
	b.do(asUser(t))
	b.proxy = redistest.NewTCPProxy(t, b.server)
	b.client = connect(t, b.proxy.Network, b.proxy.Addr)
	b.store = newStore(t, b.client, redisstore.Config{Timeout: timeout})
	return b
}

// withUser makes clients of the user in asUser.
func withUser(options redis.Options) func(t testing.TB, network, addr string) *redis.Client {
	return func(t testing.TB, network, addr string) *redis.Client {
		options.Network, options.Addr = network, addr
		options.Username, options.Password = "ration", "secret"
		client := redis.NewClient(&options)
		t.Cleanup(func() { _ = client.Close() })
		return client
	}
}

// burst makes so many requests at once, and something else in their midst. It returns
// how long the slowest took.
func (b *bench) burst(t *testing.T, l *limiter.Limiter, n int, count *tally, meanwhile func()) time.Duration {
	var slowest atomic.Int64
	var group sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		group.Go(func() {
			<-start
			began := time.Now()
			count.ask(t.Context(), l, userCaller(fmt.Sprint(i%accounts)))
			took := int64(time.Since(began))
			for old := slowest.Load(); took > old && !slowest.CompareAndSwap(old, took); old = slowest.Load() {
			}
		})
	}
	close(start)
	meanwhile()
	group.Wait()
	return time.Duration(slowest.Load())
}

// state is what a fault must leave as it was, but that a healthy store has up to eight
// connections.
type state struct {
	goroutines int // without the two that the proxy has for each connection
	conns      int
	heap       uint64
}

func (b *bench) state() state {
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	conns := b.proxy.Open()
	return state{runtime.NumGoroutine() - 2*conns, conns, memory.HeapAlloc}
}

// delays begins to watch how late timers are, because other processes and the requests
// themselves use the processors. What it returns ends that, and returns the longest.
func delays() func() time.Duration {
	stop, longest := make(chan struct{}), make(chan time.Duration)
	go func() {
		for most := time.Duration(0); ; {
			due := time.Now().Add(time.Millisecond)
			select {
			case <-stop:
				longest <- most
				return
			case <-time.After(time.Millisecond):
				most = max(most, time.Since(due))
			}
		}
	}()
	return func() time.Duration {
		close(stop)
		return <-longest
	}
}

// run lets a fault begin while requests are in flight, last for some time, and end. The
// accounts have enough for four bursts. Times are bounded if within, which is how much
// longer than the timeout an answer may take, is not 0.
func (f *fault) run(
	t *testing.T, connect func(testing.TB, string, string) *redis.Client, n int, lasts, within time.Duration,
) {
	b := newBench(t, *f, connect)
	capacity := int64(4 * n / accounts)
	l := newLimiter(t, b.store, limiter.PerDay(capacity), limiter.Closed)
	decides := func() bool {
		_, err := b.store.Peek(t.Context(), on("somebody", limiter.PerDay(1), 0))
		return err == nil
	}
	require.Eventually(t, decides, patient, time.Millisecond)
	var before, during, after tally
	b.burst(t, l, n, &before, func() {})
	was := b.state()

	late := delays()
	began := time.Now()
	slowest := b.burst(t, l, n, &during, func() { f.fail(t, b) })
	for rounds := 0; rounds < 3 || time.Since(began) < lasts; rounds++ {
		slowest = max(slowest, b.burst(t, l, n, &during, func() {}))
	}
	delay := late()
	f.heal(t, b)
	healed := time.Now()
	require.Eventually(t, decides, patient, time.Millisecond)
	back := time.Since(healed)
	require.Eventually(t, func() bool {
		var all tally
		b.burst(t, l, n, &all, func() {})
		after.add(&all)
		return all.decided.Load() == int64(n) && all.allowed.Load() == 0
	}, patient, time.Millisecond, "the accounts are used up")

	var total tally
	total.add(&before)
	total.add(&during)
	total.add(&after)
	t.Logf("%v; slowest %v, where a timer was up to %v late; back after %v", &during, slowest, delay, back)
	assert.Equal(t, total.asked.Load(), total.decided.Load()+total.failed.Load())
	assert.Equal(t, total.failed.Load(), total.sum())
	all := accounts * capacity
	assert.LessOrEqual(t, total.allowed.Load(), int64(1+f.forgets)*all)
	assert.GreaterOrEqual(t, total.allowed.Load()+total.of(storekit.Ambiguous).Load(), all)
	if !f.decides {
		assert.LessOrEqual(t, during.decided.Load(), int64(n), "only while it began")
	}
	if within > 0 {
		assert.LessOrEqual(t, slowest, timeout+within)
		assert.LessOrEqual(t, back, 1200*time.Millisecond)
	}
	var is state
	assert.Eventually(t, func() bool {
		is = b.state()
		return is.goroutines <= was.goroutines+2 && is.conns <= 8 && is.heap <= was.heap+4<<20
	}, patient, 10*time.Millisecond, "from %+v to %+v", was, &is)
}

// Whatever is wrong with the server, each request is decided or fails for a reason, and
// no more are allowed than the accounts hold. How long that takes is for make
// test-faults, which runs all of the table.
func TestStore_EveryFaultIsAnsweredExactly(t *testing.T) {
	for _, f := range faults() {
		if f.short {
			t.Run(f.name, func(t *testing.T) { f.run(t, withUser(redis.Options{}), 200, 0, 0) })
		}
	}
}
