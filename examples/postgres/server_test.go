package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// server is one PostgreSQL server for all tests of this process.
var server struct {
	once sync.Once
	url  string
	stop func()
	err  error
}

// patience is how long a server may take to start.
const patience = time.Minute

// database returns the URL of the one database, which has the table.
func database(t testing.TB) string {
	t.Helper()
	server.once.Do(startServer)
	if server.err != nil {
		t.Fatal(server.err)
	}
	return server.url
}

func connect(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// startServer starts a server on a free loopback port, with its data in a temporary
// directory.
func startServer() {
	server.stop = func() {}
	bin, err := binaries()
	if err != nil {
		server.err = err
		return
	}
	dir, err := os.MkdirTemp("", "ration-postgres")
	if err != nil {
		server.err = err
		return
	}
	server.stop = func() { _ = os.RemoveAll(dir) }
	own, err := asPostgres(dir)
	if err != nil {
		server.err = err
		return
	}
	data := filepath.Join(dir, "data")
	initdb := exec.Command(filepath.Join(bin, "initdb"), "-D", data, "-U", "postgres",
		"--auth", "trust", "--no-sync", "-E", "UTF8", "--locale", "C")
	initdb.SysProcAttr, initdb.Dir = own, dir
	if out, err := initdb.CombinedOutput(); err != nil {
		server.err = fmt.Errorf("initdb: %w\n%s", err, out)
		return
	}
	for range 5 { // another process can take the port first
		if server.err = launch(bin, dir, data, own); server.err == nil {
			server.err = createTable()
			return
		}
	}
}

func createTable() error {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, server.url)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, schema)
	return errors.Join(err, conn.Close(ctx))
}

func launch(bin, dir, data string, own *syscall.SysProcAttr) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	var logged bytes.Buffer
	postgres := exec.Command(filepath.Join(bin, "postgres"), "-D", data,
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=",
		"-c", "port="+port, "-c", "fsync=off", "-c", "max_connections=200")
	postgres.SysProcAttr, postgres.Dir, postgres.Stderr = own, dir, &logged
	if err := postgres.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = postgres.Wait()
	}()
	url := "postgres://postgres@127.0.0.1:" + port + "/postgres"
	if !answers(url, ended) {
		_ = postgres.Process.Kill()
		<-ended
		return fmt.Errorf("postgres does not answer:\n%s", &logged)
	}
	server.url = url
	server.stop = func() {
		_ = postgres.Process.Signal(syscall.SIGQUIT) // at once
		<-ended
		_ = os.RemoveAll(dir)
	}
	return nil
}

// answers waits until the server answers, and reports whether it does.
func answers(url string, ended <-chan struct{}) bool {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for ctx.Err() == nil {
		if conn, err := pgx.Connect(ctx, url); err == nil {
			_ = conn.Close(ctx)
			return true
		}
		select {
		case <-ended:
			return false
		case <-time.After(10 * time.Millisecond):
		}
	}
	return false
}

// binaries returns the directory of the server's programs, which Debian keeps out of
// PATH.
func binaries() (string, error) {
	var dirs []string
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	debian, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	for _, dir := range append(dirs, debian...) {
		if _, err := os.Stat(filepath.Join(dir, "initdb")); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("no PostgreSQL server: install the package postgresql")
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = l.Close() }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}
