// Quickstart is a chi server whose users have limits of their own on each
// route. Run it, and try the curl lines that it prints:
//
//	go run ./examples/quickstart
//
// README.md answers what an operator asks.
package main

import (
	"flag"
	"log"

	"github.com/ration-go/ration/examples/internal/service"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	operators := flag.String("operators", "127.0.0.1:9081",
		"address for operators, which must not be public; empty: none")
	flag.Parse()

	// Accounts live in this process; examples/redis shares them among many.
	store := limiter.Must(memstore.New(memstore.Config{}))
	handler, err := service.New(store, store)
	if err != nil {
		log.Fatal(err)
	}
	if err := service.Serve(*addr, *operators, hint, handler); err != nil {
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
