//go:build faults

package redisstore_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/lab/redistest"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/redisstore"
)

// outage measures how long after a fault has ended requests are decided again.
func outage(t *testing.T, client *redis.Client, fail, heal func()) time.Duration {
	t.Helper()
	s := newStore(t, client, redisstore.Config{})
	l := newLimiter(t, s, limiter.PerSecond(1000), limiter.Closed)
	var count tally
	var healed, first atomic.Int64
	var group sync.WaitGroup
	group.Go(func() {
		time.Sleep(time.Second)
		fail()
		time.Sleep(2 * time.Second)
		heal()
		healed.Store(time.Now().UnixNano())
	})
	offer(64, 2000, 5*time.Second, func(g, n int) {
		_, err := l.Take(t.Context(), userCaller(fmt.Sprint(n)), 1)
		if at := healed.Load(); err == nil && at > 0 {
			first.CompareAndSwap(0, max(1, time.Now().UnixNano()-at))
		}
		count.ask(t.Context(), l, userCaller(fmt.Sprint(n)))
	})
	group.Wait()
	took := time.Duration(first.Load())
	t.Logf("deciding again after %v; %v", took, &count)
	assert.Positive(t, took)
	return took
}

var optionSets = map[string]func(testing.TB, string, string) *redis.Client{
	"default": newClient, "recommended": recommended,
}

func TestFaults_DecidesSoonAfterAStall(t *testing.T) {
	for name, connect := range optionSets {
		t.Run(name, func(t *testing.T) {
			server := redistest.StartTCP(t)
			took := outage(t, connect(t, server.Network, server.Addr), server.Pause, server.Resume)
			assert.Less(t, took, 200*time.Millisecond)
		})
	}
}

func TestFaults_DecidesSoonAfterARestart(t *testing.T) {
	for name, within := range map[string]time.Duration{
		"default": 1200 * time.Millisecond, "recommended": 200 * time.Millisecond,
	} {
		t.Run(name, func(t *testing.T) {
			for range 3 {
				server := redistest.StartTCP(t)
				took := outage(t, optionSets[name](t, server.Network, server.Addr), server.Kill, server.Restart)
				assert.Less(t, took, within)
			}
		})
	}
}

// sockets returns how many client sockets are established with the server, and how many
// connections wait for it to accept them.
func sockets(t *testing.T, server *redistest.Server) (established, queued int64) {
	t.Helper()
	data, err := os.ReadFile("/proc/net/tcp")
	require.NoError(t, err)
	port, err := strconv.Atoi(server.Port())
	require.NoError(t, err)
	end := fmt.Sprintf(":%04X", port)
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		switch {
		case len(f) < 5:
		case f[3] == "01" && strings.HasSuffix(f[2], end):
			established++
		case f[3] == "0A" && strings.HasSuffix(f[1], end):
			_, received, _ := strings.Cut(f[4], ":")
			queued, err = strconv.ParseInt(received, 16, 64)
			require.NoError(t, err)
		}
	}
	return established, queued
}

// cpu returns the processor time that this process has used.
func cpu(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func TestFaults_CallersCannotOpenTheBreaker(t *testing.T) {
	crowdsCannotOpenTheBreaker(t, timeout)
}

// A hung server is a light load for its clients, and they for it.
func TestFaults_AServerHangsForAMinute(t *testing.T) {
	for name, connect := range optionSets {
		t.Run(name, func(t *testing.T) {
			server := redistest.StartTCP(t)
			s := newStore(t, connect(t, server.Network, server.Addr), redisstore.Config{})
			l := newLimiter(t, s, limiter.PerSecond(1000), limiter.Closed)
			const goroutines = 64
			load := func(d time.Duration, count *tally) (perSecond time.Duration, took []time.Duration) {
				all := make([][]time.Duration, goroutines)
				before := cpu(t)
				offer(goroutines, 2000, d, func(g, n int) {
					open, start := s.Open(), time.Now()
					count.ask(t.Context(), l, userCaller(fmt.Sprint((n*goroutines+g)%10_000)))
					if open {
						all[g] = append(all[g], time.Since(start))
					}
				})
				return (cpu(t) - before) * time.Second / d, slices.Concat(all...)
			}
			var warm, healthy, hung, after tally
			load(2*time.Second, &warm)
			normal, _ := load(20*time.Second, &healthy)
			server.Pause()
			var group sync.WaitGroup
			var established, queued int64
			stop := make(chan struct{})
			group.Go(func() {
				opened := false // for 100 ms, so that the calls before have ended
				for tick := time.NewTicker(100 * time.Millisecond); ; {
					select {
					case <-stop:
						return
					case <-tick.C:
						e, q := sockets(t, server)
						if opened {
							established = max(established, e)
						}
						opened, queued = s.Open(), max(queued, q)
					}
				}
			})
			used, took := load(60*time.Second, &hung)
			close(stop)
			group.Wait()
			server.Resume()
			start := time.Now()
			for s.Open() {
				after.ask(t.Context(), l, userCaller("after"))
				time.Sleep(time.Millisecond)
			}
			back := time.Since(start)
			slices.Sort(took)
			p99 := took[len(took)*99/100]
			t.Logf("healthy: %v, CPU %v/s; hung: %v, CPU %v/s; open: %d requests, p99 %v, max %v; "+
				"%d established, %d queued; closed after %v", &healthy, normal, &hung, used, len(took), p99,
				took[len(took)-1], established, queued, back)
			assert.LessOrEqual(t, established, int64(2))
			assert.LessOrEqual(t, queued, int64(8))
			assert.LessOrEqual(t, used, normal*12/10)
			assert.LessOrEqual(t, p99, 5*time.Millisecond)
			assert.Less(t, back, 200*time.Millisecond)
		})
	}
}

// Each fault is met by 2,000 requests at once, with the client's default options and with
// the recommended ones.
func TestFaults_EachIsAnsweredInTime(t *testing.T) {
	within := 20 * time.Millisecond
	if slowdown > 1 {
		within = 250 * time.Millisecond
	}
	for name, options := range map[string]redis.Options{
		"default": {}, "recommended": recommendedOptions(),
	} {
		for _, f := range faults() {
			t.Run(f.name+"/"+name, func(t *testing.T) { f.run(t, withUser(options), 2000, 300*time.Millisecond, within) })
		}
	}
}
