package chiroute_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/assert"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/keying/chiroute"
)

type wrap = func(http.Handler) http.Handler

func ok(http.ResponseWriter, *http.Request) {}

// orders registers routes of every form on a router.
func orders(r chi.Router) {
	r.Get("/orders/{id}", ok)
	r.Post("/orders", ok)
	r.Handle("/any/{id}", http.HandlerFunc(ok))
	r.Get("/slash/", ok)
	r.Get("/re/{id:[0-9]+}", ok)
	r.Get("/files/*", ok)
	r.Get("/both", ok)
	r.Head("/both", ok)
	r.Head("/head", ok)
	r.Get("/", ok)
}

// placements mount the limiter at every place of a router with the routes of
// orders below prefix. The probe tells the route it finds.
var placements = []struct {
	name   string
	prefix string
	build  func(r chi.Router, probe wrap) http.Handler
}{
	{"root-use", "", func(r chi.Router, probe wrap) http.Handler {
		r.Use(probe)
		orders(r)
		return r
	}},
	{"with", "", func(r chi.Router, probe wrap) http.Handler {
		orders(r.With(probe))
		return r
	}},
	{"group", "", func(r chi.Router, probe wrap) http.Handler {
		r.Group(func(r chi.Router) {
			r.Use(probe)
			orders(r)
		})
		return r
	}},
	{"around-the-router", "", func(r chi.Router, probe wrap) http.Handler {
		orders(r)
		return probe(r)
	}},
	{"around-a-router-with-mounts", "/api/v2", func(r chi.Router, probe wrap) http.Handler {
		r.Route("/api", func(r chi.Router) { r.Route("/v2", orders) })
		return probe(r)
	}},
	{"root-use-above-mounts", "/api/v2", func(r chi.Router, probe wrap) http.Handler {
		r.Use(probe)
		r.Route("/api", func(r chi.Router) { r.Route("/v2", orders) })
		return r
	}},
	{"use-inside-route", "/api", func(r chi.Router, probe wrap) http.Handler {
		r.Route("/api", func(r chi.Router) {
			r.Use(probe)
			orders(r)
		})
		return r
	}},
	{"use-between-routes", "/api/v2", func(r chi.Router, probe wrap) http.Handler {
		r.Route("/api", func(r chi.Router) {
			r.Use(probe)
			r.Route("/v2", orders)
		})
		return r
	}},
	{"use-inside-nested-route", "/api/v2", func(r chi.Router, probe wrap) http.Handler {
		r.Route("/api", func(r chi.Router) {
			r.Route("/v2", func(r chi.Router) {
				r.Use(probe)
				orders(r)
			})
		})
		return r
	}},
	{"with-inside-nested-route", "/api/v2", func(r chi.Router, probe wrap) http.Handler {
		r.Route("/api", func(r chi.Router) {
			r.Route("/v2", func(r chi.Router) { orders(r.With(probe)) })
		})
		return r
	}},
	{"with-before-mount", "/api", func(r chi.Router, probe wrap) http.Handler {
		sub := chi.NewRouter()
		orders(sub)
		r.With(probe).Mount("/api", sub)
		return r
	}},
	{"with-before-nested-mount", "/api/v2", func(r chi.Router, probe wrap) http.Handler {
		sub := chi.NewRouter()
		orders(sub)
		r.Route("/api", func(r chi.Router) { r.With(probe).Mount("/v2", sub) })
		return r
	}},
	{"mounted-with-a-parameter", "/t/{tenant}", func(r chi.Router, probe wrap) http.Handler {
		sub := chi.NewRouter()
		sub.Use(probe)
		orders(sub)
		r.Mount("/t/{tenant}", sub)
		return r
	}},
	{"with-before-mount-with-a-parameter", "/t/{tenant}",
		func(r chi.Router, probe wrap) http.Handler {
			sub := chi.NewRouter()
			orders(sub)
			r.With(probe).Mount("/t/{tenant}", sub)
			return r
		}},
	{"mounted-at-the-root", "", func(r chi.Router, probe wrap) http.Handler {
		sub := chi.NewRouter()
		sub.Use(probe)
		orders(sub)
		r.Mount("/", sub)
		return r
	}},
	{"inside-a-standard-mux", "", func(r chi.Router, probe wrap) http.Handler {
		r.Use(probe)
		orders(r)
		mux := http.NewServeMux()
		mux.Handle("/", r)
		return mux
	}},
}

// requests are the same in every placement; %s stands for the prefix.
var requests = []struct {
	method, path string
	want         string // "" where the probe may be out of reach: 404 and 405
}{
	{"GET", "%s/orders/7", "GET %s/orders/{id}"},
	{"GET", "%s/orders/8?id=9", "GET %s/orders/{id}"},
	{"GET", "%s/orders/a%%2Fb", "GET %s/orders/{id}"},
	{"POST", "%s/orders", "POST %s/orders"},
	{"GET", "%s/any/7", "%s/any/{id}"},
	{"DELETE", "%s/any/7", "%s/any/{id}"},
	{"HEAD", "%s/any/7", "%s/any/{id}"},
	{"OPTIONS", "%s/any/7", "%s/any/{id}"},
	{"GET", "%s/slash/", "GET %s/slash"},
	{"GET", "%s/re/7", "GET %s/re/{id:[0-9]+}"},
	{"GET", "%s/files/a/b.txt", "GET %s/files/*"},
	{"GET", "%s/both", "GET %s/both"},
	{"HEAD", "%s/both", "GET %s/both"},
	{"HEAD", "%s/head", "GET %s/head"},
	{"GET", "%s/", "GET root"},
	{"GET", "%s/re/x", ""},
	{"GET", "%s/nothing/7", ""},
	{"PUT", "%s/orders", ""},
	{"PURGE", "%s/orders/7", ""},
	{"get", "%s/orders/7", ""},
}

func TestRouter_FindsThePatternInEveryPlacement(t *testing.T) {
	for _, p := range placements {
		t.Run(p.name, func(t *testing.T) {
			router := chi.NewRouter()
			routes := chiroute.New(router)
			var found []string
			handler := p.build(router, probe(routes, &found))
			for _, q := range requests {
				path := fmt.Sprintf(q.path, strings.ReplaceAll(p.prefix, "{tenant}", "acme"))
				found = nil
				serve(handler, q.method, path)
				if q.want == "" {
					for _, route := range found {
						assert.Equal(t, keying.Unmatched, route, "%s %s", q.method, path)
					}
					continue
				}
				want := strings.ReplaceAll(q.want, "%s", p.prefix)
				if q.want == "GET root" {
					want = "GET " + max(p.prefix, "/")
				}
				assert.Equal(t, []string{want}, found, "%s %s", q.method, path)
			}
		})
	}
}

// probe notes the route that a limiter in its place would find.
func probe(routes *chiroute.Router, found *[]string) wrap {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			*found = append(*found, find(routes, r))
			next.ServeHTTP(w, r)
		})
	}
}

func find(routes *chiroute.Router, r *http.Request) string {
	pattern, ok := routes.Route(r)
	if !ok {
		return keying.Unmatched
	}
	return pattern
}

func serve(h http.Handler, method, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w
}
