package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/ration-go/ration/grpcinterceptor"
	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
)

// program returns the program that a variable of make test-rpc names.
func program(t *testing.T, variable string) string {
	t.Helper()
	name := os.Getenv(variable)
	if name == "" {
		t.Skip("make test-rpc sets " + variable)
	}
	return name
}

// answer is what a page saw of one call.
type answer struct {
	Code                   int
	Message, Reason, Error string
	Wait                   float64 // milliseconds
	Pushback               string
	Errors                 int // how often a grpc-web client reported one
}

// cors lets pages of any origin call, and exposes no header to them.
func cors(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		if r.Method == http.MethodOptions {
			w.Header().Set("Access-Control-Allow-Methods", "GET, POST")
			w.Header().Set("Access-Control-Allow-Headers", r.Header.Get("Access-Control-Request-Headers"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// withText answers the text form of gRPC-Web, which connect-go does not have: an empty
// message, and the status OK.
func withText(next http.Handler) http.Handler {
	const answer = "\x00\x00\x00\x00\x00" + "\x80\x00\x00\x00\x10grpc-status: 0\r\n"
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		contentType := r.Header.Get("Content-Type")
		if !strings.HasPrefix(contentType, "application/grpc-web-text") {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", contentType)
		_, _ = io.WriteString(w, base64.StdEncoding.EncodeToString([]byte(answer)))
	})
}

// A page of another origin reads code, details and wait in each protocol, though no header
// is exposed to it.
func TestClients_APageOfAnotherOriginReadsTheRefusal(t *testing.T) {
	browser := program(t, "BROWSER")
	bundle, err := exec.Command("clients/node_modules/.bin/esbuild", "clients/web.mjs", "--bundle",
		"--format=esm", "--log-level=error").Output()
	if err != nil {
		t.Fatal(err)
	}
	var clock clock
	handler, err := newHandler(withText(orders()), clock.now, perProcedure(limiter.PerMinute(1)))
	if err != nil {
		t.Fatal(err)
	}
	api := newServer(t, cors(handler))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /wait", func(_ http.ResponseWriter, r *http.Request) {
		ms, err := strconv.ParseFloat(r.FormValue("ms"), 64)
		if err != nil {
			t.Error(err)
		}
		clock.move(time.Duration(ms * float64(time.Millisecond)))
	})
	mux.HandleFunc("GET /web.mjs", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/javascript")
		_, _ = w.Write(bundle)
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, `<!doctype html><pre id="seen"></pre><script type="module" src="/web.mjs"></script>`)
	})
	seen := map[string][]answer{}
	text := browse(t, browser, newServer(t, mux).URL+"/?api="+api.URL)
	if err := json.Unmarshal([]byte(text), &seen); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if len(seen) != 9 {
		t.Errorf("%d clients, want 9", len(seen))
	}
	for name, answers := range seen {
		want := answer{Code: 8, Message: "rate limit exceeded; retry in 1m0s", Reason: "RATE_LIMIT_EXCEEDED",
			Wait: 60_000}
		if strings.HasPrefix(name, "grpc-web") {
			want.Errors, want.Pushback = 1, "-1"
		}
		if got, want := fmt.Sprint(answers), fmt.Sprint([]answer{{}, want, {}}); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
	}
}

// browse returns what the page writes into itself.
func browse(t *testing.T, browser, url string) string {
	t.Helper()
	profile, err := os.MkdirTemp("", "browser") // t.TempDir would fail while the browser still writes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(profile) })
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox", "--disable-gpu",
		"--disable-quic", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--user-data-dir="+profile,
		"--virtual-time-budget=600000", "--dump-dom", url)
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(out), `<pre id="seen">`)
	text, _, _ := strings.Cut(rest, "</pre>")
	return html.UnescapeString(text)
}

// thawing is a clock that stands still until the first refusal, and then goes with the
// real one: a retry that comes when it was told to is allowed, and none before.
type thawing struct{ since atomic.Pointer[time.Time] }

func (c *thawing) now() time.Time {
	standing := time.Unix(1_800_000_000, 0)
	if since := c.since.Load(); since != nil {
		return standing.Add(time.Since(*since))
	}
	return standing
}

func (c *thawing) thaw() {
	now := time.Now()
	c.since.CompareAndSwap(nil, &now)
}

// grpc-js waits by itself, and is let in at its first retry.
func TestClients_GRPCJSWaitsByItself(t *testing.T) {
	node := program(t, "NODE")
	limit := limiter.Limit{Tokens: 1, Per: 500 * time.Millisecond}
	for name, serve := range map[string]func(*testing.T, *thawing, *atomic.Int64) (address, method string){
		"middleware": func(t *testing.T, c *thawing, calls *atomic.Int64) (string, string) {
			handler, err := newHandler(orders(), c.now, perProcedure(limit))
			if err != nil {
				t.Fatal(err)
			}
			server := newServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				calls.Add(1)
				handler.ServeHTTP(w, r)
				if w.Header().Get("Grpc-Status") == "8" {
					c.thaw()
				}
			}))
			return server.Listener.Addr().String(), getProcedure
		},
		"interceptor": func(t *testing.T, c *thawing, calls *atomic.Int64) (string, string) {
			const method = "/grpc.health.v1.Health/Check"
			store := limiter.Must(memstore.New(memstore.Config{Now: c.now}))
			l := limiter.Must(limiter.New(store, []limiter.Budget{{Name: "calls", Limit: limit}},
				limiter.Config{}))
			i := limiter.Must(grpcinterceptor.New(l, keying.ByAddress(keying.Addresses{}),
				grpcinterceptor.Config{Methods: []string{method}}))
			count := func(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
				calls.Add(1)
				free := *info
				free.FullMethod += "Charged" // health checks are free
				resp, err := i.Unary(ctx, req, &free, h)
				if err != nil {
					c.thaw()
				}
				return resp, err
			}
			server := grpc.NewServer(grpc.UnaryInterceptor(count))
			grpc_health_v1.RegisterHealthServer(server, health.NewServer())
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			go func() { _ = server.Serve(listener) }()
			t.Cleanup(server.Stop)
			return listener.Addr().String(), method
		},
	} {
		t.Run(name, func(t *testing.T) {
			var clock thawing
			var calls atomic.Int64
			address, method := serve(t, &clock, &calls)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			out, err := exec.CommandContext(ctx, node, "clients/node.mjs", address, method).Output()
			if err != nil || strings.TrimSpace(string(out)) != "[0,0]" {
				t.Errorf("%s %v", out, err)
			}
			if calls.Load() != 3 {
				t.Errorf("%d attempts, want 3", calls.Load())
			}
		})
	}
}
