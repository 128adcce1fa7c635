package middleware

import (
	"net/http"

	"github.com/ration-go/ration/internal/rpcstatus"
	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
)

// Middleware limits handlers. It is safe for concurrent use, starts no goroutine,
// and may wrap any number of handlers. The zero Middleware is not usable; see [New].
type Middleware struct {
	limiter   *limiter.Limiter
	adapter   *limiter.Adapter
	who       keying.Who
	route     keying.Route
	workloads *keying.Folding
	cfg       Config
	header    string      // from which addresses are read; "" if from none
	shared    func() bool // a request may meet the limiter more than once
	texts     texts
	details   rpcstatus.Cache
	watch     watch
}

// New returns a middleware that charges the budgets of l for each request. who
// identifies the caller, and route finds the pattern. The error is a
// *[limiter.ConfigError] for a nil limiter, a nil route, a who that does not say what
// happens to callers without a principal, a field of cfg that is wrong, or a budget
// that this middleware cannot serve.
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
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	workloads, err := cfg.Workloads.Folding()
	if err != nil {
		return nil, err
	}
	m := &Middleware{limiter: l, adapter: l.Adapter(), who: who, route: route,
		workloads: workloads, cfg: cfg, header: who.Header()}
	m.details.Domain = cfg.Domain
	m.shared, err = m.adapter.Setup(transport, cfg.settles(), m.check())
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Handler returns a handler that runs next for each request that is allowed.
func (m *Middleware) Handler(next http.Handler) http.Handler {
	if m.watch.mounted.Swap(true) { // New has set up the first mount
		_, _ = m.adapter.Setup(transport, false, nil) // without a check it cannot fail
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.serve(w, r, next)
	})
}

// serve handles one request: it finds the route and the caller, charges, and
// refuses the request or runs its handler.
func (m *Middleware) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	var req limiter.Request
	m.describe(r, &req)
	h2c := asksForH2C(r)
	m.watchRequest(r, &req, h2c)
	if h2c {
		next = blockH2C(r, next)
	}
	ctx, err := m.adapter.Take(r.Context(), &req)
	if !req.Decision.Allowed() {
		m.refuse(w, r, &req, err)
		return
	}
	if req.State.Budget != "" {
		m.writeState(w.Header(), &req.State, req.Next)
	}
	if ctx != r.Context() {
		inner := r.WithContext(ctx)
		defer copyBack(r, inner)
		r = inner
	}
	m.run(w, r, next, &req)
}

// copyBack copies what the inner handlers did to their copy of the request back to
// r: the pattern and the path values of the mux, which outer handlers read, and the
// form, whose files the server removes. r keeps its context. It is deferred, since
// handlers may panic.
func copyBack(r, inner *http.Request) { *r = *inner.WithContext(r.Context()) }
