package redistest

import (
	"bytes"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Fault is what a [Proxy] does to the traffic.
type Fault int32

const (
	// None lets everything pass.
	None Fault = iota
	// LoseReply closes the connection when the server replies to a script: it has
	// run, and the client does not know. Clients can connect again.
	LoseReply
	// ResetReply is LoseReply with a reset (RST), if the proxy is on TCP.
	ResetReply
	// StallReply keeps the reply to a script back: the connection stays open and
	// silent.
	StallReply
	// HalveReply passes the first half of the reply to a script, and then nothing.
	HalveReply
	// TrickleReply passes a byte of the reply to a script each 5 ms.
	TrickleReply
	// Mute passes no replies at all: connections are accepted and never answered.
	Mute
	// BlackHole passes nothing, in either direction and to new connections, until the
	// fault ends: then what was held back goes on. It needs a proxy on TCP.
	BlackHole
)

// Proxy stands between clients and a server.
type Proxy struct {
	Network, Addr string // as net.Dial takes them

	server   *Server
	listener net.Listener
	fault    atomic.Int32
	delay    atomic.Pointer[[2]time.Duration] // of requests, on their way to the server
	dials    atomic.Int64

	mu      sync.Mutex
	conns   []net.Conn
	opens   chan struct{} // closed when no black hole is, or the proxy ends
	plugged []net.Conn    // fill the listen queue of a black hole
}

// NewProxy starts a proxy in front of the server, on a unix socket.
func NewProxy(t testing.TB, s *Server) *Proxy {
	t.Helper()
	dir, err := os.MkdirTemp("", "proxy")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return start(t, s, "unix", filepath.Join(dir, "s"))
}

// NewTCPProxy starts a proxy in front of the server, on a loopback port.
func NewTCPProxy(t testing.TB, s *Server) *Proxy {
	t.Helper()
	return start(t, s, "tcp", "127.0.0.1:0")
}

func start(t testing.TB, s *Server, network, addr string) *Proxy {
	t.Helper()
	listener, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Network: network, Addr: listener.Addr().String(), server: s, listener: listener,
		opens: make(chan struct{})}
	close(p.opens)
	p.delay.Store(new([2]time.Duration))
	var group sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		p.Set(None)
		p.Drop()
		group.Wait()
	})
	group.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			p.pass()
			p.dials.Add(1)
			group.Go(func() { p.serve(conn) })
		}
	})
	return p
}

// pass waits until there is no black hole.
func (p *Proxy) pass() {
	p.mu.Lock()
	opens := p.opens
	p.mu.Unlock()
	<-opens
}

// Set says what happens from now on.
func (p *Proxy) Set(f Fault) {
	p.mu.Lock()
	was := Fault(p.fault.Swap(int32(f)))
	switch {
	case f == BlackHole && was != BlackHole:
		p.opens = make(chan struct{})
		p.mu.Unlock()
		p.plug()
		return
	case f != BlackHole && was == BlackHole:
		for _, conn := range p.plugged {
			_ = conn.Close()
		}
		p.plugged = nil
		listen(p.listener, 4096)
		close(p.opens)
	}
	p.mu.Unlock()
}

// plug fills the listen queue, so that the kernel drops what would connect.
func (p *Proxy) plug() {
	listen(p.listener, 0)
	for {
		conn, err := net.DialTimeout(p.Network, p.Addr, 50*time.Millisecond)
		if err != nil {
			return
		}
		p.mu.Lock()
		p.plugged = append(p.plugged, conn)
		p.mu.Unlock()
	}
}

// listen sets how many connections may wait for the listener to accept them.
func listen(l net.Listener, backlog int) {
	if s, ok := l.(syscall.Conn); ok {
		if raw, err := s.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { _ = syscall.Listen(int(fd), backlog) })
		}
	}
}

// Delay keeps each request back for a time, as a long way does.
func (p *Proxy) Delay(d time.Duration) { p.DelayBetween(d, d) }

// DelayBetween is Delay for a random time between two.
func (p *Proxy) DelayBetween(least, most time.Duration) {
	p.delay.Store(&[2]time.Duration{least, most})
}

// Dials returns how many connections clients have made.
func (p *Proxy) Dials() int64 { return p.dials.Load() }

// Open returns how many connections clients have now.
func (p *Proxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns) / 2
}

// Drop closes all connections.
func (p *Proxy) Drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range p.conns {
		_ = conn.Close()
	}
}

func (p *Proxy) serve(client net.Conn) {
	server, err := net.Dial(p.server.Network, p.server.Addr)
	if err != nil {
		_ = client.Close()
		return
	}
	p.mu.Lock()
	p.conns = append(p.conns, client, server)
	p.mu.Unlock()
	var group sync.WaitGroup
	var script atomic.Bool // the last request was one
	group.Go(func() {
		forward(client, server, func(request []byte) []byte {
			script.Store(bytes.Contains(request, []byte("\r\neval")))
			delay := p.delay.Load()
			time.Sleep(delay[0] + rand.N(delay[1]-delay[0]+1))
			p.pass()
			return request
		})
	})
	forward(server, client, func(reply []byte) []byte {
		p.pass()
		fault := Fault(p.fault.Load())
		if fault == Mute {
			return nil
		}
		if !script.Load() {
			return reply
		}
		switch fault {
		case StallReply:
			return nil
		case HalveReply:
			return reply[:len(reply)/2]
		case TrickleReply:
			for i := range reply {
				time.Sleep(5 * time.Millisecond)
				if _, err := client.Write(reply[i : i+1]); err != nil {
					break
				}
			}
			return nil
		case ResetReply:
			if tcp, ok := client.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0)
			}
			_ = client.Close()
			return nil
		case LoseReply:
			_ = client.Close()
			return nil
		default:
			return reply
		}
	})
	group.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = slices.DeleteFunc(p.conns, func(c net.Conn) bool { return c == client || c == server })
}

// forward copies what passes of what arrives, and closes both ends when one is closed.
func forward(from, to net.Conn, pass func([]byte) []byte) {
	defer func() { _, _ = from.Close(), to.Close() }()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if text := pass(buffer[:n]); len(text) > 0 {
				if _, err := to.Write(text); err != nil {
					return
				}
			}
		}
		if err != nil {
			return
		}
	}
}
