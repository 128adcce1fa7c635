package main

import (
	"fmt"
	"io"

	"github.com/ration-go/ration/limiter"
)

const aboutExamHall = `Which requests share an account? The tenant ExamHall sends 2 summary reads, then 3
export reads; an account allows 2 reads a minute. "tenant" has one account for the
tenant: the summaries leave nothing for the exports. "tenant+route" has an account for
each route: only the third export is rejected.`

// examHall: one tenant sends two summary reads, then three export reads. Where
// its routes share an account, the summaries use up what the exports need; where
// each route has one, an export is refused only for exports.
func examHall(w io.Writer, open opener) error {
	scopes := []struct {
		name  string
		scope limiter.Scope
	}{
		{"tenant", limiter.ByPrincipal},
		{"tenant+route", limiter.ByPrincipal | limiter.ByRoute},
	}
	for _, s := range scopes {
		l, err := newLimiter(open, &clock{start}, limiter.Budget{
			Name: "reads", Scope: s.scope, Limit: limiter.PerMinute(2), OnError: limiter.Closed,
		})
		if err != nil {
			return err
		}
		caller := limiter.Caller{
			Principal: limiter.Principal{Kind: "tenant", ID: "ExamHall"},
			Route:     "GET /summary",
		}
		var t tally
		if err := t.take(l, caller, 2); err != nil {
			return err
		}
		caller.Route = "GET /export"
		if err := t.take(l, caller, 3); err != nil {
			return err
		}
		fmt.Fprintf(w, "ExamHall %s accepted=%d rejected=%d\n", s.name, t.accepted, t.rejected)
	}
	return nil
}
