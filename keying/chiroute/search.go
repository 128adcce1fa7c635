package chiroute

import (
	"net/http"
	"path"
	"reflect"
	"slices"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
)

// rewrite is one of chi's middlewares that change what a router routes by.
type rewrite int

const (
	stripSlashes rewrite = iota + 1
	cleanPath
	getHead
)

// rewriters identifies the middlewares by the address of their code.
var rewriters = map[uintptr]rewrite{
	codeOf(middleware.StripSlashes): stripSlashes,
	codeOf(middleware.CleanPath):    cleanPath,
	codeOf(middleware.GetHead):      getHead,
}

func codeOf(f func(http.Handler) http.Handler) uintptr { return reflect.ValueOf(f).Pointer() }

// rewritesOf returns the rewrites among the middlewares of a router.
func rewritesOf(middlewares chi.Middlewares) (rewrites []rewrite) {
	for _, m := range middlewares {
		if w := rewriters[codeOf(m)]; w != 0 {
			rewrites = append(rewrites, w)
		}
	}
	return rewrites
}

// search is one look-up: what the router at level sees of a request.
type search struct {
	req    *http.Request
	outer  chi.Routes // the outermost router, which GetHead asks
	ctx    *chi.Context
	level  *level
	method string
	path   string
	set    bool // the path is a chi.Context.RoutePath, not the URL's
	ran    int  // how many of the level's rewrites are known to have run
}

// noteRan finds out which rewrites of s.level ran before the limiter: all up to the
// first that can have set the path. The others that ran change nothing when they are
// applied again. StripSlashes has stripped if stripped is true, and CleanPath sets
// any path if cleaned is true.
func (s *search) noteRan(stripped, cleaned bool) {
	s.ran = 1 + slices.IndexFunc(s.level.rewrites, func(w rewrite) bool {
		return w == stripSlashes && stripped || w == cleanPath && cleaned
	})
}

// ahead looks up the route that the router at s.level will take. The router's own
// rewrites are applied as chi applies them. If that finds no route, middleware that
// the router does not list may still serve the request, so each form that the
// rewrites can produce is tried: its spelling never makes a request free.
func (r *Router) ahead(s search) (string, bool) {
	// The request's own context is never lent: a look-up writes to it.
	s.ctx = r.contexts.Get().(*chi.Context)
	defer r.contexts.Put(s.ctx)

	exact := s
	exact.rewrite()
	if pattern, ok := exact.find(); ok {
		return pattern, true
	}
	if pattern, ok := s.findForms(); ok || s.req.Method != http.MethodHead {
		return pattern, ok
	}
	s.method = http.MethodGet
	return s.findForms()
}

// rewrite applies the rewrites of the router at s.level.
func (s *search) rewrite() {
	for _, w := range s.level.rewrites[s.ran:] {
		switch {
		case w == stripSlashes:
			p := s.path
			if !s.set {
				p = s.req.URL.Path // not RawPath
			}
			if short, ok := strip(p); ok {
				s.path, s.set = short, true
			}
		case w == cleanPath && !s.set:
			s.path, s.set = path.Clean(s.path), true
		case w == getHead && s.req.Method == http.MethodHead:
			s.ctx.Reset()
			if !s.outer.Match(s.ctx, http.MethodHead, s.path) {
				s.method, s.set = http.MethodGet, s.path != ""
			}
		}
	}
}

// strip removes one slash from the end of a path, as StripSlashes does.
func strip(p string) (short string, ok bool) {
	if n := len(p) - 1; n > 0 && p[n] == '/' {
		return p[:n], true
	}
	return p, false
}

// findForms looks up the path as it is, then as StripSlashes and as CleanPath make
// it. A clean path has no slash to strip, so that order adds no form; each router on
// the way down can strip one slash. StripSlashes reads the decoded path if
// no other middleware has set one.
func (s search) findForms() (string, bool) {
	if pattern, ok := s.find(); ok {
		return pattern, true
	}
	as := s
	as.set = true
	sources := [...]string{s.path, s.path}
	if !s.set {
		sources[0] = s.req.URL.Path
	}
	for i, p := range sources {
		if i > 0 && p == sources[0] {
			break
		}
		for range s.level.height {
			var ok bool
			if as.path, ok = strip(p); !ok {
				break
			}
			p = as.path
			if pattern, ok := as.find(); ok {
				return pattern, true
			}
		}
	}
	if as.path = path.Clean(s.path); as.path == s.path {
		return "", false
	}
	return as.find()
}

// find asks chi, one router after the other if the inner ones rewrite too. The
// result of Find is not used: it enters a mounted router even if a handler is
// registered at the mount for the method. The patterns that Find has noted say what
// is matched at each level.
func (s search) find() (string, bool) {
	for {
		if s.path == "" {
			s.path = "/"
		}
		s.ctx.Reset()
		s.level.router.Find(s.ctx, s.method, s.path)
		at, next := s.level.walk(s.ctx, s.method)
		switch {
		case at.level == nil:
			return at.route, true
		case next == "":
			return "", false // the router at that level has no match
		}
		s.level, s.path, s.set, s.ran = at.level, next, true, 0
		s.rewrite()
	}
}

// walk follows the patterns that a look-up has noted, up to the first router that
// has rewrites. It returns the path that is left for that router, or "" if no
// router is left to be asked.
func (l *level) walk(found *chi.Context, method string) (at position, next string) {
	at.level = l
	star := -1
	for _, pattern := range found.RoutePatterns {
		star = nextStar(found, star, pattern)
		at = at.level.follow(pattern, method)
		switch {
		case at.level == nil:
			return at, ""
		case at.bare:
			return at, "/" // Find stops at the path of a mount itself
		case len(at.level.rewrites) > 0:
			return at, "/" + value(found, star)
		}
	}
	return at, ""
}
