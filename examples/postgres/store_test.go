package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/storekit"
	"github.com/ration-go/ration/limiter/storetest"
)

// child is the environment variable that makes this binary another process: it has
// the URL of a database.
const child = "RATION_TEST_DATABASE"

func TestMain(m *testing.M) {
	if url := os.Getenv(child); url != "" {
		takeAtOnce(url)
		return
	}
	code := m.Run()
	if server.stop != nil {
		server.stop()
	}
	os.Exit(code)
}

// patient is a timeout that no call reaches on a loaded machine.
const patient = time.Minute

// newStore returns a store of the backend. Stores with one secret share accounts.
func newStore(
	t testing.TB, b storekit.Backend, secret string, now func() time.Time,
) *storekit.Store {
	t.Helper()
	store, err := storekit.New(b, storekit.Config{
		Timeout: patient, Secret: []byte(secret), Now: now,
	})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// flaky makes the next Update fail.
type flaky struct {
	storekit.Backend
	secret string
	next   atomic.Uint32 // a storetest.Moment
}

func (f *flaky) Update(
	ctx context.Context, keys []storekit.Key, decide storekit.DecideFunc,
) error {
	switch storetest.Moment(f.next.Swap(0)) {
	case storetest.BeforeCommit:
		return f.Backend.Update(ctx, keys,
			func(now time.Time, states [][]byte) ([]storekit.Record, error) {
				_, _ = decide(now, states)
				return nil, io.ErrUnexpectedEOF
			})
	case storetest.AtCommit:
		_ = f.Backend.Update(ctx, keys, decide)
		return &limiter.StoreError{Reason: storekit.Ambiguous, Err: io.ErrUnexpectedEOF}
	default:
		return f.Backend.Update(ctx, keys, decide)
	}
}

// opener makes a backend on the pool.
type opener func(pool *pgxpool.Pool) storekit.Backend

func right(pool *pgxpool.Pool) storekit.Backend { return &backend{pool} }

// harness holds stores on the database of url. The stores that New returns share the
// table, and each has accounts of its own.
func harness(t testing.TB, url string, open opener) storetest.Harness {
	var mu sync.Mutex
	flakies := map[limiter.Store]*flaky{}
	of := func(s limiter.Store) *flaky {
		mu.Lock()
		defer mu.Unlock()
		return flakies[s]
	}
	add := func(pool *pgxpool.Pool, secret string, now func() time.Time) limiter.Store {
		f := &flaky{Backend: open(pool), secret: secret}
		store := newStore(t, f, secret, now)
		mu.Lock()
		defer mu.Unlock()
		flakies[store] = f
		return store
	}
	one, another := connect(t, url), connect(t, url)
	return storetest.Harness{
		New: func(_ testing.TB, now func() time.Time) limiter.Store {
			return add(one, rand.Text(), now)
		},
		AccountClock: true,
		Shared: &storetest.Shared{
			Another: func(_ testing.TB, s limiter.Store, now func() time.Time) limiter.Store {
				return add(another, of(s).secret, now)
			},
			Hold: func(t testing.TB, s limiter.Store, charges []limiter.Charge) func() {
				return hold(t, right(another), of(s).secret, charges)
			},
			Fail: func(s limiter.Store, at storetest.Moment) { of(s).next.Store(uint32(at)) },
		},
	}
}

// hold locks the accounts of the charges until release is called.
func hold(
	t testing.TB, b storekit.Backend, secret string, charges []limiter.Charge,
) (release func()) {
	t.Helper()
	r, err := storekit.Prepare(storekit.Peek, charges, []byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	locked, end, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- b.Update(context.Background(), r.Keys(),
			func(time.Time, [][]byte) ([]storekit.Record, error) {
				close(locked)
				<-end
				return nil, nil
			})
	}()
	select {
	case <-locked:
	case err := <-ended:
		t.Fatal(err)
	}
	return func() {
		close(end)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func TestStore_KeepsThePromise(t *testing.T) {
	storetest.Run(t, harness(t, database(t), right))
}

const atOnce = 50

// takeAtOnce is the other process: it waits until its input ends, takes at once and
// prints how many requests were allowed.
func takeAtOnce(url string) {
	pool, err := pgxpool.New(context.Background(), url)
	if err != nil {
		log.Fatal(err)
	}
	store, err := storekit.New(&backend{pool}, storekit.Config{Timeout: patient})
	if err != nil {
		log.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	var group sync.WaitGroup
	var allowed atomic.Int64
	for range atOnce {
		group.Go(func() {
			d, err := store.Take(context.Background(), []limiter.Charge{on("alice", 1)})
			if err != nil {
				fmt.Println(err)
			}
			if d.Allowed() {
				allowed.Add(1)
			}
		})
	}
	group.Wait()
	fmt.Println(allowed.Load())
}

func on(user string, cost int64) limiter.Charge {
	principal := limiter.Principal{Kind: "user", ID: user}
	return limiter.Charge{
		Key:   limiter.Key{Budget: "requests", Principal: principal},
		Limit: limiter.PerDay(60), Cost: cost,
	}
}

func TestStore_ProcessesShareABudgetExactly(t *testing.T) {
	url := database(t)
	var processes [2]*exec.Cmd
	var starts [2]io.Closer
	var outputs [2]strings.Builder
	for i := range processes {
		processes[i] = exec.Command(os.Args[0])
		processes[i].Env = append(os.Environ(), child+"="+url)
		processes[i].Stdout = &outputs[i]
		processes[i].Stderr = os.Stderr
		start, err := processes[i].StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := processes[i].Start(); err != nil {
			t.Fatal(err)
		}
		starts[i] = start
	}
	for _, start := range starts {
		_ = start.Close()
	}
	total := 0
	for i := range processes {
		if err := processes[i].Wait(); err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(strings.TrimSpace(outputs[i].String()))
		if err != nil {
			t.Fatal(err)
		}
		total += n
	}
	if total != 60 {
		t.Errorf("2 processes were allowed %d of 60 tokens", total)
	}
}
