package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/middleware"
)

const aboutCredits = `What does an HTTP client see? A server whose callers start with 2 credits gets 3 requests
from one address at one instant: two are served, and the third gets 429 with Retry-After,
which says how long to wait.`

// credits: a server on the loopback interface, whose callers have two credits to
// begin with, gets three requests at one instant.
func credits(w io.Writer, open opener) error {
	l, err := newLimiter(open, &clock{start}, limiter.Budget{
		Name: "credits", Scope: limiter.ByPrincipal, Limit: limiter.PerMinute(2),
		OnError: limiter.Closed,
	})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", func(http.ResponseWriter, *http.Request) {})
	mw, err := middleware.New(l, keying.ByAddress(keying.Addresses{}), keying.Mux(mux),
		middleware.Config{})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: mw.Handler(mux)}
	defer server.Close()
	go server.Serve(listener) // until Close, and Close is why it returns

	var statuses []string
	present := false
	for range 3 {
		resp, err := http.Get("http://" + listener.Addr().String())
		if err != nil {
			return err
		}
		resp.Body.Close()
		statuses = append(statuses, strconv.Itoa(resp.StatusCode))
		present = resp.Header.Get("Retry-After") != ""
	}
	fmt.Fprintf(w, "HTTP statuses=%s Retry-After-present=%t\n",
		strings.Join(statuses, ","), present)
	return nil
}
