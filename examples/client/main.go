// Client sends requests to a server that limits it, first as most clients do,
// then through a [Transport] that reads what answers say of the limit:
//
//	go run ./examples/client
package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
	"github.com/ration-go/ration/middleware"
)

func main() {
	server := httptest.NewServer(limited())
	defer server.Close()
	if err := show(os.Stdout, server.URL); err != nil {
		log.Fatal(err)
	}
}

// limited is a service that lets each address ask three times at once, then once
// a second.
func limited() http.Handler {
	store := limiter.Must(memstore.New(memstore.Config{}))
	l := limiter.Must(limiter.New(store, []limiter.Budget{{
		Name:  "address",
		Scope: limiter.ByPrincipal,
		Limit: limiter.Limit{Tokens: 1, Per: time.Second, Burst: 3},
	}}, limiter.Config{}))
	limit := limiter.Must(middleware.New(l,
		keying.ByAddress(keying.Addresses{}), keying.Pattern, middleware.Config{}))
	return limit.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "ok")
	}))
}

// show asks five times as most clients do, and four times in obedience.
func show(out io.Writer, url string) error {
	fmt.Fprintln(out, "A client that does not read:")
	if err := ask(out, &http.Client{}, url, 5); err != nil {
		return err
	}
	fmt.Fprintln(out, "A client that does:")
	return ask(out, &http.Client{Transport: &Transport{}}, url, 4)
}

// ask sends n requests and prints the answers.
func ask(out io.Writer, client *http.Client, url string, n int) error {
	start := time.Now()
	for range n {
		resp, err := client.Get(url)
		if err != nil {
			return err
		}
		_ = resp.Body.Close()
		fmt.Fprintf(out, "  %.1f s: %s  RateLimit: %s\n", time.Since(start).Seconds(), resp.Status,
			resp.Header.Get("RateLimit"))
	}
	return nil
}
