// Quickstart is a chi server whose users have limits of their own on each
// route. Run it, and try the curl lines that it prints:
//
//	go run ./examples/quickstart
//	go run ./examples/quickstart -redis localhost:6379
//
// With a Redis server, it also shows what happens while that is away.
// README.md answers what an operator asks.
package main

import (
	"flag"
	"log"
	"strings"

	"github.com/ration-go/ration/examples/internal/service"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	operators := flag.String("operators", "127.0.0.1:9081",
		"address for operators, which must not be public; empty: none")
	server := flag.String("redis", "", "address of a Redis server for the accounts of users; "+
		"empty: they live in this process")
	flag.Parse()

	// Accounts of addresses always live in this process; examples/redis has two.
	addresses := limiter.Must(memstore.New(memstore.Config{}))
	var users limiter.Store = addresses
	text := hint
	if *server != "" {
		users = limiter.Must(service.Shared(*server, 1))
		text += strings.ReplaceAll(outage, "REDIS", service.CommandLine(*server))
	}
	handler, err := service.New(users, addresses)
	if err != nil {
		log.Fatal(err)
	}
	if err := service.Serve(*addr, *operators, text, handler); err != nil {
		log.Fatal(err)
	}
}

const hint = `quickstart: http://%[1]s

  # exports: 2 at once, then 1 a second; the third is refused
  for i in 1 2 3; do curl -si -H 'Authorization: Bearer alice-token' http://%[1]s/v1/exports/7; done

  # as Retry-After said
  sleep 1; curl -si -H 'Authorization: Bearer alice-token' http://%[1]s/v1/exports/7

  # another user and another route have accounts of their own
  curl -si -H 'Authorization: Bearer bob-token' http://%[1]s/v1/exports/7
  curl -si -H 'Authorization: Bearer alice-token' http://%[1]s/v1/summaries/7

  # nobody
  curl -si http://%[1]s/v1/exports/7

  # what was decided
  curl -s http://%[1]s/metrics | grep ^ration_

  # who was refused, for operators; more in examples/quickstart/README.md
  curl -s http://%[2]s/callers
`

const outage = `
  # stop the server: summaries are still limited, by this process (OnError: Local), and
  # exports are refused with 503 (OnError: Closed)
  redis-cli REDIS shutdown nosave
  curl -si -H 'Authorization: Bearer alice-token' http://%[1]s/v1/summaries/[1-6]
  curl -si -H 'Authorization: Bearer alice-token' http://%[1]s/v1/exports/7
  curl -s http://%[2]s/metrics | grep -E '^ration_(local|breaker|store_errors)'

  # start it again, for example by redis-server &: it decides at once
  curl -si -H 'Authorization: Bearer alice-token' http://%[1]s/v1/exports/7
`
