package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
	"github.com/ration-go/ration/middleware"
)

// direct sends requests to a handler, with no network between.
type direct struct{ http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.RemoteAddr = "192.0.2.1:1"
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	return w.Result(), nil
}

// scripted answers with one header after the other, and counts the requests.
type scripted struct {
	t       *testing.T
	answers []string // "429 Retry-After: 3"
	sent    []time.Time
	bodies  []string
}

func (s *scripted) RoundTrip(r *http.Request) (*http.Response, error) {
	s.sent = append(s.sent, time.Now())
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			s.t.Error(err)
		}
		s.bodies = append(s.bodies, string(body))
	}
	w := httptest.NewRecorder()
	status, answer := 200, ""
	if n := len(s.sent) - 1; n < len(s.answers) {
		answer = s.answers[n]
	}
	if answer != "" {
		_, _ = fmt.Sscanf(answer, "%d", &status)
		for field := range strings.SplitSeq(answer[3:], "|") {
			if name, value, ok := strings.Cut(field, ": "); ok {
				w.Header().Add(strings.TrimSpace(name), value)
			}
		}
	}
	w.WriteHeader(status)
	return w.Result(), nil
}

func TestTransport_WaitsAsItIsTold(t *testing.T) {
	tests := []struct {
		name    string
		answers []string
		status  int
		sent    []int // seconds after the first, of two requests one after the other
	}{
		{"nothing-said", []string{"200"}, 200, []int{0, 0}},
		{"retry-after", []string{"429 Retry-After: 3"}, 200, []int{0, 3, 3}},
		{"unavailable", []string{"503 Retry-After: 3"}, 200, []int{0, 3, 3}},
		{"unavailable-for-good", []string{"503"}, 503, []int{0, 0}},
		{"never", []string{"429"}, 429, []int{0, 0}},
		{"two-refusals", []string{"429 Retry-After: 3", "429 Retry-After: 4"}, 200, []int{0, 3, 7, 7}},
		{"three-refusals", []string{"429 Retry-After: 1", "429 Retry-After: 1", "429 Retry-After: 1"},
			429, []int{0, 1, 2, 3}},
		{"date", []string{"429 Retry-After: Sat, 01 Jan 2000 00:00:05 GMT"}, 200, []int{0, 5, 5}},
		{"date-of-the-server", []string{"429 Retry-After: Sat, 01 Jan 2022 00:00:05 GMT|" +
			"Date: Sat, 01 Jan 2022 00:00:02 GMT"}, 200, []int{0, 3, 3}},
		{"date-that-has-passed", []string{"429 Retry-After: Sat, 01 Jan 2000 00:00:05 GMT|" +
			"Date: Sat, 01 Jan 2000 00:00:07 GMT"}, 429, []int{0, 0}},
		{"31-bits", []string{"429 Retry-After: 2147483648"}, 429, []int{0}},
		{"64-bits", []string{"429 Retry-After: 9223372036854775808"}, 429, []int{0}},
		{"any-size", []string{"429 Retry-After: " + strings.Repeat("9", 1000)}, 429, []int{0}},
		{"zeros", []string{"429 Retry-After: 0000000000000000000000003"}, 200, []int{0, 3, 3}},
		{"nothing-left-for-an-hour", []string{`200 RateLimit: "a";r=0;t=3600`}, 200, []int{0, 60}},
		{"nonsense", []string{"429 Retry-After: -3"}, 429, []int{0, 0}},
		{"too-long", []string{"429 Retry-After: 61"}, 429, []int{0}},
		{"nothing-left", []string{`200 RateLimit: "a";r=0;t=9`}, 200, []int{0, 9}},
		{"something-left", []string{`200 RateLimit: "a";r=1;t=9`}, 200, []int{0, 0}},
		{"several", []string{`200 RateLimit: "a";r=0;t=2,"b";r=0;t=8;x, "c";r=3;t=30`}, 200, []int{0, 8}},
		{"several-lines", []string{`200 RateLimit: "a";r=0;t=2|RateLimit: "b";r=0;t=8`}, 200, []int{0, 8}},
		{"no-time", []string{`200 RateLimit: "a";r=0`}, 200, []int{0, 0}},
		{"malformed", []string{`200 RateLimit: "a";r=0;t=9,`}, 200, []int{0, 0}},
		{"older-draft", []string{`200 RateLimit: limit=1, remaining=0, reset=9`}, 200, []int{0, 0}},
		{"from-a-cache", []string{`200 Age: 7|RateLimit: "a";r=0;t=9`}, 200, []int{0, 0}},
		{"retry-after-is-shorter", []string{`429 Retry-After: 2|RateLimit: "a";r=0;t=3600`}, 200,
			[]int{0, 2, 2}},
		{"retry-after-is-longer", []string{`429 Retry-After: 9|RateLimit: "a";r=0;t=2`}, 200, []int{0, 9, 9}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &scripted{t: t, answers: tt.answers}
				client := &http.Client{Transport: &Transport{Base: server}}
				start := time.Now()
				resp, err := client.Get("http://example.com/")
				if err != nil {
					t.Fatal(err)
				}
				if resp.StatusCode != tt.status {
					t.Errorf("%d, want %d", resp.StatusCode, tt.status)
				}
				_, _ = client.Get("http://example.com/")
				var sent []int
				for _, at := range server.sent {
					sent = append(sent, int(at.Sub(start)/time.Second))
				}
				if fmt.Sprint(sent) != fmt.Sprint(tt.sent) {
					t.Errorf("sent at %v, want %v", sent, tt.sent)
				}
			})
		})
	}
}

func TestTransport_SaysWhenTheWaitIsTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &scripted{t: t, answers: []string{"429 Retry-After: 90"}}
		client := &http.Client{Transport: &Transport{Base: server}}
		if _, err := client.Get("http://example.com/"); err != nil {
			t.Fatal(err)
		}
		_, err := client.Get("http://example.com/")
		var wait *WaitError
		if !errors.As(err, &wait) || wait.Wait != 90*time.Second {
			t.Errorf("%v, want a WaitError of 90 s", err)
		}
		if _, err := client.Get("http://other.example.com/"); err != nil {
			t.Errorf("another server: %v", err)
		}
		time.Sleep(30 * time.Second)
		if _, err := client.Get("http://example.com/"); err != nil {
			t.Errorf("a wait of 60 s: %v", err)
		}
	})
}

func TestTransport_NeverWaitsBeyondADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &scripted{t: t, answers: []string{"429 Retry-After: 9"}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, _ := http.NewRequestWithContext(ctx, "GET", "http://example.com/", nil)
		transport := &Transport{Base: server}
		start := time.Now()
		resp, err := transport.RoundTrip(r)
		if err != nil || resp.StatusCode != http.StatusTooManyRequests {
			t.Errorf("%v, %v: want the refusal", resp, err)
		}
		_, err = transport.RoundTrip(r)
		if wait := new(WaitError); !errors.As(err, &wait) || len(server.sent) != 1 {
			t.Errorf("%v after %d requests", err, len(server.sent))
		}
		if waited := time.Since(start); waited != 0 {
			t.Errorf("it waited for %v", waited)
		}
	})
}

func TestTransport_LeavesWithItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &scripted{t: t, answers: []string{"429 Retry-After: 9"}}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		r, _ := http.NewRequestWithContext(ctx, "GET", "http://example.com/", nil)
		_, err := (&Transport{Base: server}).RoundTrip(r)
		if !errors.Is(err, context.Canceled) || len(server.sent) != 1 {
			t.Errorf("%v after %d requests", err, len(server.sent))
		}
	})
}

func TestTransport_HoldsABoundedNumberOfHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := &Transport{Base: direct{http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("RateLimit", `"a";r=0;t=50`)
		})}}
		for i := range 3 * maxKeys {
			url := fmt.Sprintf("http://%d.example.com/", i)
			r, _ := http.NewRequestWithContext(t.Context(), "GET", url, nil)
			if _, err := transport.RoundTrip(r); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		if n := len(transport.until); n != maxKeys {
			t.Errorf("%d hosts", n)
		}
		if _, ok := transport.until[fmt.Sprintf("http://%d.example.com", 3*maxKeys-1)]; !ok {
			t.Error("the latest host is not held")
		}
	})
}

// counted counts the connections of a server.
type counted struct{ opened atomic.Int64 }

func (c *counted) state(_ net.Conn, state http.ConnState) {
	if state == http.StateNew {
		c.opened.Add(1)
	}
}

func TestTransport_UsesTheConnectionOfARefusalAgain(t *testing.T) {
	var asked atomic.Int64
	var connections counted
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) == 1 {
			w.Header().Set("Retry-After", "0000000001")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = w.Write(make([]byte, 60<<10))
		}
	}))
	server.Config.ConnState = connections.state
	server.Start()
	defer server.Close()
	resp, err := (&http.Client{Transport: &Transport{Base: server.Client().Transport}}).Get(server.URL)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp, err)
	}
	_ = resp.Body.Close()
	if n := connections.opened.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// endless is a body that sends nothing and never ends, until it is closed.
type endless struct{ closed chan struct{} }

func (b endless) Read([]byte) (int, error) {
	<-b.closed
	return 0, net.ErrClosed
}

func (b endless) Close() error {
	select {
	case <-b.closed:
	default:
		close(b.closed)
	}
	return nil
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestTransport_WaitsForNoBodyThatNeverEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := 0
		transport := &Transport{Base: roundTripper(func(*http.Request) (*http.Response, error) {
			sent++
			if sent > 1 {
				return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
			}
			return &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"3"}},
				Body: endless{make(chan struct{})}}, nil
		})}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		r, _ := http.NewRequestWithContext(ctx, "GET", "http://example.com/", nil)
		resp, err := transport.RoundTrip(r)
		if err != nil || resp.StatusCode != http.StatusOK || time.Since(start) != 3*time.Second {
			t.Errorf("%v, %v after %v", resp, err, time.Since(start))
		}
	})
}

func TestTransport_SendsABodyAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		body io.Reader
		want string
	}{
		"replayable": {strings.NewReader("body"), "[body body] 200"},
		"spent":      {io.MultiReader(strings.NewReader("body")), "[body] 429"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &scripted{t: t, answers: []string{"429 Retry-After: 1"}}
				client := &http.Client{Transport: &Transport{Base: server}}
				resp, err := client.Post("http://example.com/", "text/plain", tt.body)
				if err != nil {
					t.Fatal(err)
				}
				if got := fmt.Sprint(server.bodies, resp.StatusCode); got != tt.want {
					t.Errorf("%s, want %s", got, tt.want)
				}
			})
		})
	}
}

// world is a random service: one to three limiters, one behind the other.
type world struct {
	random *rand.Rand
	cost   int64
	least  int64 // capacity of all its budgets
}

func (w *world) limit() limiter.Limit {
	l := limiter.Limit{
		Algorithm: limiter.Algorithm(w.random.IntN(3)),
		Tokens:    1 + w.random.Int64N(20),
		Per:       time.Duration(1 + w.random.Int64N(int64(2*time.Minute))),
	}
	if l.Algorithm == limiter.TokenBucket {
		l.Burst = 1 + w.random.Int64N(20)
	}
	w.least = min(w.least, l.Capacity())
	return l
}

func (w *world) handler(limiters int) http.Handler {
	h := http.NotFoundHandler()
	for i := range limiters {
		var budgets []limiter.Budget
		for j := range 1 + w.random.IntN(3) {
			b := limiter.Budget{Name: fmt.Sprintf("b%d-%d", i, j), Scope: limiter.ByPrincipal,
				Limit: w.limit()}
			switch w.random.IntN(3) {
			case 0:
				b.Scope = limiter.ByTenant
			case 1:
				b.PerRequest = true
			}
			if limiters == 1 && w.random.IntN(4) == 0 {
				b.Scope = 0 // the client is not told of it
			}
			budgets = append(budgets, b)
		}
		store := limiter.Must(memstore.New(memstore.Config{MaxAccounts: 100}))
		l := limiter.Must(limiter.New(store, budgets, limiter.Config{}))
		who := keying.Authenticated(keying.Refuse("Test"))
		h = limiter.Must(middleware.New(l, who, keying.Pattern, middleware.Config{
			Cost: func(*http.Request) int64 { return w.cost },
		})).Handler(h)
	}
	return h
}

// A client that is alone, and waits as it is told, is never refused twice.
func TestTransport_IsNeverRefusedTwice(t *testing.T) {
	for limiters, sets := range []int{1: 4000, 2: 3000, 3: 3000} {
		if sets == 0 {
			continue
		}
		if testing.Short() {
			sets /= 20
		}
		t.Run(fmt.Sprintf("limiters=%d", limiters), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				refused := 0
				for seed := range sets {
					refused += obey(t, limiters, seed)
				}
				if refused == 0 && limiters == 1 {
					t.Error("nothing was refused: this shows nothing")
				}
			})
		})
	}
}

// obey sends requests to a random service, and returns how many were refused.
func obey(t *testing.T, limiters, seed int) (refused int) {
	w := &world{random: rand.New(rand.NewPCG(uint64(seed), uint64(limiters))), cost: 1, least: 1 << 30}
	h := w.handler(limiters)
	tries := 0
	client := &Transport{MaxWait: 24 * time.Hour, Base: direct{http.HandlerFunc(
		func(rw http.ResponseWriter, r *http.Request) {
			tries++
			h.ServeHTTP(rw, r.WithContext(keying.WithPrincipal(r.Context(),
				limiter.Principal{Kind: "user", Tenant: "team", ID: "alice"})))
		})}}
	for n := range 12 {
		if limiters == 1 {
			w.cost = w.random.Int64N(w.least + 1)
		}
		tries = 0
		resp, err := client.RoundTrip(httptest.NewRequest("GET", "http://example.com/", nil))
		if err != nil {
			t.Fatal(err)
		}
		if tries > 2 || resp.StatusCode != http.StatusNotFound {
			t.Fatalf("%d limiters, seed %d, request %d: status %d after %d tries, Retry-After %q",
				limiters, seed, n, resp.StatusCode, tries, resp.Header.Get("Retry-After"))
		}
		refused += tries - 1
		if w.random.IntN(3) == 0 {
			time.Sleep(time.Duration(w.random.Int64N(int64(time.Minute))))
		}
	}
	return refused
}

func TestShow_TheObedientClientIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := direct{limited()}
		var out strings.Builder
		fmt.Fprintln(&out, "plain")
		if err := ask(&out, &http.Client{Transport: server}, "http://example.com", 5); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&out, "obedient")
		err := ask(&out, &http.Client{Transport: &Transport{Base: server}}, "http://example.com", 4)
		if err != nil {
			t.Fatal(err)
		}
		const want = `plain
  0.0 s: 200 OK  RateLimit: "address";r=2;t=1
  0.0 s: 200 OK  RateLimit: "address";r=1;t=1
  0.0 s: 200 OK  RateLimit: "address";r=0;t=1
  0.0 s: 429 Too Many Requests  RateLimit: "address";r=0;t=1
  0.0 s: 429 Too Many Requests  RateLimit: "address";r=0;t=1
obedient
  1.0 s: 200 OK  RateLimit: "address";r=0;t=1
  2.0 s: 200 OK  RateLimit: "address";r=0;t=1
  3.0 s: 200 OK  RateLimit: "address";r=0;t=1
  4.0 s: 200 OK  RateLimit: "address";r=0;t=1
`
		if out.String() != want {
			t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
		}
	})
}
