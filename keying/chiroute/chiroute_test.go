package chiroute_test

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/keying/chiroute"
)

// Cases where chi rewrites what it routes by, or where it does not list what it
// serves. build mounts the probe; the path's handler must be reached.
func TestRouter_FollowsWhatChiServes(t *testing.T) {
	tests := []struct {
		name         string
		build        func(r chi.Router, probe wrap)
		method, path string
		want         string
		status       int
	}{
		{"get-head-outside", func(r chi.Router, probe wrap) {
			r.Use(chimiddleware.GetHead, probe)
			orders(r)
		}, "HEAD", "/orders/7", "GET /orders/{id}", 200},
		{"get-head-inside", func(r chi.Router, probe wrap) {
			r.Use(probe, chimiddleware.GetHead)
			orders(r)
		}, "HEAD", "/orders/7", "GET /orders/{id}", 200},
		{"get-head-above-with", func(r chi.Router, probe wrap) {
			r.Use(chimiddleware.GetHead)
			orders(r.With(probe))
		}, "HEAD", "/orders/7", "GET /orders/{id}", 200},
		{"get-head-above-route", func(r chi.Router, probe wrap) {
			r.Use(chimiddleware.GetHead)
			r.Route("/api", func(r chi.Router) {
				r.Use(probe)
				orders(r)
			})
		}, "HEAD", "/api/orders/7", "GET /api/orders/{id}", 200},
		{"strip-slashes-outside", func(r chi.Router, probe wrap) {
			r.Use(chimiddleware.StripSlashes, probe)
			orders(r)
		}, "GET", "/orders/7/", "GET /orders/{id}", 200},
		{"strip-slashes-inside", func(r chi.Router, probe wrap) {
			r.Use(probe, chimiddleware.StripSlashes)
			orders(r)
		}, "GET", "/orders/7/", "GET /orders/{id}", 200},
		{"strip-slashes-above-route", func(r chi.Router, probe wrap) {
			r.Use(chimiddleware.StripSlashes)
			r.Route("/api", func(r chi.Router) {
				r.Use(probe)
				orders(r)
			})
		}, "GET", "/api/orders/7/", "GET /api/orders/{id}", 200},
		{"redirect-slashes-inside", func(r chi.Router, probe wrap) {
			r.Use(probe, chimiddleware.RedirectSlashes)
			orders(r)
		}, "GET", "/orders/7/", "GET /orders/{id}", 301},
		{"clean-path-inside", func(r chi.Router, probe wrap) {
			r.Use(probe, chimiddleware.CleanPath)
			orders(r)
		}, "GET", "/x/..//orders/7", "GET /orders/{id}", 200},
		{"url-format-outside", func(r chi.Router, probe wrap) {
			r.Use(chimiddleware.URLFormat, probe)
			orders(r)
		}, "GET", "/both.json", "GET /both", 200},
		{"bare-mount-has-a-wildcard", func(r chi.Router, probe wrap) {
			r.Use(probe)
			r.Route("/api", func(r chi.Router) { r.Get("/*", ok) })
		}, "GET", "/api", "GET /api/*", 200},
		{"bare-mount-with-a-slash-has-a-wildcard", func(r chi.Router, probe wrap) {
			r.Route("/api", func(r chi.Router) {
				r.Use(probe)
				r.Get("/*", ok)
			})
		}, "GET", "/api/", "GET /api/*", 200},
		{"bare-mount-without-a-route", func(r chi.Router, probe wrap) {
			r.Use(probe)
			r.Route("/api", func(r chi.Router) { r.Get("/x", ok) })
		}, "GET", "/api", keying.Unmatched, 404},
		{"bare-mount-with-a-route-of-its-own", func(r chi.Router, probe wrap) {
			r.Use(probe)
			r.Route("/api", func(r chi.Router) { r.Get("/", ok) })
			r.Post("/api", ok)
		}, "POST", "/api", "POST /api", 200},
		{"bare-mount-of-a-mount", func(r chi.Router, probe wrap) {
			r.Use(probe)
			r.Route("/a", func(r chi.Router) {
				r.Route("/b", func(r chi.Router) { r.Get("/", ok) })
			})
		}, "GET", "/a/b", "GET /a/b", 200},
		{"plain-handler-mounted", func(r chi.Router, probe wrap) {
			r.Use(probe)
			r.Mount("/std", http.HandlerFunc(ok))
		}, "PATCH", "/std/a/b", "/std/*", 200},
		{"plain-handler-mounted-bare", func(r chi.Router, probe wrap) {
			r.Use(probe)
			r.Mount("/std", http.HandlerFunc(ok))
		}, "GET", "/std/", "/std/*", 200},
		{"plain-handler-mounted-beside-a-route", func(r chi.Router, probe wrap) {
			r.Use(probe)
			r.Mount("/std", http.NotFoundHandler())
			r.Get("/std", ok)
		}, "GET", "/std", "GET /std", 200},
		{"router-mounted-below-a-wildcard-route", func(r chi.Router, probe wrap) {
			r.Route("/api", func(r chi.Router) { r.With(probe).Post("/x", ok) })
			r.Get("/api/*", ok)
		}, "POST", "/api/x", "POST /api/x", 200},
		{"router-inside-a-plain-handler", func(r chi.Router, probe wrap) {
			sub := chi.NewRouter()
			orders(sub.With(probe))
			r.Mount("/std", http.HandlerFunc(sub.ServeHTTP))
		}, "GET", "/std/orders/7", "/std/*", 200},
		{"one-method-beside-all", func(r chi.Router, probe wrap) {
			r.Handle("/x", http.NotFoundHandler())
			r.With(probe).Get("/x", ok)
		}, "GET", "/x", "GET /x", 200},
		{"one-function-beside-another-for-all", func(r chi.Router, probe wrap) {
			r.Use(probe)
			r.HandleFunc("/x", http.NotFound)
			r.Get("/x", ok)
		}, "GET", "/x", "GET /x", 200},
		{"all-beside-one-method", func(r chi.Router, probe wrap) {
			r.Use(probe)
			r.Handle("/x", http.HandlerFunc(ok))
			r.With(chimiddleware.NoCache).Get("/x", ok)
		}, "PUT", "/x", "/x", 200},
		{"method-in-the-pattern-of-handle", func(r chi.Router, probe wrap) {
			r.Use(probe)
			r.Handle("PUT /x", http.HandlerFunc(ok))
		}, "PUT", "/x", "PUT /x", 200},
		{"not-found-handler-of-a-group", func(r chi.Router, probe wrap) {
			r.With(probe).NotFound(ok)
			r.Get("/x", ok)
		}, "GET", "/y", keying.Unmatched, 200},
		{"router-without-routes", func(r chi.Router, probe wrap) {
			r.Use(probe)
			r.With().NotFound(ok)
		}, "GET", "/y", keying.Unmatched, 200},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			router := chi.NewRouter()
			routes := chiroute.New(router)
			var found []string
			tt.build(router, probe(routes, &found))
			w := serve(router, tt.method, tt.path)
			assert.Equal(t, []string{tt.want}, found)
			assert.Equal(t, tt.status, w.Code)
		})
	}
}

func TestRouter_TakesRoutesRegisteredAfterTheLimiterWasMounted(t *testing.T) {
	router := chi.NewRouter()
	routes := chiroute.New(router)
	var found []string
	router.Use(probe(routes, &found))
	assert.Empty(t, routes.Routes())
	router.Get("/late/{id}", ok)
	assert.Equal(t, []string{"GET /late/{id}"}, routes.Routes())
	serve(router, "GET", "/late/7")
	assert.Equal(t, []string{"GET /late/{id}"}, found)
}

func TestRouter_ListsEveryRouteThatItFinds(t *testing.T) {
	router := chi.NewRouter()
	orders(router)
	router.Route("/api", func(r chi.Router) {
		r.Get("/", ok)
		r.Mount("/std", http.HandlerFunc(ok))
	})
	assert.Equal(t, []string{
		"/any/{id}", "/api/std/*", "GET /", "GET /api", "GET /both", "GET /files/*", "GET /head",
		"GET /orders/{id}", "GET /re/{id:[0-9]+}", "GET /slash", "POST /orders",
	}, chiroute.New(router).Routes())
}

func TestRouter_KnowsWhichRoutesAreRegistered(t *testing.T) {
	router := chi.NewRouter()
	routes := chiroute.New(router)
	router.Route("/api", orders)
	for route, want := range map[string]bool{
		"GET /api/orders/{id}": true, "/api/any/{id}": true, "GET /api/slash": true,
		"GET /api/slash/": false, "GET /orders/{id}": false, "/api/orders": false, "": false,
	} {
		registered, known, _ := keying.Route(routes.Route).Registered(route)
		assert.True(t, known)
		assert.Equal(t, want, registered, route)
	}
}

func TestRouter_NamesTheRouteThatWasMeant(t *testing.T) {
	router := chi.NewRouter()
	routes := chiroute.New(router)
	router.Route("/v1/orgs/{org}", func(r chi.Router) { r.Get("/", ok) })
	router.HandleFunc("/upload", ok)
	router.Get("/a", ok)
	router.Post("/a", ok)
	for route, want := range map[string][]string{
		"GET /v1/orgs/{org}/": {"GET /v1/orgs/{org}"}, "POST /upload": {"/upload"},
		"/a": {"GET /a", "POST /a"}, "POST /uplod": {"/upload"}, "GET /nothing-like-it": nil,
	} {
		registered, known, nearest := keying.Route(routes.Route).Registered(route)
		assert.True(t, known)
		assert.False(t, registered)
		assert.Equal(t, want, nearest, route)
	}
}

// Whatever is sent, the answers come from the list of routes.
func TestRouter_AnswersNothingButRoutes(t *testing.T) {
	router := chi.NewRouter()
	orders(router)
	router.Route("/api/{v}", orders)
	routes := chiroute.New(router)
	known := map[string]bool{keying.Unmatched: true}
	for _, route := range routes.Routes() {
		known[route] = true
	}
	parts := []string{"", "/", "//", "/api", "/api/1", "/orders", "/7", "/..", "/.", "/*", "/{id}",
		"/a%2Fb", "/files", "/\xff", "/any"}
	for _, a := range parts {
		for _, b := range parts {
			for _, c := range parts {
				for _, method := range []string{"GET", "HEAD", "POST", "OPTIONS", "CONNECT", "Get", "X"} {
					r := httptest.NewRequest(http.MethodGet, "/", nil)
					r.Method, r.URL.Path = method, a+b+c
					require.True(t, known[find(routes, r)], "%s %s: %s", method, a+b+c, find(routes, r))
				}
			}
		}
	}
}

func TestRouter_DoesNotTouchTheRequestsOwnContext(t *testing.T) {
	router := chi.NewRouter()
	routes := chiroute.New(router)
	var found []string
	router.Route("/t/{tenant}", func(r chi.Router) {
		r.Use(probe(routes, &found), probe(routes, &found))
		r.Get("/orders/{id}", func(w http.ResponseWriter, r *http.Request) {
			assert.Equal(t, "acme", chi.URLParam(r, "tenant"))
			assert.Equal(t, "7", r.PathValue("id"))
			assert.Equal(t, "/t/{tenant}/orders/{id}", r.Pattern)
			w.WriteHeader(http.StatusTeapot)
		})
	})
	w := serve(router, "GET", "/t/acme/orders/7")
	assert.Equal(t, http.StatusTeapot, w.Code)
	assert.Equal(t, []string{"GET /t/{tenant}/orders/{id}", "GET /t/{tenant}/orders/{id}"}, found)
}

func TestRouter_AllocatesNothingWhereThePatternIsKnown(t *testing.T) {
	measure := func(place func(r chi.Router, probe wrap)) float64 {
		router := chi.NewRouter()
		routes := chiroute.New(router)
		var allocs float64
		place(router, func(http.Handler) http.Handler {
			return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				allocs = testing.AllocsPerRun(100, func() { routes.Route(r) })
			})
		})
		serve(router, "GET", "/api/v2/orders/7")
		return allocs
	}
	known := measure(func(r chi.Router, probe wrap) {
		r.Route("/api/v2", func(r chi.Router) { orders(r.With(probe)) })
	})
	assert.Zero(t, known)
	ahead := measure(func(r chi.Router, probe wrap) {
		r.Route("/api/v2", func(r chi.Router) {
			r.Use(probe)
			orders(r)
		})
	})
	assert.LessOrEqual(t, ahead, 1.0)
}

func TestNew_PanicsWithoutARouter(t *testing.T) {
	assert.PanicsWithValue(t, "chiroute: New: router is nil", func() { chiroute.New(nil) })
	assert.PanicsWithValue(t, "chiroute: New: router is a nil *chi.Mux",
		func() { chiroute.New((*chi.Mux)(nil)) })
}

func TestRouter_IsSafeForConcurrentUseFromTheFirstRequest(t *testing.T) {
	router := chi.NewRouter()
	routes := chiroute.New(router)
	router.Route("/api", orders)
	var callers sync.WaitGroup
	for range 16 {
		callers.Go(func() {
			for range 50 {
				r := httptest.NewRequest("GET", "/api/orders/7", nil)
				assert.Equal(t, "GET /api/orders/{id}", find(routes, r))
			}
		})
	}
	callers.Wait()
}
