package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"syscall"
	"time"
)

// Dialer returns the recommended Dialer for redis.Options and redis.FailoverOptions.
// With it, calls fail at once while the server refuses connections, and are decided
// again within 200 ms of its return.
//
// Without it, the client counts failed dials: after PoolSize of them it dials only
// once a second, and answers everything else from memory, so the store is back up to
// 1.2 s after the server. This Dialer therefore returns no dial error to the client, but
// a connection whose first use fails with that error.
//
// If there is a Dialer, the client does not use Options.TLSConfig: pass it here. A nil
// config means no TLS. The handshake is part of the dial, and ends with its context.
func Dialer(config *tls.Config) func(ctx context.Context, network, addr string) (net.Conn, error) {
	dial := new(net.Dialer).DialContext
	if config != nil {
		dial = (&tls.Dialer{Config: config}).DialContext
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return &brokenConn{network, addr, &dialError{err}}, nil
		}
		return conn, nil
	}
}

// dialError hides the type of its cause from the client, which would try a *net.OpError
// again, several times, on the same connection.
type dialError struct{ cause error }

func (e *dialError) Error() string { return e.cause.Error() }

// unhidden returns the cause of a dialError, and any other error as it is.
func unhidden(err error) error {
	if dial, ok := errors.AsType[*dialError](err); ok {
		return dial.cause
	}
	return err
}

// isDialError reports whether err says that there is no connection to a server.
func isDialError(err error) bool {
	if _, ok := errors.AsType[*dialError](err); ok {
		return true
	}
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// brokenConn stands for a connection that could not be made. It is also its address.
type brokenConn struct {
	network, addr string
	err           error
}

func (c *brokenConn) Read([]byte) (int, error)         { return 0, c.err }
func (c *brokenConn) Write([]byte) (int, error)        { return 0, c.err }
func (c *brokenConn) Close() error                     { return nil }
func (c *brokenConn) LocalAddr() net.Addr              { return c }
func (c *brokenConn) RemoteAddr() net.Addr             { return c }
func (c *brokenConn) SetDeadline(time.Time) error      { return nil }
func (c *brokenConn) SetReadDeadline(time.Time) error  { return nil }
func (c *brokenConn) SetWriteDeadline(time.Time) error { return nil }

func (c *brokenConn) Network() string { return c.network }
func (c *brokenConn) String() string  { return c.addr }

// SyscallConn lets the client's health check fail, so that a broken connection which
// came too late for its call is not used for the next.
func (c *brokenConn) SyscallConn() (syscall.RawConn, error) { return nil, c.err }
