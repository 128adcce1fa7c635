package service

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/ration-go/ration/limiter"
)

// operators answers those who run the service. It names users and changes what they may
// do, so it must not be public: Serve gives it an address of its own.
type operators struct {
	byUser *limiter.Limiter
	gate   *gate
}

// routes adds the routes to mux.
func (o *operators) routes(mux *http.ServeMux) {
	mux.HandleFunc("GET /explain", o.explain)
	mux.HandleFunc("POST /gate", o.setGate)
	mux.HandleFunc("POST /reset", o.reset)
	mux.HandleFunc("POST /trial", o.trial)
}

// byIP refuses requests for a host name other than localhost: a page in an operator's
// browser can let its own name lead here (DNS rebinding), and is then of the same origin.
func byIP(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := (&url.URL{Host: r.Host}).Hostname()
		if _, err := netip.ParseAddr(host); err != nil && host != "localhost" {
			http.Error(w, "want an IP address or localhost as the host", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// callerOf returns the user and the route that a request of an operator names.
func callerOf(r *http.Request) limiter.Caller {
	return limiter.Caller{
		Principal: limiter.Principal{Kind: "user", ID: r.FormValue("user")},
		Route:     r.FormValue("route"),
	}
}

// explanation is what explain answers.
type explanation struct {
	Outcome    string   `json:"outcome"`
	Budget     string   `json:"budget,omitempty"` // that decided
	RetryAfter string   `json:"retry_after,omitempty"`
	Budgets    []budget `json:"budgets"`
	Error      string   `json:"error,omitempty"`
}

// budget is one of the budgets that apply.
type budget struct {
	Budget     string        `json:"budget"`
	Limit      limiter.Limit `json:"limit"`
	Shadow     bool          `json:"shadow,omitempty"`
	Outcome    string        `json:"outcome"`
	Remaining  int64         `json:"remaining"`
	ResetAfter string        `json:"reset_after"`
}

// explain says what would become of a request now. It charges nothing.
func (o *operators) explain(w http.ResponseWriter, r *http.Request) {
	cost := int64(1)
	if text := r.FormValue("cost"); text != "" {
		var err error
		if cost, err = strconv.ParseInt(text, 10, 64); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	e, err := o.byUser.Explain(r.Context(), callerOf(r), cost)
	answer := explanation{Outcome: e.Decision.Outcome.String(), Budget: e.Decision.Budget,
		Budgets: []budget{}}
	if err != nil {
		answer.Error = err.Error()
	}
	if e.Decision.RetryAfter > 0 {
		answer.RetryAfter = e.Decision.RetryAfter.String()
	}
	for _, c := range e.Charges {
		answer.Budgets = append(answer.Budgets, budget{c.Key.Budget, c.Limit, c.Shadow,
			c.Result.Outcome.String(), c.Result.Remaining, c.Result.ResetAfter.String()})
	}
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(answer) // the client may have gone
}

// setGate blocks or exempts a user for a time, or lets the budgets decide again.
func (o *operators) setGate(w http.ResponseWriter, r *http.Request) {
	lasts, err := time.ParseDuration(r.FormValue("for"))
	answer := r.FormValue("answer")
	switch user := r.FormValue("user"); {
	case user == "" || !slices.Contains([]string{"block", "exempt", "none"}, answer):
		http.Error(w, "want user, and answer=block, exempt or none", http.StatusBadRequest)
	case answer == "none":
		o.gate.remove(user)
		fmt.Fprintf(w, "%s: the budgets decide\n", user)
	case err != nil || lasts <= 0:
		http.Error(w, "want for, such as for=10m", http.StatusBadRequest)
	default:
		o.gate.set(user, answer == "block", lasts)
		fmt.Fprintf(w, "%s: %s for %s\n", user, answer, lasts)
	}
}

// reset makes the accounts of a user on a route full again.
func (o *operators) reset(w http.ResponseWriter, r *http.Request) {
	c := callerOf(r)
	if !slices.ContainsFunc(userBudgets, func(b limiter.Budget) bool {
		return slices.Contains(b.Routes, c.Route)
	}) {
		http.Error(w, "no budget is on that route", http.StatusBadRequest)
		return
	}
	if err := o.byUser.Reset(r.Context(), c); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	fmt.Fprintln(w, "full again")
}

// trial tries a limit for each user in shadow: it is counted and never enforced. Without
// a limit the trial ends.
func (o *operators) trial(w http.ResponseWriter, r *http.Request) {
	budgets := userBudgets
	if text := r.FormValue("limit"); text != "" {
		trial := limiter.Budget{Name: "trial", Scope: limiter.ByPrincipal, Shadow: true,
			OnError: limiter.Open}
		if err := trial.Limit.UnmarshalText([]byte(text)); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		budgets = append(slices.Clone(budgets), trial)
	}
	if err := o.byUser.Reload(budgets); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	fmt.Fprintf(w, "%d budgets\n", len(budgets))
}
