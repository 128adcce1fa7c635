// Command plans limits users by what their team has paid for, below a budget of
// the whole team, and lets a team change its plan. Time is virtual.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"sync"
	"time"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
)

func main() {
	if err := run(os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// plan is what a team may use.
type plan struct {
	name       string
	user, team limiter.Limit
}

var (
	free = plan{"free", limiter.PerMinute(3), limiter.PerMinute(5)}
	paid = plan{"paid", limiter.PerMinute(10), limiter.PerMinute(20)}
	// Teams of the company's own are not limited at all.
	internal = plan{"internal", limiter.Unlimited, limiter.Unlimited}
)

// teams knows the plan of each team. It answers on every request, from memory:
// a database is asked when a plan changes, not when it is used.
type teams struct {
	mu    sync.RWMutex
	plans map[string]plan
}

func (t *teams) of(team string) plan {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if p, ok := t.plans[team]; ok {
		return p
	}
	return free
}

func (t *teams) change(team string, p plan) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.plans[team] = p
}

// newLimiter returns a limiter with two budgets. A request draws on both or on
// neither: whoever is refused as a user costs the team nothing.
func newLimiter(t *teams, now func() time.Time) (*limiter.Limiter, error) {
	store, err := memstore.New(memstore.Config{Now: now})
	if err != nil {
		return nil, err
	}
	return limiter.New(store, []limiter.Budget{
		{
			Name:  "user",
			Scope: limiter.ByPrincipal,
			Limit: free.user,
			LimitFor: func(_ context.Context, c limiter.Caller) limiter.Limit {
				return t.of(c.Principal.Tenant).user
			},
		},
		{
			Name:  "team",
			Scope: limiter.ByTenant,
			Limit: free.team,
			LimitFor: func(_ context.Context, c limiter.Caller) limiter.Limit {
				return t.of(c.Principal.Tenant).team
			},
		},
	}, limiter.Config{})
}

// run sends requests and prints what became of them.
func run(w io.Writer) error {
	now := time.Date(2026, time.January, 1, 9, 0, 0, 0, time.UTC)
	t := &teams{plans: map[string]plan{"acme": paid, "ops": internal}}
	l, err := newLimiter(t, func() time.Time { return now })
	if err != nil {
		return err
	}
	s := &session{w: w, l: l, teams: t}
	s.send("hobby", "ann", 4) // as much as a user gets
	s.send("hobby", "ben", 4) // as much as is left to the team
	s.send("acme", "cleo", 12)
	s.send("acme", "dora", 12)
	s.send("acme", "emil", 1)
	s.send("ops", "finn", 1000)

	fmt.Fprintln(w, "hobby pays: what was used stays used, and comes back faster")
	t.change("hobby", paid)
	s.send("hobby", "ann", 1)
	now = now.Add(6 * time.Second)
	s.send("hobby", "ann", 2)
	return s.err
}

// session sends requests and prints what became of them, until an error.
type session struct {
	w     io.Writer
	l     *limiter.Limiter
	teams *teams
	err   error
}

// send lets a user send n requests. The first that is refused says by which
// budget, and when it could pass.
func (s *session) send(team, user string, n int) {
	if s.err != nil {
		return
	}
	allowed := 0
	var refusal limiter.Decision
	for range n {
		d, err := s.l.Take(context.Background(), limiter.Caller{
			Principal: limiter.Principal{Kind: "user", Tenant: team, ID: user},
		}, 1)
		switch {
		case err != nil:
			s.err = err
			return
		case d.Allowed():
			allowed++
		case refusal.Budget == "":
			refusal = d
		}
	}
	plan := "(" + s.teams.of(team).name + ")"
	fmt.Fprintf(s.w, "%-5s %-10s %-4s %4d of %d", team, plan, user, allowed, n)
	if refusal.Budget != "" {
		fmt.Fprintf(s.w, ", then refused by the %s's budget for %v",
			refusal.Budget, refusal.RetryAfter)
	}
	fmt.Fprintln(s.w)
}
