package grpcinterceptor_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/ration-go/ration/grpcinterceptor"
	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
)

// callFrom calls from a client whose end of the socket has the name, "" for none,
// and returns the status of the call. It speaks gRPC by net/http, which opens a
// connection in a fraction of the time that a grpc.ClientConn takes.
func callFrom(name, forwarded string) (string, error) {
	dialer := &net.Dialer{}
	if name != "" {
		dialer.LocalAddr = &net.UnixAddr{Name: name, Net: "unix"}
		defer func() { _ = os.Remove(name) }()
	}
	transport := &http.Transport{Protocols: new(http.Protocols),
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", "s")
		}}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	r, err := http.NewRequest("POST", "http://unix"+emptyCall, bytes.NewReader(make([]byte, 5)))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/grpc")
	r.Header.Set("Te", "trailers")
	if forwarded != "" {
		r.Header.Set("X-Forwarded-For", forwarded)
	}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err = io.Copy(io.Discard, resp.Body); err != nil {
		return "", err
	}
	return resp.Trailer.Get("Grpc-Status") + resp.Header.Get("Grpc-Status"), nil
}

// socketName is the n-th of many names of a client's socket that read like an
// address, each another one.
func socketName(n int) string {
	// Names that begin with @ are the machine's: other processes must not have them.
	ip := netip.AddrFrom4([4]byte{byte(1 + os.Getpid()%200), byte(n >> 16), byte(n >> 8), byte(n)})
	return fmt.Sprintf([...]string{
		"%s", "%s:4711", "::ffff:%s", "[::ffff:%s]:4711", "64:ff9b::%s", "[2001:db8::%s]:80",
		"fe80::%s%%eth0", "[%s]", "@%s", "@%s:4711",
	}[n%10], ip)
}

// believing believes a proxy at 127.0.0.1, whose name a socket can have, too.
func believing(unknown keying.Absent) keying.Addresses {
	return keying.Addresses{Unknown: unknown,
		Proxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
}

// judge answers what a limiter by address says of a call.
type judge func(ctx context.Context) error

func interceptorOf(t *testing.T, l *limiter.Limiter, from keying.Addresses) judge {
	t.Helper()
	i := intercept(t, l, keying.ByAddress(from), grpcinterceptor.Config{})
	return func(ctx context.Context) error {
		_, err := i.Unary(ctx, empty, unaryInfo,
			unaryDone)
		return err
	}
}

func handleOf(t *testing.T, l *limiter.Limiter, from keying.Addresses) judge {
	t.Helper()
	guard := tapOf(t, l, from, grpcinterceptor.Config{})
	return func(ctx context.Context) error {
		_, err := guard.Handle(ctx, &tap.Info{FullMethodName: emptyCall})
		return err
	}
}

// asInterceptor asks where interceptors are asked, and asTap where taps are.
func asInterceptor(ask judge) grpc.ServerOption {
	return grpc.ChainUnaryInterceptor(func(
		ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
	) (any, error) {
		if err := ask(ctx); err != nil {
			return nil, err
		}
		return handler(ctx, req)
	})
}

func asTap(ask judge) grpc.ServerOption {
	return grpc.InTapHandle(func(ctx context.Context, _ *tap.Info) (context.Context, error) {
		return ctx, ask(ctx)
	})
}

// places are where a call meets a limiter by address.
var places = []struct {
	name    string
	clients int
	network string
	limit   func(*testing.T, *limiter.Limiter, keying.Addresses) judge
	option  func(judge) grpc.ServerOption
}{
	{"interceptor", 10_000, "unix", interceptorOf, asInterceptor},
	{"interceptor behind ServeHTTP", 1_000, "http+unix", interceptorOf, asInterceptor},
	{"tap", 1_000, "unix", handleOf, asTap},
}

const ok, exhausted, unauthenticated = "0", "8", "16" // statuses of calls

// Each call is judged by a limiter of each choice.
func TestCaller_TheNameOfAUnixSocketIsNoAddress(t *testing.T) {
	for _, place := range places {
		t.Run(place.name, func(t *testing.T) {
			refusing := newStore(standing)
			sharing := newStore(standing)
			l, _ := limiterOver(t, refusing, perAddress(10))
			refuse := place.limit(t, l, believing(keying.Refuse("Bearer")))
			l, _ = limiterOver(t, sharing, perAddress(10))
			share := place.limit(t, l, believing(keying.OrShared()))

			var mu sync.Mutex
			refused, shared := map[codes.Code]int{}, map[codes.Code]int{}
			start(t, place.network, place.option(func(ctx context.Context) error {
				mu.Lock()
				defer mu.Unlock()
				refused[status.Code(refuse(ctx))]++
				shared[status.Code(share(ctx))]++
				return nil
			}))
			var workers sync.WaitGroup
			for first := range 4 {
				workers.Go(func() {
					for n := first; n < place.clients; n += 4 {
						code, err := callFrom(socketName(n), "")
						assert.NoError(t, err)
						assert.Equal(t, ok, code)
					}
				})
			}
			workers.Wait()
			mu.Lock()
			defer mu.Unlock()
			assert.Equal(t, map[codes.Code]int{codes.Unauthenticated: place.clients}, refused)
			assert.Zero(t, refusing.Stats().Accounts)
			assert.Equal(t, map[codes.Code]int{codes.OK: 10,
				codes.ResourceExhausted: place.clients - 10}, shared)
			assert.EqualValues(t, 1, sharing.Stats().Accounts)
		})
	}
}

func TestCaller_TheNameOfAUnixSocketIsNoProxy(t *testing.T) {
	for _, place := range places {
		t.Run(place.name, func(t *testing.T) {
			store := newStore(standing)
			l, _ := limiterOver(t, store, perAddress(10))
			start(t, place.network, place.option(place.limit(t, l, believing(keying.Absent{}))))
			names := []string{"127.0.0.1", "127.0.0.1:80", "::ffff:127.0.0.1", "@127.0.0.1", ""}
			for n, name := range names {
				code, err := callFrom(name, fmt.Sprintf("203.0.113.%d", n))
				require.NoError(t, err)
				assert.Equal(t, unauthenticated, code, name)
			}
			assert.Zero(t, store.Stats().Accounts)
		})
	}
}

// With UnixProxy, what connects over the socket is a proxy whatever its name is.
func TestCaller_AProxyOnAUnixSocketCanBeTrusted(t *testing.T) {
	for _, place := range places {
		t.Run(place.name, func(t *testing.T) {
			store := newStore(standing)
			l, _ := limiterOver(t, store, perAddress(10))
			from := believing(keying.Absent{})
			from.UnixProxy = true
			start(t, place.network, place.option(place.limit(t, l, from)))
			got := map[string]int{}
			for n := range 20 { // the left is the caller's own word
				code, err := callFrom(socketName(n), fmt.Sprintf("198.51.100.%d, 203.0.113.7", n))
				require.NoError(t, err)
				got[code]++
			}
			assert.Equal(t, map[string]int{ok: 10, exhausted: 10}, got)
			for forwarded, want := range map[string]string{"203.0.113.8": ok, "": unauthenticated,
				"203.0.113.9, unknown": unauthenticated} {
				code, err := callFrom("203.0.113.9", forwarded)
				require.NoError(t, err)
				assert.Equal(t, want, code, forwarded)
			}
			assert.EqualValues(t, 2, store.Stats().Accounts)
		})
	}
}

// named is an address of any network, with any text.
type named struct{ network, text string }

func (n named) Network() string { return n.network }
func (n named) String() string  { return n.text }

func TestCaller_OnlyNetworksWithIPAddressesHaveOne(t *testing.T) {
	tcp := &net.TCPAddr{IP: net.IPv4(203, 0, 113, 7), Port: 80}
	unix := &net.UnixAddr{Name: "203.0.113.7:80", Net: "unix"}
	local := &net.UnixAddr{Name: "s", Net: "unix"}
	for _, tt := range []struct {
		name        string
		addr, local net.Addr
		want        codes.Code
	}{
		{"tcp", tcp, tcp, codes.OK},
		{"udp", &net.UDPAddr{IP: net.IPv4(203, 0, 113, 7), Port: 80}, nil, codes.OK},
		{"tcp by another type", named{"tcp", "203.0.113.7:80"}, tcp, codes.OK},
		{"tcp that a proxy protocol states", tcp, local, codes.OK},
		{"unix", unix, local, codes.Unauthenticated},
		{"unix without a local end", unix, nil, codes.Unauthenticated},
		{"unix without its network", &net.UnixAddr{Name: "203.0.113.7"}, nil, codes.Unauthenticated},
		{"unix by another type", named{"unix", "203.0.113.7:80"}, nil, codes.Unauthenticated},
		{"text that claims tcp", named{"tcp", "203.0.113.7:80"}, local, codes.Unauthenticated},
		{"vsock", named{"vsock", "203.0.113.7:80"}, nil, codes.Unauthenticated},
		{"in memory", named{"bufconn", "203.0.113.7:80"}, nil, codes.Unauthenticated},
		{"no network", named{"", "203.0.113.7:80"}, nil, codes.Unauthenticated},
		{"no text", named{"tcp", ""}, nil, codes.Unauthenticated},
		{"nothing", nil, nil, codes.Unauthenticated},
		{"a nil pointer", (*net.TCPAddr)(nil), nil, codes.Unauthenticated},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, _ := newLimiter(t, perAddress(1))
			i := intercept(t, l, keying.ByAddress(keying.Addresses{}), grpcinterceptor.Config{})
			ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: tt.addr, LocalAddr: tt.local})
			_, err := i.Unary(ctx, empty, unaryInfo,
				unaryDone)
			assert.Equal(t, tt.want, status.Code(err))
		})
	}
}
