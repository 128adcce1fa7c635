package middleware

import (
	"errors"
	"math/bits"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
)

// Middleware limits handlers. It is safe for concurrent use, has no goroutine,
// and may wrap any number of handlers; the zero Middleware is not usable, see
// [New].
type Middleware struct {
	limiter   *limiter.Limiter
	who       keying.Who
	route     keying.Route
	workloads *keying.Folding
	cfg       Config
	mounts    *atomic.Int64 // of this limiter, in all middlewares
	policies  policies
	watch     watch
}

// New returns a middleware that charges l for each request: who says whom, and
// route where. The error is a *[limiter.ConfigError] for a nil limiter, a nil
// route, a who that leaves open what happens to callers without a principal, or
// the field of cfg that is wrong.
func New(
	l *limiter.Limiter, who keying.Who, route keying.Route, cfg Config,
) (*Middleware, error) {
	switch {
	case l == nil || l.Name() == "":
		return nil, wrong("Limiter", nil, "want a limiter made by limiter.New")
	case route == nil:
		return nil, wrong("Route", nil,
			"want keying.Pattern, keying.Mux(mux) or chiroute.New(router).Route")

	}
	if err := who.Validate(); err != nil {
		return nil, err
	}
	if err := cfg.validate(l); err != nil {
		return nil, err
	}
	workloads, err := cfg.Workloads.FoldingFor(l)
	if err != nil {
		return nil, err
	}
	m := &Middleware{limiter: l, who: who, route: route, workloads: workloads,
		cfg: cfg.clone(), mounts: mountsOf(l)}
	if err := m.check(l.Budgets()); err != nil {
		return nil, err
	}
	m.checkOnReload()
	return m, nil
}

// Handler returns next behind the limiter.
func (m *Middleware) Handler(next http.Handler) http.Handler {
	m.mounts.Add(1)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.serve(w, r, next)
	})
}

// transport is the metric label of what is served here.
const transport = "http"

func (m *Middleware) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if m.blockH2C(r) {
		next = http.HandlerFunc(refusePreface)
	}
	route := m.find(r)
	if m.cfg.Skip != nil && m.cfg.Skip(r) {
		m.limiter.Answered(transport, route, limiter.AnswerSkipped)
		m.pass(w, r, route, next)
		return
	}
	m.watchPreflight(r)
	var caller limiter.Caller
	err := m.principal(r, &caller.Principal)
	if err != nil {
		m.refuse(w, r, route, limiter.Decision{}, err, false)
		return
	}
	caller.Route, caller.Workload = route, m.workloads.Request(r)
	marked, again := m.mark(r, &caller)
	if again {
		next.ServeHTTP(w, r)
		return
	}
	cost := m.cfg.cost(r)
	var t taken
	err = m.take(r, &caller, cost, &t)
	if err != nil && !storeFailed(err) || !t.decision.Allowed() {
		m.refuse(w, r, route, t.decision, err, t.hidden.has(t.decision.Budget))
		return
	}
	m.limiter.Answered(transport, route, passed(err))
	if t.told.Budget != "" {
		m.tell(w.Header(), &t.told)
	}
	if marked != r {
		defer copyBack(r, marked)
	}
	m.run(w, marked, route, next, t.held, cost)
}

// copyBack makes r, whose copy the handlers got, look to the handlers further out
// as if the inner ones had got r itself: it has the pattern and the path values of
// the mux, and the form whose files the server removes. r keeps its context. It is
// called by defer, since handlers panic.
func copyBack(r, inner *http.Request) { *r = *inner.WithContext(r.Context()) }

// taken is what became of the charge for a request.
type taken struct {
	decision limiter.Decision
	// told is what the caller of an allowed request is told: the state of the budget
	// nearest to its end, of those that it may be told of. Where there is none its
	// Budget is empty.
	told   limiter.Decision
	hidden hidden               // budgets whose state the caller must not see
	held   *limiter.Reservation // where the cost may be corrected
}

// take charges a request.
func (m *Middleware) take(r *http.Request, c *limiter.Caller, cost int64, t *taken) (err error) {
	silent := m.cfg.Headers == Off || isGRPC(r)
	tell := func(b *limiter.Budget, c *limiter.Charge) {
		if silent || c.Shadow {
			return
		}
		if !m.tellsState(b, c) {
			t.hidden.add(b.Name, c)
			return
		}
		if c.Result.Outcome != limiter.Allow {
			return
		}
		if t.told.Budget == "" {
			stateOf(b, c, &t.told)
			return
		}
		var own limiter.Decision
		if stateOf(b, c, &own); closer(&own, &t.told) {
			t.told = own
		}
	}
	switch {
	case m.cfg.settles():
		t.held, err = m.limiter.ReserveEach(r.Context(), *c, cost, tell)
		t.decision = t.held.Decision
	case silent:
		t.decision, err = m.limiter.Take(r.Context(), *c, cost)
	default:
		t.decision, err = m.limiter.TakeEach(r.Context(), *c, cost, tell)
	}
	return err
}

// stateOf writes the state of an account that has paid.
func stateOf(b *limiter.Budget, c *limiter.Charge, d *limiter.Decision) {
	d.Outcome, d.Budget, d.Limit = limiter.Allow, b.Name, c.Limit
	d.Remaining, d.ResetAfter = c.Result.Remaining, c.Result.ResetAfter
}

// closer reports whether less is left in a than in b, relative to what they
// hold; of equals, whether a stays so for longer, so that whoever waits for an
// empty one finds the others refilled, too.
func closer(a, b *limiter.Decision) bool {
	high, low := bits.Mul64(uint64(a.Remaining), uint64(b.Limit.Capacity()))
	otherHigh, otherLow := bits.Mul64(uint64(b.Remaining), uint64(a.Limit.Capacity()))
	if high != otherHigh {
		return high < otherHigh
	}
	return low < otherLow || low == otherLow && untilNext(a) > untilNext(b)
}

// tells reports whether the caller may be told of the budget: it is their own,
// or public. How much all others use is not for one caller to know.
func (m *Middleware) tells(b *limiter.Budget) bool {
	return b.Scope.Personal() || slices.Contains(m.cfg.Public, b.Name)
}

// named is tells for a name, which is nobody's where a reload has just taken it
// away.
func (m *Middleware) named(name string) bool {
	b, ok := m.limiter.Budget(name)
	return ok && m.tells(&b)
}

// storeFailed reports whether the decision is the failure policy's.
func storeFailed(err error) bool {
	_, failed := errors.AsType[*limiter.StoreError](err)
	return failed
}

// passed is the answer to a request that reaches its handler.
func passed(err error) limiter.Answer {
	if err != nil {
		return limiter.AnswerErrorOpen
	}
	return limiter.AnswerAllow
}
