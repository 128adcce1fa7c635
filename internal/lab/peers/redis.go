package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ration-go/ration/limiter"
)

// server is a redis-server of the measurement's own, on a loopback port.
type server struct {
	addr   string
	client *redis.Client
	cmd    *exec.Cmd
}

func startServer() *server {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	addr := l.Addr().String()
	check(l.Close())
	_, port, _ := net.SplitHostPort(addr)
	cmd := exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "")
	check(cmd.Start())
	client := redis.NewClient(&redis.Options{
		Addr: addr, PoolSize: 64, ContextTimeoutEnabled: true,
	})
	for start := time.Now(); client.Ping(context.Background()).Err() != nil; {
		if time.Since(start) > 10*time.Second {
			panic("redis-server does not answer")
		}
	}
	return &server{addr, client, cmd}
}

func (s *server) stop() {
	_ = s.client.Close()
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// used returns the processor time that the server's main thread has used, in
// nanoseconds.
func (s *server) used() float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", s.cmd.Process.Pid))
	check(err)
	ns, err := strconv.ParseFloat(strings.Fields(string(text))[0], 64)
	check(err)
	return ns
}

// redisWorkloads need a server.
func redisWorkloads() []workload {
	if _, err := exec.LookPath("redis-server"); err != nil {
		fmt.Fprintln(os.Stderr, "redis: no redis-server in PATH: install the package redis-server")
		return nil
	}
	return []workload{
		{name: "redis/latency", cores: 1, measure: measureLatency},
		{name: "redis/three", cores: 1, measure: measureThree},
		{name: "redis/server", cores: 1, measure: measureServer},
	}
}

// measureLatency lets one goroutine ask, and takes the median of each round.
func measureLatency(o options) section {
	s := startServer()
	defer s.stop()
	asks, micros := make([]ask, len(remotes)), make([][]float64, len(remotes))
	for i, r := range remotes {
		asks[i] = r.setup(s.addr, s.client)
		s.time(asks[i], 200)
	}
	for range o.rounds {
		for _, i := range rand.Perm(len(remotes)) {
			micros[i] = append(micros[i], median(s.time(asks[i], 1000)))
		}
	}
	result := section{title: "Redis, one goroutine", header: []string{"", "µs, p50", "ration is"}}
	for i, r := range remotes {
		ratio := median(ratios(micros[0], micros[i]))
		result.row(r.name, tenths(median(micros[i])), hundredths(ratio)+" x")
		if r.kind == ground {
			result.goal("Redis, one goroutine, to plain EVALSHA", ratio, 1.3, "x")
		}
	}
	return result
}

// time returns the microseconds that each of n requests took.
func (s *server) time(f ask, n int) []float64 {
	micros := make([]float64, n)
	for i := range micros {
		start := time.Now()
		check(f(context.Background(), rand.IntN(remoteKeys)))
		micros[i] = float64(time.Since(start)) / 1e3
	}
	return micros
}

// measureThree lets 64 goroutines ask for three budgets a request.
func measureThree(o options) section {
	s := startServer()
	defer s.stop()
	rate := redisRate(s.addr, s.client)
	subjects := []ask{oursOn(s.client, 3), func(ctx context.Context, i int) error {
		for budget := range 3 {
			if err := rate(ctx, i+budget); err != nil {
				return err
			}
		}
		return nil
	}}
	names := []string{"ration, one call", "redis_rate, three calls"}
	micros := make([][]float64, len(subjects))
	for range o.rounds {
		for _, i := range rand.Perm(len(subjects)) {
			micros[i] = append(micros[i], throughput(subjects[i], 64, 3*o.time))
		}
	}
	result := section{title: "Redis, three budgets a request, 64 goroutines",
		header: []string{"", "µs a request", "ration is"}}
	for i, name := range names {
		result.row(name, tenths(median(micros[i])), hundredths(median(ratios(micros[0], micros[i])))+" x")
	}
	result.goal("Redis, three budgets, to redis_rate three times",
		median(ratios(micros[0], micros[1])), 0.4, "x")
	return result
}

// throughput returns the microseconds a request while so many goroutines ask.
func throughput(f ask, goroutines int, d time.Duration) float64 {
	var group sync.WaitGroup
	var done atomic.Int64
	start := time.Now()
	for range goroutines {
		group.Go(func() {
			for time.Since(start) < d {
				check(f(context.Background(), rand.IntN(remoteKeys)))
				done.Add(1)
			}
		})
	}
	group.Wait()
	return float64(time.Since(start).Microseconds()) / float64(done.Load())
}

// measureServer counts the server's processor time for commands in pipelines of
// 16. The least of the rounds counts: what disturbs only adds.
func measureServer(o options) section {
	s := startServer()
	defer s.stop()
	check(oursOn(s.client, 1)(context.Background(), 0)) // so that the script is known
	tiny := limiter.PerDay(1)
	cases := []struct {
		name    string
		command func(i int) []any
		most    float64
	}{
		{"SET", func(i int) []any {
			return []any{"set", "plain:" + callers()[i], strings.Repeat("x", 42)}
		}, 0},
		{"one budget, allowed", func(i int) []any {
			return scriptWords(chargesOf(callerName(i), roomy, 1))
		}, 7.5},
		{"one budget, denied", func(i int) []any {
			return scriptWords(chargesOf("denied"+callerName(i), tiny, 1))
		}, 5.5},
		{"three budgets, allowed", func(i int) []any {
			return scriptWords(chargesOf(callerName(i), roomy, 3))
		}, 16},
	}
	least := make([]float64, len(cases))
	for i, c := range cases {
		commands := make([][]any, 256)
		for j := range commands {
			commands[j] = c.command(j)
		}
		s.pipeline(commands) // the first request of the denied is allowed
		for range o.rounds {
			before := s.used()
			for range 20 {
				s.pipeline(commands)
			}
			ns := (s.used() - before) / float64(20*len(commands))
			if least[i] == 0 || ns < least[i] {
				least[i] = ns
			}
		}
	}
	result := section{title: "Redis, processor time of the server, pipelines of 16",
		header: []string{"", "µs", "of SET"}}
	for i, c := range cases {
		ratio := least[i] / least[0]
		result.row(c.name, hundredths(least[i]/1e3), tenths(ratio)+" x")
		result.goal("Redis, processor time, "+c.name, ratio, c.most, "x SET")
	}
	return result
}

// pipeline sends the commands, 16 at a time.
func (s *server) pipeline(commands [][]any) {
	for from := 0; from < len(commands); from += 16 {
		_, err := s.client.Pipelined(context.Background(), func(p redis.Pipeliner) error {
			for _, words := range commands[from : from+16] {
				p.Do(context.Background(), words...)
			}
			return nil
		})
		check(err)
	}
}
