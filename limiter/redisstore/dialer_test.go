package redisstore_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/lab/certtest"
	"github.com/ration-go/ration/internal/lab/redistest"
	"github.com/ration-go/ration/limiter/redisstore"
	"github.com/ration-go/ration/limiter/storekit"
)

// recommendedOptions returns those of ExampleNew, without the server.
func recommendedOptions() redis.Options {
	return redis.Options{Dialer: redisstore.Dialer(nil), DialTimeout: 500 * time.Millisecond, PoolSize: 16,
		DisableIdentity: true}
}

// recommended returns a client with the options of ExampleNew.
func recommended(t testing.TB, network, addr string) *redis.Client {
	t.Helper()
	options := recommendedOptions()
	options.Network, options.Addr = network, addr
	client := redis.NewClient(&options)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// While nobody listens the client never stops dialing, and the error says why there is
// no connection.
func TestDialer_ARefusedConnectionIsUnavailableAtOnce(t *testing.T) {
	server := redistest.StartTCP(t)
	client := recommended(t, server.Network, server.Addr)
	s := newStore(t, client, redisstore.Config{Timeout: patient})
	require.NoError(t, ask(t, s))
	server.Kill()
	for range 4 * 16 { // the client would stop after PoolSize
		err := ask(t, s)
		failed(t, err, storekit.Unavailable, storekit.Ambiguous)
	}
	err := ask(t, s)
	failed(t, err, storekit.Unavailable)
	assert.ErrorContains(t, err, "dial tcp "+server.Addr)
	assert.ErrorContains(t, err, "connection refused")
	var op *net.OpError
	assert.ErrorAs(t, err, &op)
	assert.ErrorContains(t, client.Get(t.Context(), "x").Err(), "connection refused", "the user's commands")
	server.Restart()
	require.NoError(t, ask(t, s))
	require.NoError(t, client.Set(t.Context(), "x", 1, 0).Err())
}

// The error while the breaker is open says why it is.
func TestDialer_TheErrorSaysWhyTheBreakerIsOpen(t *testing.T) {
	server := redistest.StartTCP(t)
	s := newStore(t, recommended(t, server.Network, server.Addr), redisstore.Config{Timeout: 20 * time.Millisecond})
	server.Kill()
	require.Eventually(t, func() bool { return ask(t, s) != nil && s.Open() }, patient, time.Millisecond)
	err := ask(t, s)
	failed(t, err, storekit.Unavailable)
	assert.ErrorContains(t, err, "asked no more")
	assert.ErrorContains(t, err, "connection refused")
}

// A broken connection that comes too late for its call is not used for the next.
func TestDialer_ABrokenConnectionIsNotUsedLater(t *testing.T) {
	dial := redisstore.Dialer(nil)
	conn, err := dial(t.Context(), "unix", "/nobody/listens")
	require.NoError(t, err)
	_, err = conn.Write([]byte("x"))
	assert.ErrorContains(t, err, "/nobody/listens")
	_, err = conn.Read(make([]byte, 1))
	assert.Error(t, err)
	raw, ok := conn.(interface {
		SyscallConn() (syscall.RawConn, error)
	})
	require.True(t, ok)
	_, err = raw.SyscallConn()
	assert.Error(t, err)
	assert.Equal(t, "unix", conn.RemoteAddr().Network())
	assert.Equal(t, "/nobody/listens", conn.LocalAddr().String())
	assert.NoError(t, conn.Close())
}

// behindTLS starts what lets clients reach the server by TLS alone, and returns its address.
func behindTLS(t *testing.T, server *redistest.Server, config *tls.Config) string {
	t.Helper()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial(server.Network, server.Addr)
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(to, conn); _ = to.Close() }()
			go func() { _, _ = io.Copy(conn, to); _ = conn.Close() }()
		}
	}()
	return listener.Addr().String()
}

func TestDialer_SpeaksTLS(t *testing.T) {
	ca := certtest.New(t, "CA")
	addr := behindTLS(t, redistest.Start(t), ca.Server(t, tls.NoClientCert))
	take := func(config *tls.Config) error {
		client := redis.NewClient(&redis.Options{Addr: addr, Dialer: redisstore.Dialer(config)})
		t.Cleanup(func() { _ = client.Close() })
		return ask(t, newStore(t, client, redisstore.Config{Timeout: patient}))
	}
	require.NoError(t, take(ca.Client()))
	err := take(certtest.New(t, "another CA").Client())
	failed(t, err, storekit.Unavailable)
	assert.ErrorContains(t, err, "certificate")
}

// The handshake of TLS is a part of the dial and ends with its context.
func TestDialer_AHandshakeEndsWithItsContext(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	first := make(chan byte, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		var b [1]byte
		_, _ = io.ReadFull(conn, b[:])
		first <- b[0]
		_, _ = io.Copy(io.Discard, conn)
		_ = conn.Close()
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	start := time.Now()
	conn, err := redisstore.Dialer(&tls.Config{ServerName: "redis"})(ctx, "tcp", listener.Addr().String())
	require.NoError(t, err)
	assert.Less(t, time.Since(start), patient)
	_, err = conn.Write(nil)
	assert.ErrorContains(t, err, "deadline exceeded")
	assert.EqualValues(t, 22, <-first, "a handshake record")
}
