package redisstore_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
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
)

// quiet keeps the client from logging the failures that tests make.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// child is the environment variable that makes this binary another process: it
// has the address of a server.
const child = "RATION_TEST_CHILD"

func TestMain(m *testing.M) {
	if addr := os.Getenv(child); addr != "" {
		takeAtOnce(addr)
		return
	}
	redis.SetLogger(quiet{})
	os.Exit(m.Run())
}

const atOnce = 50

// takeAtOnce is the other process: it waits until its input ends, takes at once
// and prints how many were allowed.
func takeAtOnce(addr string) {
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: addr})
	store := limiter.Must(redisstore.New(client, redisstore.Config{Timeout: patient}))
	_, _ = io.Copy(io.Discard, os.Stdin)
	var group sync.WaitGroup
	var passed atomic.Int64
	for range atOnce {
		group.Go(func() {
			d, err := store.Take(context.Background(), on("alice", limiter.PerDay(100), 1))
			if err != nil {
				fmt.Println(err)
			}
			if d.Allowed() {
				passed.Add(1)
			}
		})
	}
	group.Wait()
	fmt.Println(passed.Load())
}

func TestStore_ProcessesShareABudgetExactly(t *testing.T) {
	server := redistest.Start(t)
	const processes = 8
	var commands [processes]*exec.Cmd
	var starts [processes]io.Closer
	var outputs [processes]strings.Builder
	for i := range commands {
		commands[i] = exec.CommandContext(t.Context(), os.Args[0])
		commands[i].Env = append(os.Environ(), child+"="+server.Addr)
		commands[i].Stdout = &outputs[i]
		start, err := commands[i].StdinPipe()
		require.NoError(t, err)
		starts[i] = start
		require.NoError(t, commands[i].Start())
	}
	for _, start := range starts {
		require.NoError(t, start.Close())
	}
	total := 0
	var counts [processes]int
	for i, cmd := range commands {
		require.NoError(t, cmd.Wait())
		n, err := strconv.Atoi(strings.TrimSpace(outputs[i].String()))
		require.NoError(t, err)
		counts[i] = n
		total += n
	}
	assert.Equal(t, 100, total, "%v", counts)
}

func TestStore_TwoProcessesTakeTurns(t *testing.T) {
	server := redistest.Start(t)
	hourly := limiter.Limit{Tokens: 100, Per: time.Hour}
	now := time.Now()
	var stores [2]*redisstore.Store
	for i := range stores {
		stores[i] = newStore(t, newClient(t, server.Network, server.Addr),
			redisstore.Config{Timeout: patient, Now: func() time.Time { return now }})
	}
	for i := range 120 {
		d, err := stores[i%2].Take(t.Context(), on("alice", hourly, 1))
		require.NoError(t, err)
		require.Equal(t, i < 100, d.Allowed())
		require.EqualValues(t, max(99-i, 0), d.Remaining)
	}
}

// Replication is asynchronous, so some debits may be lost with the master: at
// most one capacity for each account.
func TestStore_FollowsASentinelToTheNewMaster(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]redis.FailoverOptions{
		"default": {}, "recommended": {Dialer: redisstore.Dialer(nil)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			followSentinel(t, options)
		})
	}
}

func followSentinel(t *testing.T, options redis.FailoverOptions) {
	group := redistest.StartGroup(t)
	options.MasterName, options.SentinelAddrs = group.Name, []string{group.Sentinel.Addr}
	client := redis.NewFailoverClient(&options)
	t.Cleanup(func() { _ = client.Close() })
	s := newStore(t, client, redisstore.Config{Timeout: 200 * time.Millisecond})
	daily := limiter.PerDay(1000)
	take := func() bool {
		_, err := s.Take(t.Context(), on("alice", daily, 1))
		var store *limiter.StoreError
		if err != nil {
			require.ErrorAs(t, err, &store)
		}
		return err == nil
	}
	slow := newStore(t, client, redisstore.Config{Timeout: patient})
	require.Eventually(t, take, patient, 10*time.Millisecond)
	before := 1000 - left(t, slow, "alice", daily)
	group.Master.Kill()
	require.Eventually(t, take, patient, 10*time.Millisecond)
	for range 20 {
		allowed(t, slow, on("alice", daily, 1))
	}
	used := 1000 - left(t, slow, "alice", daily)
	assert.GreaterOrEqual(t, used, int64(21), "of the new master")
	t.Logf("used %d before, %d after it", before, used)
}
