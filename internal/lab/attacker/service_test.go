package attacker_test

import (
	"bytes"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/kind"
	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/keying/chiroute"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
	"github.com/ration-go/ration/middleware"
)

const (
	total    = 30 // requests of a caller, where all its routes count together
	perRoute = 5  // or on each route
	ample    = 1_000_000
	slots    = 4
)

var (
	alice    = limiter.Principal{Kind: "user", Tenant: "acme", ID: "alice"}
	bob      = limiter.Principal{Kind: "user", Tenant: "acme", ID: "bob"}
	loopback = limiter.Principal{Kind: kind.Address, Tenant: "127.0.0.0/24", ID: "127.0.0.1"}
)

// authenticate knows alice by her token. What else callers say of themselves is
// not looked at.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer alices-token" {
			r = r.WithContext(keying.WithPrincipal(r.Context(), alice))
		}
		next.ServeHTTP(w, r)
	})
}

// rewrite serves /v1/... as /..., and believes a method override: as many do.
func rewrite(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if rest, ok := strings.CutPrefix(r.URL.Path, "/v1/"); ok {
			r.URL = &url.URL{Path: "/" + rest, RawQuery: r.URL.RawQuery}
		}
		if method := r.Header.Get("X-Http-Method-Override"); method != "" && r.Method == "POST" {
			r.Method = method
		}
		next.ServeHTTP(w, r)
	})
}

// service is a limited service on real sockets.
type service struct {
	limiter *limiter.Limiter
	store   *memstore.Store
	plain   string // address for HTTP/1.1 and HTTP/2 without TLS
	tls     string // address for HTTP/1.1 and HTTP/2 with TLS
	roots   *http.Transport
	log     *bytes.Buffer

	mu      sync.Mutex
	reached map[string]int // requests that reached a handler, by its route
}

// handle returns the handler of a route: it counts.
func (s *service) handle(route string) http.Handler {
	return http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.reached[route]++
	})
}

// layout is a service's routes, and where the limiter is among them.
type layout struct {
	name     string
	routes   int  // that the router has
	by       bool // whether the limiter sees the route that is served
	assemble func(s *service, limit func(keying.Route) func(http.Handler) http.Handler) http.Handler
}

var layouts = []layout{
	{"mux", len(muxPatterns), true,
		func(s *service, limit func(keying.Route) func(http.Handler) http.Handler) http.Handler {
			mux := s.mux()
			return rewrite(authenticate(limit(keying.Mux(mux))(mux)))
		}},
	{"mux-with-the-limiter-around-handlers", len(muxPatterns), true,
		func(s *service, limit func(keying.Route) func(http.Handler) http.Handler) http.Handler {
			mux := http.NewServeMux()
			around := limit(keying.Pattern)
			for _, pattern := range muxPatterns {
				mux.Handle(pattern, authenticate(around(s.handle(pattern))))
			}
			return rewrite(mux)
		}},
	{"mux-with-a-rewriter-inside", len(muxPatterns), false,
		func(s *service, limit func(keying.Route) func(http.Handler) http.Handler) http.Handler {
			mux := s.mux()
			return authenticate(limit(keying.Mux(mux))(rewrite(mux)))
		}},
	{"chi", 6, true,
		func(s *service, limit func(keying.Route) func(http.Handler) http.Handler) http.Handler {
			router := chi.NewRouter()
			router.Use(rewrite, chimiddleware.StripSlashes, chimiddleware.GetHead, authenticate,
				limit(chiroute.New(router).Route))
			s.chi(router)
			return router
		}},
	{"chi-with-the-limiter-on-routes", 6, true,
		func(s *service, limit func(keying.Route) func(http.Handler) http.Handler) http.Handler {
			router := chi.NewRouter()
			router.Use(rewrite, chimiddleware.StripSlashes, chimiddleware.GetHead)
			s.chi(router.With(authenticate, limit(chiroute.New(router).Route)))
			return router
		}},
	{"chi-with-cleaners-inside", 6, true,
		func(s *service, limit func(keying.Route) func(http.Handler) http.Handler) http.Handler {
			router := chi.NewRouter()
			router.Use(rewrite, authenticate, limit(chiroute.New(router).Route),
				chimiddleware.CleanPath, chimiddleware.StripSlashes, chimiddleware.GetHead)
			s.chi(router)
			return router
		}},
}

// muxPatterns are routes with and without a method, one for each of two hosts,
// and one that paths are redirected to.
var muxPatterns = []string{"/orders/{id}", "GET /items/{id}", "POST /items/{id}", "/tree/",
	"api.example.com/orders/{id}", "admin.example.com/orders/{id}"}

func (s *service) mux() *http.ServeMux {
	mux := http.NewServeMux()
	for _, pattern := range muxPatterns {
		mux.Handle(pattern, s.handle(pattern))
	}
	return mux
}

func (s *service) chi(r chi.Router) {
	r.Handle("/orders/{id}", s.handle("/orders/{id}"))
	r.Method("GET", "/items/{id}", s.handle("GET /items/{id}"))
	r.Method("POST", "/items/{id}", s.handle("POST /items/{id}"))
	r.Handle("/tree/*", s.handle("/tree/*"))
	r.Route("/hosts", func(r chi.Router) {
		r.Handle("/api/{id}", s.handle("/hosts/api/{id}"))
		r.Method("GET", "/admin/{id:[0-9]+}", s.handle("GET /hosts/admin/{id:[0-9]+}"))
	})
}

// start returns the service with a budget for all of a caller's requests and one
// for those on each route, at an instant that does not move.
func start(t *testing.T, l layout, all, route int64) *service {
	t.Helper()
	s := &service{reached: map[string]int{}, log: &bytes.Buffer{}}
	s.store = limiter.Must(memstore.New(memstore.Config{
		Now: func() time.Time { return time.Unix(1_800_000_000, 0) },
	}))
	s.limiter = limiter.Must(limiter.New(s.store, []limiter.Budget{
		{Name: "all", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(all)},
		{Name: "route", Scope: limiter.ByPrincipal | limiter.ByRoute, Limit: limiter.PerHour(route)},
		{Name: "workload", Scope: limiter.ByPrincipal | limiter.ByWorkload,
			Limit: limiter.PerHour(ample)},
	}, limiter.Config{Logger: slog.New(slog.NewTextHandler(s.log, nil))}))
	h := l.assemble(s, func(route keying.Route) func(http.Handler) http.Handler {
		return limiter.Must(middleware.New(s.limiter,
			keying.Authenticated(keying.OrAddress(keying.Addresses{})), route,
			middleware.Config{Workloads: keying.Workloads{Header: "X-Workload", Slots: slots}})).Handler
	})

	encrypted := httptest.NewUnstartedServer(h)
	encrypted.EnableHTTP2 = true
	encrypted.StartTLS()
	t.Cleanup(encrypted.Close)
	s.tls = encrypted.Listener.Addr().String()
	s.roots = encrypted.Client().Transport.(*http.Transport)

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s.plain = listener.Addr().String()
	plain := &http.Server{Handler: h, Protocols: new(http.Protocols)}
	plain.Protocols.SetHTTP1(true)
	plain.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = plain.Serve(listener) }()
	t.Cleanup(func() { _ = plain.Close() })
	return s
}
