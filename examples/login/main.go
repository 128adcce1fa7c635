// Command login counts failed logins, for each address and for each account that
// is tried. A login is reserved before its password is looked at, and a success
// gives its own back. Time is virtual.
package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
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

// passwords say who the users are, and devices where they have logged in before.
// A real service keeps hashes of both.
var (
	passwords = map[string]string{"alice": "correct horse", "mallory": "battery staple"}
	devices   = map[string]string{"cookie-of-alices-laptop": "alice"}
)

// onlyFailures gives a login back that has succeeded, and nothing else: not for
// an error, a timeout or a caller that hangs up, which a guesser can bring about.
func onlyFailures(status int, reserved int64) int64 {
	if status == http.StatusOK {
		return 0
	}
	return reserved
}

// logins is the service.
type logins struct {
	targets *limiter.Limiter
	limit   *middleware.Middleware // of addresses; it refuses logins for the targets, too
}

func newService(now func() time.Time) (http.Handler, error) {
	store, err := memstore.New(memstore.Config{Now: now})
	if err != nil {
		return nil, err
	}
	// Whoever guesses many passwords, of one account or of many.
	addresses, err := limiter.New(store, []limiter.Budget{{
		Name: "failures-by-address", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(20),
	}}, limiter.Config{Name: "address"})
	if err != nil {
		return nil, err
	}
	// Many who guess the passwords of one account.
	targets, err := limiter.New(store, []limiter.Budget{{
		Name: "failures-by-target", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(10),
	}}, limiter.Config{Name: "target"})
	if err != nil {
		return nil, err
	}
	mw, err := middleware.New(addresses, keying.ByAddress(keying.Addresses{}), keying.Pattern,
		middleware.Config{ByStatus: onlyFailures})
	if err != nil {
		return nil, err
	}
	return mw.Handler(&logins{targets, mw}), nil
}

// target returns whose budget a login draws on, existing or not, so that answers
// do not tell which names exist.
//
// A budget for each account lets anybody lock its owner out: ten wrong passwords
// an hour will do. So those who come from a device on which the owner has logged
// in before, by a cookie that cannot be guessed, draw on a budget of that device.
func target(r *http.Request, name string) limiter.Caller {
	if cookie, err := r.Cookie("device"); err == nil && devices[cookie.Value] == name {
		return limiter.Caller{Principal: limiter.Principal{Kind: "login-device", ID: cookie.Value}}
	}
	return limiter.Caller{Principal: limiter.Principal{Kind: "login-target", ID: name}}
}

// maxName is longer than any name of a user.
const maxName = 64

// ServeHTTP answers a login.
func (s *logins) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 4096)
	name := strings.ToLower(strings.TrimSpace(r.PostFormValue("name")))
	if name == "" || len(name) > maxName {
		http.Error(w, "no such login", http.StatusUnauthorized)
		return
	}
	attempt, err := s.targets.Reserve(r.Context(), target(r, name), 1)
	if !attempt.Decision.Allowed() {
		s.limit.Refuse(w, r, attempt.Decision, err) // as the middleware would
		return
	}
	if password, ok := passwords[name]; !ok || password != r.PostFormValue("password") {
		http.Error(w, "no such login", http.StatusUnauthorized)
		return
	}
	if err := attempt.Cancel(r.Context()); err != nil {
		log.Print("a login could not be given back: ", err)
	}
	fmt.Fprintln(w, "welcome", name)
}

// run logs in and prints what became of it.
func run(w io.Writer) error {
	now := time.Date(2026, time.January, 1, 9, 0, 0, 0, time.UTC)
	service, err := newService(func() time.Time { return now })
	if err != nil {
		return err
	}
	s := &session{w, service}
	fmt.Fprintln(w, "Successes are free, also 1000 of them; they give back no failure:")
	s.login(1000, "192.0.2.1", "alice", "correct horse", "")
	s.login(30, "198.51.100.1", "user-%d", "guess", "")
	s.login(1, "198.51.100.1", "mallory", "battery staple", "")

	fmt.Fprintln(w, "Many addresses guess one account, and lock strangers out of it:")
	s.login(100, "203.0.113.%d", "alice", "guess", "")
	s.login(1, "192.0.2.1", "alice", "correct horse", "")
	s.login(1, "192.0.2.1", "alice", "correct horse", "cookie-of-alices-laptop")

	fmt.Fprintln(w, "6 minutes later one more is let in:")
	now = now.Add(6 * time.Minute)
	s.login(1, "192.0.2.1", "alice", "correct horse", "")
	return nil
}

type session struct {
	w       io.Writer
	service http.Handler
}

// login logs in n times; %d in the address and the name is the number of the
// attempt. It prints how often each status was the answer.
func (s *session) login(n int, address, name, password, device string) {
	counts := map[int]int{}
	for i := range n {
		form := url.Values{"name": {numbered(name, i)}, "password": {password}}
		r := httptest.NewRequest("POST", "/login", strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.RemoteAddr = numbered(address, i) + ":50000"
		if device != "" {
			r.AddCookie(&http.Cookie{Name: "device", Value: device})
		}
		got := httptest.NewRecorder()
		s.service.ServeHTTP(got, r)
		counts[got.Code]++
	}
	fmt.Fprintf(s.w, "  %-12s as %-7s %-14s", strings.ReplaceAll(address, "%d", "x"),
		strings.ReplaceAll(name, "%d", "x"), password)
	for _, status := range []int{200, 401, 429} {
		fmt.Fprintf(s.w, "  %d: %d", status, counts[status])
	}
	fmt.Fprintln(s.w)
}

func numbered(text string, i int) string {
	return strings.ReplaceAll(text, "%d", fmt.Sprint(i))
}
