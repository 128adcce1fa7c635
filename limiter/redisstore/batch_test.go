package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/lab/oracle"
	"github.com/ration-go/ration/internal/lab/redistest"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/redisstore"
	"github.com/ration-go/ration/limiter/storekit"
)

// gate is a client that holds commands back while it is shut.
type gate struct {
	redisstore.Client
	mu    sync.Mutex
	open  chan struct{} // nil: not shut
	held  atomic.Int64
	calls atomic.Int64
}

func (g *gate) Process(ctx context.Context, cmd redis.Cmder) error {
	g.calls.Add(1)
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	if open != nil {
		g.held.Add(1)
		<-open
		g.held.Add(-1)
	}
	return g.Client.Process(ctx, cmd)
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = make(chan struct{})
}

func (g *gate) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.open)
	g.open = nil
}

// crowded is a store of which all slots are in use, so that requests wait and then
// travel together.
type crowded struct {
	*redisstore.Store
	timeout time.Duration
	gate    *gate
	group   sync.WaitGroup
	count   int
}

// fill shuts the gate and lets requests of others take the slots.
func (c *crowded) fill(t *testing.T) {
	t.Helper()
	c.gate.shut()
	c.count = 0
	for i := range 2 {
		c.group.Go(func() {
			_, err := c.Peek(t.Context(), on(fmt.Sprint("other", i), limiter.PerHour(1), 0))
			assert.NoError(t, err)
		})
	}
	require.Eventually(t, func() bool { return c.gate.held.Load() == 2 }, patient, 50*time.Microsecond)
}

// send lets a request wait.
func (c *crowded) send(t *testing.T, f func()) {
	t.Helper()
	c.group.Go(f)
	c.count++
	for start := time.Now(); c.Waiting() < c.count; {
		require.Less(t, time.Since(start), patient)
		time.Sleep(10 * time.Microsecond)
	}
}

// flush lets all go, and returns when all have their answers.
func (c *crowded) flush() {
	c.gate.release()
	c.group.Wait()
}

func newCrowded(t *testing.T, server *redistest.Server, cfg redisstore.Config) *crowded {
	t.Helper()
	g := &gate{Client: newClient(t, server.Network, server.Addr)}
	if cfg.Timeout == 0 {
		cfg.Timeout = patient
	}
	s := newStore(t, g, cfg)
	s.Slots(2)
	s.NeverOpen()
	require.Eventually(t, func() bool { // the script and the server's clock are known then
		_, err := s.Peek(t.Context(), on("other", limiter.PerHour(1), 0))
		return err == nil
	}, patient, time.Millisecond)
	return &crowded{Store: s, timeout: cfg.Timeout, gate: g}
}

// batched is one request of a batch, and what the store and the oracle say.
type batched struct {
	op       string
	charges  []limiter.Charge
	decision limiter.Decision
	err      error
}

// line returns what makes requests one line.
func (b *batched) line() string {
	if b.op == "settle" {
		return ""
	}
	var text strings.Builder
	fmt.Fprint(&text, b.op)
	for _, c := range b.charges {
		fmt.Fprintf(&text, "|%v %v %v", c.Key, c.Limit, c.Shadow)
	}
	return text.String()
}

func (b *batched) owner() string {
	for _, c := range b.charges {
		if c.Key.Principal.ID != "" {
			return c.Key.Principal.ID
		}
	}
	return ""
}

// order returns the requests in the order in which the store decides them: settles
// first, and of both a line of each owner in turn, with the requests of a line in order
// of arrival.
func order(all []*batched) (ordered []*batched) {
	for _, settles := range []bool{true, false} {
		lines, owners := map[string][]*batched{}, map[string][]string{}
		var turns []string
		for i, b := range all {
			if (b.op == "settle") != settles {
				continue
			}
			line := b.line()
			if settles { // each is a line of its own
				line = fmt.Sprint(i)
			}
			if lines[line] == nil {
				if owners[b.owner()] == nil {
					turns = append(turns, b.owner())
				}
				owners[b.owner()] = append(owners[b.owner()], line)
			}
			lines[line] = append(lines[line], b)
		}
		for len(turns) > 0 {
			owner := turns[0]
			ordered = append(ordered, lines[owners[owner][0]]...)
			turns, owners[owner] = turns[1:], owners[owner][1:]
			if len(owners[owner]) > 0 {
				turns = append(turns, owner)
			}
		}
	}
	return ordered
}

// generator makes requests on few accounts of all algorithms, under limits that
// change.
type generator struct {
	*rand.Rand
	simple bool             // buckets alone, under limits that do not change
	open   []limiter.Charge // with receipts
}

func (g *generator) request() *batched {
	if len(g.open) > 0 && g.IntN(5) == 0 {
		n := 1 + g.IntN(min(len(g.open), 3))
		charges := slices.Clone(g.open[:n])
		g.open = g.open[n:]
		for i := range charges {
			charges[i].Cost = g.Int64N(charges[i].Receipt.Taken+4) - charges[i].Receipt.Taken
		}
		return &batched{op: "settle", charges: charges}
	}
	limits := []limiter.Limit{
		{Tokens: 7, Per: 10 * time.Second}, {Tokens: 7, Per: 10 * time.Second, Burst: 12},
		{Tokens: 20, Per: time.Minute}, {Tokens: 7, Per: 10 * time.Second, Algorithm: limiter.FixedWindow},
		{Tokens: 9, Per: 10 * time.Second, Algorithm: limiter.RollingLog},
		{Tokens: 6, Per: 10 * time.Second, Algorithm: limiter.RollingLog},
		{Tokens: 6, Per: time.Second, Algorithm: limiter.RollingLog},
	}
	b := &batched{op: []string{"take", "take", "take", "take", "peek"}[g.IntN(5)]}
	if g.IntN(30) == 0 {
		b.op = "reset"
	}
	user := []string{"alice", "bob", "carol"}[g.IntN(3)]
	for i := range 1 + g.IntN(3) {
		key := limiter.Key{Budget: string(rune('a' + (i+g.IntN(2))%3))}
		if key.Budget != "c" { // c is everybody's
			key.Principal = limiter.Principal{Kind: "user", ID: user}
		}
		limit := limits[int(key.Budget[0]-'a')*2]
		if g.simple {
			limit = limits[int(key.Budget[0]-'a')%2*2]
		} else if g.IntN(8) == 0 {
			limit = limits[g.IntN(len(limits))]
		}
		same := slices.IndexFunc(b.charges, func(c limiter.Charge) bool { return c.Key == key })
		c := limiter.Charge{Key: key, Limit: limit, Cost: g.Int64N(4), Shadow: !g.simple && g.IntN(6) == 0}
		if g.IntN(20) == 0 {
			c.Cost = 50
		}
		if same >= 0 {
			c.Limit, c.Shadow = b.charges[same].Limit, b.charges[same].Shadow
		}
		b.charges = append(b.charges, c)
	}
	return b
}

// A batch is decided as its requests would be one by one, each with its own answer:
// compared with the oracle.
func TestStore_ABatchIsDecidedLikeItsRequestsOneByOne(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var now atomic.Int64
	merged := 0
	streams := uint64(240 / slowdown)
	if testing.Short() {
		streams = 40
	}
	for seed := range streams {
		g := &generator{Rand: rand.New(rand.NewPCG(seed, 5)), simple: seed%3 == 0}
		now.Store(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano())
		s := newCrowded(t, server, redisstore.Config{Prefix: newPrefix(), MaxAhead: forever,
			Now: func() time.Time { return time.Unix(0, now.Load()) }})
		s.Bound(1000, 1000, 10_000)
		want := oracle.NewAs(oracle.Rules(rules))
		for range 6 {
			now.Add(g.Int64N(int64(4*time.Second)) / 1000 * 1000)
			if g.IntN(10) == 0 {
				now.Add(-int64(time.Second))
			}
			s.fill(t)
			all := make([]*batched, 2+g.IntN(14))
			asked := make([]*batched, len(all))
			for i := range all {
				all[i] = g.request()
				if i > 0 && g.IntN(3) == 0 && all[i-1].op == "take" { // the same, and often cost the same
					again := batched{op: "take", charges: slices.Clone(all[i-1].charges)}
					if g.IntN(3) == 0 {
						again.charges[0].Cost = g.Int64N(3)
					}
					all[i] = &again
				}
				asked[i] = &batched{op: all[i].op, charges: slices.Clone(all[i].charges)}
				s.send(t, func() { s.ask(t.Context(), all[i]) })
			}
			s.flush()
			lines := map[string]bool{}
			for _, b := range all {
				lines[b.line()] = true
			}
			merged += len(all) - len(lines)

			answers := map[*batched]*batched{}
			for i := range asked {
				answers[asked[i]] = all[i]
			}
			for _, b := range order(asked) {
				switch b.op {
				case "take":
					b.decision, b.err = want.Take(now.Load(), b.charges)
				case "peek":
					b.decision, b.err = want.Peek(now.Load(), b.charges)
				case "settle":
					b.err = want.Settle(now.Load(), b.charges)
				default:
					want.Reset(b.charges)
				}
				got := answers[b]
				require.NoError(t, got.err, "seed %d", seed)
				require.NoError(t, b.err, "seed %d", seed)
				require.Equal(t, b.decision, got.decision, "seed %d, %s %v", seed, b.op, b.charges)
				if b.op == "take" || b.op == "peek" {
					require.Equal(t, b.charges, got.charges, "seed %d, %s", seed, b.op)
				}
				for _, c := range got.charges {
					if c.Receipt.Valid {
						g.open = append(g.open, c)
					}
				}
			}
		}
	}
	assert.Greater(t, merged, int(streams))
}

// ask makes the request.
func (c *crowded) ask(ctx context.Context, b *batched) {
	switch b.op {
	case "take":
		b.decision, b.err = c.Take(ctx, b.charges)
	case "peek":
		b.decision, b.err = c.Peek(ctx, b.charges)
	case "settle":
		b.err = c.Settle(ctx, b.charges)
	default:
		b.err = c.Reset(ctx, b.charges)
	}
}

func TestStore_RequestsThatWaitTravelInOneCall(t *testing.T) {
	server := redistest.Start(t)
	s := newCrowded(t, server, redisstore.Config{})
	s.fill(t)
	var allowed atomic.Int64
	for i := range 100 {
		s.send(t, func() {
			d, err := s.Take(t.Context(), on([]string{"alice", "bob"}[i%2], limiter.PerDay(30), 1))
			if assert.NoError(t, err) && d.Allowed() {
				allowed.Add(1)
			}
		})
	}
	before := s.gate.calls.Load()
	s.flush()
	assert.EqualValues(t, 60, allowed.Load())
	assert.EqualValues(t, 1, s.gate.calls.Load()-before)
}

// A broken key fails its own line; the others of the batch are decided.
func TestStore_ABrokenKeyFailsItsOwnLine(t *testing.T) {
	for name, spoil := range map[string]func(*redistest.Server, string){
		"text":   func(s *redistest.Server, key string) { s.Do("SET", key, "42") },
		"a-list": func(s *redistest.Server, key string) { s.Do("RPUSH", key, "1") },
		"newer":  func(s *redistest.Server, key string) { s.Do("SET", key, "\x03newer") },
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			s := newCrowded(t, server, redisstore.Config{})
			spoil(server, keyOf("user13"))
			s.fill(t)
			errs := make([]error, 128)
			for i := range errs {
				s.send(t, func() {
					charges := append(on(fmt.Sprint("user", i), each[i%3], 1), on("all", each[0], 0)...)
					_, errs[i] = s.Take(t.Context(), charges)
				})
			}
			s.flush()
			for i, err := range errs {
				if i == 13 {
					failed(t, err, storekit.Other)
					require.ErrorContains(t, err, keyOf("user13"))
				} else {
					require.NoError(t, err, i)
					assert.EqualValues(t, 4, left(t, s, fmt.Sprint("user", i), each[i%3]))
				}
			}
			if name != "newer" {
				allowed(t, s, on("user13", each[0], 1))
			}
		})
	}
}

// A server that is out of memory still decides what it need not write.
func TestStore_AServerOutOfMemoryStillDenies(t *testing.T) {
	server := redistest.Start(t)
	s := newCrowded(t, server, redisstore.Config{})
	daily := limiter.PerDay(1)
	allowed(t, s, on("denied", daily, 1))
	s.fill(t)
	var allowedErr, deniedErr error
	var denied limiter.Decision
	s.send(t, func() { _, allowedErr = s.Take(t.Context(), on("alice", daily, 1)) })
	s.send(t, func() { denied, deniedErr = s.Take(t.Context(), on("denied", daily, 1)) })
	server.Do("CONFIG", "SET", "maxmemory", "1")
	s.flush()
	server.Do("CONFIG", "SET", "maxmemory", "0")
	failed(t, allowedErr, storekit.Unavailable)
	require.NoError(t, deniedErr)
	assert.Equal(t, limiter.Deny, denied.Outcome)
	assert.EqualValues(t, 1, left(t, s, "alice", daily))
}

func TestStore_WhoLeavesBeforeTheCallIsNotDebited(t *testing.T) {
	server := redistest.Start(t)
	s := newCrowded(t, server, redisstore.Config{})
	daily := limiter.PerDay(100)
	s.fill(t)
	ctx, leave := context.WithCancel(t.Context())
	var gone sync.WaitGroup
	for range 5 {
		gone.Add(1)
		s.send(t, func() {
			defer gone.Done()
			_, err := s.Take(ctx, on("alice", daily, 1))
			assert.ErrorIs(t, err, context.Canceled)
		})
	}
	s.send(t, func() { allowed(t, s, on("alice", daily, 1)) })
	leave()
	gone.Wait()
	s.flush()
	assert.EqualValues(t, 99, left(t, s, "alice", daily))
}

// Of those who wait for a reply, some leave: the tokens that were taken go to those
// who stay.
func TestStore_WhoLeavesAfterTheCallCountsLast(t *testing.T) {
	server := redistest.Start(t)
	s := newCrowded(t, server, redisstore.Config{})
	daily := limiter.PerDay(5)
	s.fill(t)
	ctx, leave := context.WithCancel(t.Context())
	var gone sync.WaitGroup
	for range 5 {
		gone.Add(1)
		s.send(t, func() {
			defer gone.Done()
			_, err := s.Take(ctx, on("alice", daily, 1))
			assert.ErrorIs(t, err, context.Canceled)
		})
	}
	var stayed atomic.Int64
	for range 7 {
		s.send(t, func() {
			d, err := s.Take(t.Context(), on("alice", daily, 1))
			if assert.NoError(t, err) && d.Allowed() {
				stayed.Add(1)
			}
		})
	}
	s.gate.pass() // the others' calls return, and the batch is on its way
	require.Eventually(t, func() bool { return s.Waiting() == 0 && s.gate.held.Load() == 1 },
		patient, 50*time.Microsecond)
	leave()
	gone.Wait()
	s.flush()
	assert.EqualValues(t, 5, stayed.Load())
	assert.EqualValues(t, 0, left(t, s, "alice", daily))
}

// One principal has at most its share of the places, and the others are decided in
// turn with it.
func TestStore_OnePrincipalLeavesRoomForOthers(t *testing.T) {
	server := redistest.Start(t)
	s := newCrowded(t, server, redisstore.Config{})
	s.Bound(64, 8, 16)
	s.fill(t)
	route := func(i int) []limiter.Charge {
		charges := on("greedy", limiter.PerDay(100), 1)
		charges[0].Key.Route = fmt.Sprint(i)
		return charges
	}
	for i := range 8 {
		s.send(t, func() {
			_, err := s.Take(t.Context(), route(i))
			assert.NoError(t, err)
		})
	}
	_, err := s.Take(t.Context(), route(9))
	failed(t, err, storekit.Overload)
	for i := range 56 {
		s.send(t, func() {
			_, err := s.Take(t.Context(), on(fmt.Sprint(i), limiter.PerDay(100), 1))
			assert.NoError(t, err)
		})
	}
	_, err = s.Take(t.Context(), on("one too many", limiter.PerDay(100), 1))
	failed(t, err, storekit.Overload)
	s.send(t, func() { // the same as one that waits needs no place
		_, err := s.Take(t.Context(), route(3))
		assert.NoError(t, err)
	})
	s.flush()
}

// The network of an address is one principal: its addresses can be invented.
func TestStore_OneNetworkLeavesRoomForOthers(t *testing.T) {
	server := redistest.Start(t)
	s := newCrowded(t, server, redisstore.Config{})
	s.Bound(64, 8, 128)
	s.fill(t)
	address := func(network, host int) []limiter.Charge {
		return []limiter.Charge{{Key: limiter.Key{Budget: "a", Principal: limiter.Principal{
			Kind: "address", Tenant: fmt.Sprint(network), ID: fmt.Sprint(host)}},
			Limit: limiter.PerDay(100), Cost: 1}}
	}
	for i := range 8 {
		s.send(t, func() {
			_, err := s.Take(t.Context(), address(1, i))
			assert.NoError(t, err)
		})
	}
	_, err := s.Take(t.Context(), address(1, 9))
	failed(t, err, storekit.Overload)
	s.send(t, func() {
		_, err := s.Take(t.Context(), address(2, 9))
		assert.NoError(t, err)
	})
	s.flush()
}

// While the server does not answer, each request is answered in time: with a failure of
// the store if the timeout ends it, and not if its own deadline does.
func TestStore_WhoWaitsInVainIsToldInTime(t *testing.T) {
	server := redistest.Start(t)
	s := newCrowded(t, server, redisstore.Config{Timeout: 200 * time.Millisecond})
	s.gate.shut()
	defer s.gate.release()
	var group sync.WaitGroup
	start := time.Now()
	for i := range 200 {
		group.Go(func() {
			ctx := t.Context()
			if i%2 == 0 {
				short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
				defer cancel()
				ctx = short
			}
			_, err := s.Take(ctx, on(fmt.Sprint(i%40), limiter.PerDay(100), 1))
			if i%2 == 0 {
				assert.ErrorIs(t, err, context.DeadlineExceeded)
				assert.NotErrorAs(t, err, new(*limiter.StoreError))
			} else {
				failed(t, err, storekit.Timeout, storekit.Overload)
			}
		})
	}
	group.Wait()
	assert.Less(t, time.Since(start), 200*time.Millisecond+500*time.Millisecond)
}

// A client that never returns holds at most a few calls, and requests are answered in
// time.
func TestStore_CallsThatDoNotEndAreFew(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := newCrowded(t, server, redisstore.Config{Timeout: 20 * time.Millisecond})
	s.gate.shut()
	for i := range 40 {
		_, err := s.Take(t.Context(), on(fmt.Sprint(i), limiter.PerDay(100), 1))
		failed(t, err, storekit.Timeout, storekit.Overload)
	}
	assert.LessOrEqual(t, s.gate.held.Load(), int64(10))
	s.gate.release()
	require.Eventually(t, func() bool {
		_, err := s.Take(t.Context(), on("alice", limiter.PerDay(100), 1))
		return err == nil
	}, patient, time.Millisecond)
}

// Two requests of one batch can have clocks further apart than MaxAhead: the second
// sets the anchor back, and nobody else is concerned.
func TestStore_AClockThatIsSetBackWithinABatch(t *testing.T) {
	server := redistest.Start(t)
	var now atomic.Int64
	now.Store(time.Now().UnixNano())
	s := newCrowded(t, server, redisstore.Config{MaxAhead: time.Second,
		Now: func() time.Time { return time.Unix(0, now.Load()) }})
	s.fill(t)
	hourly := limiter.PerHour(10)
	s.send(t, func() { allowed(t, s, on("alice", hourly, 1)) })
	now.Add(-int64(time.Minute))
	s.send(t, func() { allowed(t, s, on("alice", hourly, 1)) })
	s.send(t, func() { allowed(t, s, on("bob", hourly, 1)) })
	s.flush()
	assert.EqualValues(t, 8, left(t, s, "alice", hourly))
	assert.EqualValues(t, 1, s.Stats().Reanchored)
}
