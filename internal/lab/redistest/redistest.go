// Package redistest runs Redis servers for tests, and does to them what happens
// to servers: they are killed, stopped, restarted and made read-only, and their
// replies get lost on the way; see [Server] and [Proxy].
//
// Servers are real ones, of the redis-server binary (or valkey-server) in PATH, or
// of the one that the environment variable REDIS_SERVER names, since imitations
// differ in what matters most here, such as how Lua formats numbers. They take some
// milliseconds to start, keep nothing on disk unless told to, and end with their
// test.
package redistest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Server is one server process. Its methods stop the test where they fail.
type Server struct {
	Network, Addr string // as net.Dial takes them

	t     testing.TB
	dir   string
	args  []string
	plain bool // args are all: it is no server of data
	cmd   *exec.Cmd
	done  chan struct{} // closed when the process has ended
}

// patience is how long anything may take that should take milliseconds.
const patience = 20 * time.Second

// Start starts a server on a unix socket, with more arguments of redis-server if
// any are given.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	s := newServer(t)
	s.Network, s.Addr = "unix", filepath.Join(s.dir, "s")
	s.args = append([]string{"--port", "0", "--unixsocket", s.Addr}, args...)
	s.Restart()
	return s
}

// StartTCP starts a server on a free loopback port.
func StartTCP(t testing.TB, args ...string) *Server {
	t.Helper()
	for range 5 {
		s := newServer(t)
		s.Network, s.Addr = "tcp", FreeAddr(t)
		s.args = append([]string{"--port", s.Port(), "--bind", "127.0.0.1"}, args...)
		s.launch()
		if s.ready() == nil {
			return s
		}
		s.Kill() // another process took the port first
	}
	t.Fatal("redistest: no server starts on a loopback port")
	return nil
}

func newServer(t testing.TB) *Server {
	t.Helper()
	binary(t)
	dir, err := os.MkdirTemp("", "redis") // t.TempDir is too long for a socket's name
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{t: t, dir: dir}
	t.Cleanup(func() {
		s.Kill()
		_ = os.RemoveAll(dir)
	})
	return s
}

// binary returns the server's binary. Where there is none the test is skipped,
// or fails in CI.
func binary(t testing.TB) string {
	t.Helper()
	for _, name := range []string{os.Getenv("REDIS_SERVER"), "redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const missing = "redistest: no redis-server in PATH: install the package redis-server"
	if os.Getenv("CI") != "" {
		t.Fatal(missing)
	}
	t.Skip(missing)
	return ""
}

// FreeAddr returns a loopback address that nobody listens on, until somebody does.
func FreeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// Restart starts the server again; one that runs is killed first. What is not on
// its disk is lost.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	s.launch()
	if err := s.ready(); err != nil {
		s.t.Fatalf("redistest: %v does not answer: %v", s.cmd, err)
	}
}

func (s *Server) launch() {
	s.t.Helper()
	args := s.args
	if !s.plain {
		args = append([]string{"--save", "", "--appendonly", "no", "--dir", s.dir}, args...)
	}
	s.cmd = exec.Command(binary(s.t), args...)
	s.cmd.SysProcAttr = dieWithParent()
	if err := s.cmd.Start(); err != nil {
		s.t.Fatalf("redistest: %v", err)
	}
	s.done = make(chan struct{})
	go func(cmd *exec.Cmd, done chan struct{}) {
		_ = cmd.Wait()
		close(done)
	}(s.cmd, s.done)
}

// ready waits until the server answers.
func (s *Server) ready() error {
	deadline := time.Now().Add(patience)
	for {
		_, err := s.ask("PING")
		if err == nil || time.Now().After(deadline) {
			return err
		}
		select {
		case <-s.done:
			return errors.New("it has ended")
		case <-time.After(time.Millisecond):
		}
	}
}

// Kill ends the server as a crash does.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	<-s.done
}

// Pause stops the process: connections stay open and requests pile up.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Resume lets a paused process go on, with all that has piled up.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig os.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatalf("redistest: %v: %v", sig, err)
	}
}

// Port returns the loopback port.
func (s *Server) Port() string {
	_, port, _ := net.SplitHostPort(s.Addr)
	return port
}

// Do sends one command and returns its reply: a string, an int64, nil or a []any
// of these. An error reply stops the test.
func (s *Server) Do(args ...any) any {
	s.t.Helper()
	reply, err := s.ask(args...)
	if err != nil {
		s.t.Fatalf("redistest: %v: %v", args, err)
	}
	return reply
}

// ask sends one command on a connection of its own.
func (s *Server) ask(args ...any) (any, error) {
	conn, err := net.Dial(s.Network, s.Addr)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(patience))
	command := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, arg := range args {
		text := fmt.Sprint(arg)
		command = fmt.Appendf(command, "$%d\r\n%s\r\n", len(text), text)
	}
	if _, err := conn.Write(command); err != nil {
		return nil, err
	}
	return readReply(conn)
}
