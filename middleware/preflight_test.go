package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/assert"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/keying/chiroute"
	"github.com/ration-go/ration/middleware"
)

const exposed = "RateLimit, RateLimit-Policy, Retry-After"

// cors answers preflights and adds to all other answers what pages of other
// origins need.
func cors(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
		h.Set("Vary", "Origin")
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			h.Set("Access-Control-Allow-Methods", "GET")
			h.Set("Access-Control-Allow-Headers", "X-Test-User")
			w.WriteHeader(http.StatusNoContent)
			return
		}
		h.Set("Access-Control-Expose-Headers", exposed)
		next.ServeHTTP(w, r)
	})
}

func preflight(h http.Handler, path, method string) int {
	r := httptest.NewRequest("OPTIONS", path, nil)
	r.Header.Set("Origin", "https://app.example.com")
	r.Header.Set("Access-Control-Request-Method", method)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

func TestPreflight_OfARouteWithoutOptionsIsFree(t *testing.T) {
	none := func(http.ResponseWriter, *http.Request) {}
	tests := map[string]func(t *testing.T, f *fixture) http.Handler{
		"limiter-inside-cors": func(t *testing.T, f *fixture) http.Handler {
			router := chi.NewRouter()
			router.Use(cors, authenticate,
				f.middleware(t, byUser, chiroute.New(router).Route, middleware.Config{}))
			router.Get("/api/orders", none)
			return router
		},
		"cors-inside-the-limiter": func(t *testing.T, f *fixture) http.Handler {
			router := chi.NewRouter()
			router.Use(authenticate,
				f.middleware(t, byUser, chiroute.New(router).Route, middleware.Config{}), cors)
			router.Get("/api/orders", none)
			return router
		},
		"in-a-sub-router": func(t *testing.T, f *fixture) http.Handler {
			router := chi.NewRouter()
			routes := chiroute.New(router)
			router.Route("/api", func(r chi.Router) {
				r.Use(authenticate, f.middleware(t, byUser, routes.Route, middleware.Config{}), cors)
				r.Get("/orders", none)
			})
			return router
		},
		"around-a-standard-mux": func(t *testing.T, f *fixture) http.Handler {
			mux := http.NewServeMux()
			mux.HandleFunc("GET /api/orders", none)
			return authenticate(f.middleware(t, byUser, keying.Mux(mux), middleware.Config{})(cors(mux)))
		},
	}
	for name, build := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, perHour(2))
			h := build(t, f)
			for range 50 {
				assert.Equal(t, http.StatusNoContent, preflight(h, "/api/orders", "GET"))
			}
			for _, answer := range f.seen.take() {
				assert.True(t, strings.HasSuffix(answer, " skipped"), answer)
			}
			for _, want := range []int{200, 200, 429} {
				r := get("/api/orders", "alice")()
				r.Header.Set("Origin", "https://app.example.com")
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				assert.Equal(t, want, w.Code)
				if name == "limiter-inside-cors" {
					assert.Equal(t, "https://app.example.com", w.Header().Get("Access-Control-Allow-Origin"))
					assert.Equal(t, exposed, w.Header().Get("Access-Control-Expose-Headers"))
					assert.Equal(t, "Origin", w.Header().Get("Vary"))
				}
			}
		})
	}
}

// Headers are the caller's to write: they make nothing free that a handler of
// the service's answers.
func TestPreflight_ThatAHandlerAnswersCosts(t *testing.T) {
	none := func(http.ResponseWriter, *http.Request) {}
	tests := map[string]func(t *testing.T, f *fixture) http.Handler{
		"options-handler": func(t *testing.T, f *fixture) http.Handler {
			router := chi.NewRouter()
			router.Use(f.middleware(t, byAddress, chiroute.New(router).Route, middleware.Config{}))
			router.Get("/a", none)
			router.Options("/a", none)
			return router
		},
		"all-methods": func(t *testing.T, f *fixture) http.Handler {
			mux := http.NewServeMux()
			mux.HandleFunc("/a", none)
			return f.middleware(t, byAddress, keying.Mux(mux), middleware.Config{})(mux)
		},
		"handler-of-a-mux": func(t *testing.T, f *fixture) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("/a", f.middleware(t, byAddress, keying.Pattern, middleware.Config{})(
				http.HandlerFunc(none)))
			return mux
		},
		"no-router-to-ask": func(t *testing.T, f *fixture) http.Handler {
			return f.middleware(t, byAddress, keying.Pattern, middleware.Config{})(http.HandlerFunc(none))
		},
		"mounted-handler": func(t *testing.T, f *fixture) http.Handler {
			router := chi.NewRouter()
			router.Use(f.middleware(t, byAddress, chiroute.New(router).Route, middleware.Config{}))
			router.Mount("/a", http.HandlerFunc(none))
			return router
		},
	}
	for name, build := range tests {
		t.Run(name, func(t *testing.T) {
			h := build(t, newFixture(t, perHour(2)))
			for _, want := range []int{200, 200, 429} {
				assert.Equal(t, want, preflight(h, "/a", "GET"))
			}
		})
	}
}

func TestPreflight_IsOptionsWithBothHeaders(t *testing.T) {
	f := newFixture(t, perHour(1))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /a", func(http.ResponseWriter, *http.Request) {})
	h := f.middleware(t, byAddress, keying.Mux(mux), middleware.Config{})(mux)
	for _, change := range []func(r *http.Request){
		func(r *http.Request) { r.Header.Del("Origin") },
		func(r *http.Request) { r.Header.Del("Access-Control-Request-Method") },
		func(r *http.Request) { r.Method = "GET" },
		func(r *http.Request) { r.URL.Path = "/nothing" },
		func(r *http.Request) { r.Header.Set("Access-Control-Request-Method", "OPTIONS") },
		func(r *http.Request) { r.Header.Set("Access-Control-Request-Method", "PURGE") },
	} {
		r := httptest.NewRequest("OPTIONS", "/a", nil)
		r.Header.Set("Origin", "https://app.example.com")
		r.Header.Set("Access-Control-Request-Method", "GET")
		change(r)
		f.seen.take()
		h.ServeHTTP(httptest.NewRecorder(), r)
		for _, answer := range f.seen.take() {
			assert.False(t, strings.HasSuffix(answer, " skipped"), answer)
		}
	}
}
