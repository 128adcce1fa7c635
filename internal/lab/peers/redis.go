package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
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
		{name: "redis/64", cores: 1, measure: measureMany("10,000 keys, 64 goroutines", 64, remoteKeys,
			map[string]float64{"redis_rate": 2.5, "rueidislimiter": 1.1}, 0.6)},
		{name: "redis/256", cores: 1, measure: measureMany("10,000 keys, 256 goroutines", 256, remoteKeys,
			map[string]float64{"redis_rate": 4, "rueidislimiter": 1.3}, 0)},
		{name: "redis/hot", cores: 1, measure: measureMany("one hot key, 256 goroutines", 256, 1,
			map[string]float64{"redis_rate": 12, "rueidislimiter": 4}, 0)},
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

// measureMany lets so many goroutines ask, each for a caller of so many keys at
// random. goals are the least that ration is to decide in a second, compared with a
// peer; late is the most that its 99th percentile may be of that of redis_rate, or 0.
func measureMany(
	title string, goroutines, keys int, goals map[string]float64, late float64,
) func(options) section {
	return func(o options) section {
		s := startServer()
		defer s.stop()
		var subjects []remote
		var asks []ask
		for _, r := range remotes {
			if keys == 1 && r.name == "throttled" {
				continue // it gives up after ten attempts
			}
			subjects, asks = append(subjects, r), append(asks, r.setup(s.addr, s.client))
			s.time(asks[len(asks)-1], 100)
		}
		micros, p99 := s.compare(asks, goroutines, keys, o)
		result := section{title: "Redis, " + title,
			header: []string{"", "µs a request", "ration decides", "ms, p99"}}
		for i, r := range subjects {
			times := median(ratios(micros[i], micros[0]))
			result.row(r.name, tenths(median(micros[i])), hundredths(times)+" x", hundredths(median(p99[i])/1e3))
			if goals[r.name] > 0 {
				result.atLeast("Redis, "+title+", decisions to "+r.name, times, goals[r.name], "x")
			}
			if r.name == "redis_rate" && late > 0 {
				result.goal("Redis, "+title+", p99 to "+r.name, median(ratios(p99[0], p99[i])), late, "x")
			}
		}
		return result
	}
}

// compare measures each ask in each round, in random order.
func (s *server) compare(asks []ask, goroutines, keys int, o options) (micros, p99 [][]float64) {
	micros, p99 = make([][]float64, len(asks)), make([][]float64, len(asks))
	for range (o.rounds + 9) / 10 {
		for _, i := range rand.Perm(len(asks)) {
			mean, late := throughput(asks[i], goroutines, keys, 100*o.time)
			micros[i], p99[i] = append(micros[i], mean), append(p99[i], late)
		}
	}
	return micros, p99
}

// measureThree lets 64 goroutines ask for three budgets a request.
func measureThree(o options) section {
	s := startServer()
	defer s.stop()
	rate := redisRate(s.addr, s.client)
	asks := []ask{oursOn(s.client, 3), func(ctx context.Context, i int) error {
		for budget := range 3 {
			if err := rate(ctx, i+budget); err != nil {
				return err
			}
		}
		return nil
	}}
	names := []string{"ration, one call", "redis_rate, three calls"}
	micros, _ := s.compare(asks, 64, remoteKeys, o)
	result := section{title: "Redis, three budgets a request, 64 goroutines",
		header: []string{"", "µs a request", "ration decides"}}
	for i, name := range names {
		result.row(name, tenths(median(micros[i])), hundredths(median(ratios(micros[i], micros[0])))+" x")
	}
	result.atLeast("Redis, three budgets, decisions to redis_rate three times",
		median(ratios(micros[1], micros[0])), 3.5, "x")
	return result
}

// throughput returns the microseconds a request while so many goroutines ask, whose
// callers can leave, and the 99th percentile of what a request took.
func throughput(f ask, goroutines, keys int, d time.Duration) (mean, p99 float64) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var group sync.WaitGroup
	took := make([][]float64, goroutines)
	start := time.Now()
	for i := range took {
		group.Go(func() {
			for last := start; last.Sub(start) < d; {
				check(f(ctx, rand.IntN(keys)))
				now := time.Now()
				took[i] = append(took[i], float64(now.Sub(last))/1e3)
				last = now
			}
		})
	}
	group.Wait()
	elapsed := float64(time.Since(start).Microseconds())
	all := slices.Concat(took...)
	slices.Sort(all)
	return elapsed / float64(len(all)), all[len(all)*99/100]
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
