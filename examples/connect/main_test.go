package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ration-go/ration/limiter"
)

func TestRun_WaitsAsItIsTold(t *testing.T) {
	var out strings.Builder
	if err := run(&out); err != nil {
		t.Fatal(err)
	}
	if want := "an order\nan order\nrefused: resource_exhausted\nan order\n"; out.String() != want {
		t.Errorf("output:\n%s\nwant:\n%s", out.String(), want)
	}
}

// newServer serves HTTP/1 and HTTP/2 without TLS.
func newServer(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	return server
}

// clock stands still unless it is moved.
type clock struct{ elapsed atomic.Int64 }

func (c *clock) now() time.Time { return time.Unix(1_800_000_000, c.elapsed.Load()) }

func (c *clock) move(d time.Duration) { c.elapsed.Add(int64(d)) }

func clientOf(http2 bool) *http.Client {
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(!http2)
	transport.Protocols.SetUnencryptedHTTP2(http2)
	return &http.Client{Transport: transport}
}

var protocols = map[string]struct {
	options []connect.ClientOption
	http2   bool
}{
	"connect":      {nil, false},
	"connect-json": {[]connect.ClientOption{connect.WithProtoJSON()}, true},
	"connect-get":  {[]connect.ClientOption{connect.WithHTTPGet()}, false},
	"grpc":         {[]connect.ClientOption{connect.WithGRPC()}, true},
	"grpc-web":     {[]connect.ClientOption{connect.WithGRPCWeb()}, false},
	"grpc-web-2":   {[]connect.ClientOption{connect.WithGRPCWeb(), connect.WithProtoJSON()}, true},
}

// call makes a unary call or opens a stream, and reads it to its end.
func call(ctx context.Context, client *connect.Client[emptypb.Empty, wrapperspb.StringValue], stream bool) error {
	if !stream {
		_, err := client.CallUnary(ctx, connect.NewRequest(&emptypb.Empty{}))
		return err
	}
	s, err := client.CallServerStream(ctx, connect.NewRequest(&emptypb.Empty{}))
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	for s.Receive() {
	}
	return s.Err()
}

func TestConnectGo_EveryProtocolReadsTheRefusal(t *testing.T) {
	for name, protocol := range protocols {
		for path, stream := range map[string]bool{getProcedure: false, watchProcedure: true} {
			t.Run(name+path, func(t *testing.T) {
				var clock clock
				handler, err := newHandler(orders(), clock.now, perProcedure(limiter.PerMinute(1)))
				if err != nil {
					t.Fatal(err)
				}
				server := newServer(t, handler)
				httpClient := clientOf(protocol.http2)
				defer httpClient.CloseIdleConnections()
				options := append([]connect.ClientOption{
					connect.WithIdempotency(connect.IdempotencyNoSideEffects)}, protocol.options...)
				client := connect.NewClient[emptypb.Empty, wrapperspb.StringValue](httpClient,
					server.URL+path, options...)
				if err := call(t.Context(), client, stream); err != nil {
					t.Fatal(err)
				}
				err = call(t.Context(), client, stream)
				if connect.CodeOf(err) != connect.CodeResourceExhausted ||
					!strings.Contains(err.Error(), "rate limit exceeded; retry in") {
					t.Fatal(err)
				}
				assertInfo(t, err)
				wait, ok := waitOf(err)
				if !ok || wait != time.Minute {
					t.Fatalf("a wait of %v", wait)
				}
				clock.move(wait)
				if err := call(t.Context(), client, stream); err != nil {
					t.Errorf("after the wait: %v", err)
				}
			})
		}
	}
}

func assertInfo(t *testing.T, err error) {
	t.Helper()
	for _, detail := range err.(*connect.Error).Details() {
		value, err := detail.Value()
		if err != nil {
			t.Fatal(err)
		}
		if info, ok := value.(*errdetails.ErrorInfo); ok && info.GetReason() == "RATE_LIMIT_EXCEEDED" &&
			info.GetDomain() == "orders.example" && info.GetMetadata()["budget"] == "calls" {
			return
		}
	}
	t.Error("no ErrorInfo")
}

func TestProcedures_HaveAccountsOfTheirOwn(t *testing.T) {
	handler, err := newHandler(orders(), nil, perProcedure(limiter.PerHour(1)))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		path string
		want int
	}{{getProcedure, 200}, {getProcedure, 429}, {watchProcedure, 415}, {service + "Nope", 404}, {service + "No", 429}} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("POST", tt.path, strings.NewReader("{}"))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Connect-Protocol-Version", "1")
		handler.ServeHTTP(w, r)
		if w.Code != tt.want {
			t.Errorf("%s: %d, want %d", tt.path, w.Code, tt.want)
		}
	}
}
