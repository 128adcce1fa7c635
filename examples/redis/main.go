// Redis is the quickstart as two processes that share the accounts of their
// users in a Redis server: run it, and try the curl lines that it prints:
//
//	go run ./examples/redis -redis localhost:6379
//
// What addresses use is kept in each process: it bounds what strangers can do to
// this process, and their number must not fill the server's memory.
package main

import (
	"flag"
	"log"
	"os"
	"os/exec"
	"strings"

	"github.com/ration-go/ration/examples/internal/service"
	"github.com/ration-go/ration/limiter/memstore"
)

func main() {
	server := flag.String("redis", "localhost:6379", "address of the Redis server")
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	second := flag.String("second", "127.0.0.1:8081", "address of a second process; empty: none")
	flag.Parse()

	if *second != "" {
		another := exec.Command(os.Args[0], "-redis", *server, "-addr", *second, "-second=")
		another.Stderr = os.Stderr
		if err := another.Start(); err != nil {
			log.Fatal(err)
		}
		defer func() {
			_ = another.Process.Kill()
			_ = another.Wait()
		}()
	}
	if err := serve(*server, *addr, *second); err != nil {
		log.Print(err)
	}
}

func serve(server, addr, second string) error {
	users, err := service.Shared(server, 2)
	if err != nil {
		return err
	}
	addresses, err := memstore.New(memstore.Config{})
	if err != nil {
		return err
	}
	handler, err := service.New(users, addresses)
	if err != nil {
		return err
	}
	text := strings.NewReplacer("SECOND", second, "REDIS", service.CommandLine(server)).Replace(hint)
	return service.Serve(addr, "", text, handler)
}

const hint = `redis: http://%[1]s, and a second process

  # exports: 2 at once, then 1 a second, whichever process is asked; the third
  # is refused
  for at in %[1]s SECOND %[1]s; do
    curl -si -H 'Authorization: Bearer alice-token' http://$at/v1/exports/7
  done

  # without the server, each process decides about summaries by its share, which is 3 at
  # once instead of 5 (OnError: Local), and exports are not answered (OnError: Closed)
  redis-cli REDIS shutdown nosave
  curl -si -H 'Authorization: Bearer alice-token' http://%[1]s/v1/summaries/[1-4]
  curl -si -H 'Authorization: Bearer alice-token' http://%[1]s/v1/exports/7
`
