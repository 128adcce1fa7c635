package redistest

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
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
	// StallReply keeps the reply to a script back: the connection stays open and
	// silent.
	StallReply
)

// Proxy stands between clients and a server.
type Proxy struct {
	Network, Addr string // as net.Dial takes them

	server *Server
	fault  atomic.Int32
	delay  atomic.Int64 // of requests, on their way to the server
	dials  atomic.Int64

	mu    sync.Mutex
	conns []net.Conn
}

// NewProxy starts a proxy in front of the server.
func NewProxy(t testing.TB, s *Server) *Proxy {
	t.Helper()
	dir, err := os.MkdirTemp("", "proxy")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Network: "unix", Addr: filepath.Join(dir, "s"), server: s}
	listener, err := net.Listen(p.Network, p.Addr)
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		p.Drop()
		group.Wait()
		_ = os.RemoveAll(dir)
	})
	group.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			p.dials.Add(1)
			group.Go(func() { p.serve(conn) })
		}
	})
	return p
}

// Set says what happens to replies from now on.
func (p *Proxy) Set(f Fault) { p.fault.Store(int32(f)) }

// Delay keeps each request back for a time, as a long way does.
func (p *Proxy) Delay(d time.Duration) { p.delay.Store(int64(d)) }

// Dials returns how many connections clients have made.
func (p *Proxy) Dials() int64 { return p.dials.Load() }

// Drop closes all connections.
func (p *Proxy) Drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range p.conns {
		_ = conn.Close()
	}
	p.conns = nil
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
		forward(client, server, func(request []byte) bool {
			script.Store(bytes.Contains(request, []byte("\r\neval")))
			time.Sleep(time.Duration(p.delay.Load()))
			return true
		})
	})
	forward(server, client, func([]byte) bool {
		fault := Fault(p.fault.Load())
		if !script.Load() || fault == None {
			return true
		}
		if fault == LoseReply {
			_ = client.Close()
		}
		return false
	})
	group.Wait()
}

// forward copies what arrives, where pass says so, and closes both ends when one
// is closed.
func forward(from, to net.Conn, pass func([]byte) bool) {
	defer func() { _, _ = from.Close(), to.Close() }()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && pass(buffer[:n]) {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
