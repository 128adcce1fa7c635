package redistest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Group is a master and a replica that a Sentinel watches: when the master is
// gone for a moment, it makes the replica the master.
type Group struct {
	Name     string // what the Sentinel calls the master
	Sentinel *Server
	Master   *Server // the one that is the master at first
	Replica  *Server
}

// downAfter is how long a master is silent before it is replaced.
const downAfter = 500 * time.Millisecond

// StartGroup starts a group, and returns when the replica follows the master.
func StartGroup(t testing.TB) *Group {
	t.Helper()
	g := &Group{Name: "main", Master: StartTCP(t)}
	g.Replica = StartTCP(t, "--replicaof", "127.0.0.1", g.Master.Port())
	g.Replica.wait("the replica to follow", "INFO replication", "master_link_status:up")
	g.Sentinel = g.sentinel(t)
	g.Sentinel.wait("the Sentinel to know the replica", "INFO sentinel", "slaves=1")
	return g
}

func (g *Group) sentinel(t testing.TB) *Server {
	t.Helper()
	s := newServer(t)
	s.Network, s.Addr = "tcp", FreeAddr(t)
	file := filepath.Join(s.dir, "sentinel.conf")
	config := fmt.Sprintf("port %s\nbind 127.0.0.1\ndir %s\n"+
		"sentinel monitor %s 127.0.0.1 %s 1\nsentinel down-after-milliseconds %s %d\n"+
		"sentinel failover-timeout %s 5000\n",
		s.Port(), s.dir, g.Name, g.Master.Port(), g.Name, downAfter.Milliseconds(), g.Name)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	s.args, s.plain = []string{file, "--sentinel"}, true
	s.Restart()
	return s
}

// wait waits until the reply of a command contains text.
func (s *Server) wait(what, command, text string) {
	s.t.Helper()
	words := strings.Fields(command)
	args := make([]any, len(words))
	for i, word := range words {
		args[i] = word
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		reply, err := s.ask(args...)
		if err == nil && strings.Contains(fmt.Sprint(reply), text) {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("redistest: waited for %s: %v, %v", what, reply, err)
		}
	}
}
