package keying_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ration-go/ration/keying"
)

// served is a mux with a limiter around it and around each of its handlers.
type served struct {
	handler http.Handler
	known   []string
	found   []string // by the limiters
	route   string   // of the handler that ran; empty if none did
}

// newServed registers the patterns that the mux does not refuse, and returns them.
func newServed(patterns []string) (s *served, accepted []string) {
	mux := http.NewServeMux()
	s = &served{known: []string{keying.Unmatched}}
	around, inside := keying.Mux(mux), keying.Route(keying.Pattern)
	for _, pattern := range patterns {
		route := strings.Replace(pattern, "HEAD ", "GET ", 1)
		if !accepts(mux, pattern, func(_ http.ResponseWriter, r *http.Request) {
			s.found = append(s.found, find(inside, r), find(around, r))
			s.route = route
		}) {
			continue
		}
		accepted, s.known = append(accepted, pattern), append(s.known, route)
	}
	s.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.found = append(s.found, find(around, r))
		mux.ServeHTTP(w, r)
	})
	return s, accepted
}

func accepts(mux *http.ServeMux, pattern string, handler http.HandlerFunc) (ok bool) {
	defer func() { ok = recover() == nil }()
	mux.Handle(pattern, handler)
	return true
}

// wrong runs a request and reports whether a limiter found another route than the
// one that served. A request that no handler served is Unmatched, or counts on a
// route that the mux has.
func (s *served) wrong(method, host, target string) bool {
	s.found, s.route = nil, ""
	s.handler.ServeHTTP(httptest.NewRecorder(), muxRequest(method, host, target))
	return slices.ContainsFunc(s.found, func(found string) bool {
		return found != s.route && (s.route != "" || !slices.Contains(s.known, found))
	})
}

// muxGenerator makes patterns and requests.
type muxGenerator struct{ *rand.Rand }

func (g muxGenerator) of(from ...string) string { return from[g.IntN(len(from))] }

func (g muxGenerator) patterns() []string {
	patterns := make([]string, 1+g.IntN(8))
	for i := range patterns {
		var p strings.Builder
		p.WriteString(g.of("", "", "", "GET ", "GET ", "HEAD ", "POST ", "CONNECT ", "OPTIONS ", "BREW "))
		p.WriteString(g.of("", "", "", "", "a.example", "b.example"))
		for n := range g.IntN(4) {
			p.WriteString(g.of("/a", "/a", "/b", fmt.Sprintf("/{w%d}", n), "/a%2Fb"))
		}
		p.WriteString(g.of("", "/", "/", "/{$}", "/{rest...}"))
		patterns[i] = p.String()
	}
	return patterns
}

func (g muxGenerator) request() (method, host, target string) {
	method = g.of("GET", "GET", "HEAD", "POST", "PUT", "CONNECT", "CONNECT", "CONNECT", "OPTIONS",
		"TRACE", "BREW", "get")
	host = g.of("", "a.example", "a.example:443", "b.example", "A.EXAMPLE", "b.example.")
	if g.IntN(40) == 0 {
		return method, host, g.of("", "*", "a", "http://a.example/a", "http://b.example/a/",
			"//b.example/a")
	}
	var p strings.Builder
	for range 1 + g.IntN(4) {
		p.WriteString(g.of("/a", "/a", "/a", "/b", "/b", "/x", "/", "/.", "/..", "/a%2Fb",
			"/%61", "/{$}", "/*"))
	}
	p.WriteString(g.of("", "", "/"))
	return method, host, p.String()
}

// The route charged is the pattern that serves: random requests to random muxes.
func TestMux_FindsThePatternThatServes(t *testing.T) {
	const muxes, requests = 1000, 100
	g := muxGenerator{rand.New(rand.NewPCG(1, 2))}
	ran := 0
	for range muxes {
		s, patterns := newServed(g.patterns())
		for range requests {
			method, host, target := g.request()
			wrong := s.wrong(method, host, target)
			if s.route != "" {
				ran++
			}
			if !wrong {
				continue
			}
			for i := 0; i < len(patterns); i++ { // without those that it does not need
				fewer := slices.Delete(slices.Clone(patterns), i, i+1)
				if smaller, _ := newServed(fewer); smaller.wrong(method, host, target) {
					s, patterns, i = smaller, fewer, -1
				}
			}
			t.Errorf("%s %q of host %q: found %q, served %q, by %q",
				method, target, host, s.found, s.route, patterns)
			break
		}
	}
	assert.Greater(t, ran, muxes*requests/10, "too few requests reach a handler")
}

// Muxes on which a limiter once found another route than the one that served, with
// as few patterns as show it.
func TestMux_FindsThePatternWhereItOnceDidNot(t *testing.T) {
	for _, tt := range []struct {
		name                 string
		patterns             []string
		method, host, target string
		want                 string
	}{
		{"CONNECT below a tree, beside the tree's own path",
			[]string{"/files/", "/files/{$}"}, "CONNECT", "", "/files/secret", "/files/"},
		{"CONNECT on an unclean path, beside the host's own root",
			[]string{"/", "b.example/{$}"}, "CONNECT", "b.example", "/..//", "/"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, _ := newServed(tt.patterns)
			assert.False(t, s.wrong(tt.method, tt.host, tt.target))
			assert.Equal(t, tt.want, s.route)
			assert.Equal(t, []string{tt.want, tt.want, tt.want}, s.found)
		})
	}
}
