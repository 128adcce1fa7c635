// Command tokens limits a service whose answers cost what they turn out to be
// long, as those of a language model: 100 requests and 100,000 tokens a minute.
// Time is virtual.
package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"time"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
	"github.com/ration-go/ration/middleware"
)

func main() {
	if err := run(os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// maxTokens is the longest answer that anybody can ask for, and what a request
// reserves that does not say how much it wants.
const maxTokens = 8_000

// atMost returns how long the answer may be. It is both what is reserved and what
// the handler holds to, so that nobody gains by a number of their own.
func atMost(r *http.Request) int64 {
	n, err := strconv.ParseInt(r.URL.Query().Get("max_tokens"), 10, 64)
	if err != nil || n < 1 || n > maxTokens {
		return maxTokens
	}
	return n
}

// answer writes as many tokens as the answer has, and says so. Whatever ends it
// before that, such as a caller that leaves, keeps all that was reserved.
func answer(w http.ResponseWriter, r *http.Request) {
	length, _ := strconv.ParseInt(r.URL.Query().Get("length"), 10, 64)
	used := min(length, atMost(r))
	if err := middleware.Settle(r.Context(), used); err != nil {
		log.Print("what an answer cost could not be booked: ", err)
	}
	fmt.Fprintf(w, "an answer of %d tokens", used)
}

// newService returns the service. Budgets PerRequest count requests, whatever
// they cost in tokens.
func newService(now func() time.Time) (http.Handler, error) {
	store, err := memstore.New(memstore.Config{Now: now})
	if err != nil {
		return nil, err
	}
	l, err := limiter.New(store, []limiter.Budget{
		{Name: "requests", Scope: limiter.ByPrincipal, Limit: limiter.PerMinute(100), PerRequest: true},
		{Name: "tokens", Scope: limiter.ByPrincipal, Limit: limiter.PerMinute(100_000)},
	}, limiter.Config{})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /answers", answer)
	mw, err := middleware.New(l, keying.Authenticated(keying.Refuse(`Bearer realm="tokens"`)),
		keying.Mux(mux), middleware.Config{Cost: atMost, Settles: true})
	if err != nil {
		return nil, err
	}
	return authenticate(mw.Handler(mux)), nil
}

// authenticate believes the header User, as only an example may.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(keying.WithPrincipal(r.Context(),
			limiter.Principal{Kind: "user", ID: r.Header.Get("User")})))
	})
}

// run sends requests and prints what became of them.
func run(w io.Writer) error {
	now := time.Date(2026, time.January, 1, 9, 0, 0, 0, time.UTC)
	service, err := newService(func() time.Time { return now })
	if err != nil {
		return err
	}
	s := &session{w, service}
	fmt.Fprintln(w, "Short answers: 8000 tokens are reserved for each, and 150 charged.")
	s.send("ann", 100, "length=150")
	s.send("ann", 1, "length=150")
	fmt.Fprintln(w, "Long answers: who asks for less is let in with what is left.")
	s.send("ben", 20, "length=8000")
	s.send("ben", 1, "length=150&max_tokens=4000")
	fmt.Fprintln(w, "3 s later:")
	now = now.Add(3 * time.Second)
	s.send("ben", 1, "length=8000")
	return nil
}

type session struct {
	w       io.Writer
	service http.Handler
}

// send sends n requests, and prints how many passed.
func (s *session) send(user string, n int, query string) {
	passed, wait := 0, ""
	for range n {
		r := httptest.NewRequest("POST", "/answers?"+query, nil)
		r.Header.Set("User", user)
		got := httptest.NewRecorder()
		s.service.ServeHTTP(got, r)
		if got.Code == http.StatusOK {
			passed++
		} else if wait == "" {
			wait = fmt.Sprintf(", then %d: retry after %s s", got.Code, got.Header().Get("Retry-After"))
		}
	}
	fmt.Fprintf(s.w, "  %s %3d of %3d  %s%s\n", user, passed, n, query, wait)
}
