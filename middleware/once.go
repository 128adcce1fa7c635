package middleware

import (
	"context"
	"net/http"
	"net/url"
	"runtime"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/ration-go/ration/internal/callerkey"
	"github.com/ration-go/ration/limiter"
)

// charged marks a request as charged to a caller by a limiter. It is the
// request's context and, as a key, the question whether an outer context is the
// same mark. Values are compared, so that a clone of a request is the request.
type charged struct {
	context.Context
	limiter *limiter.Limiter
	caller  limiter.Caller
	request identity
}

// identity tells requests apart. One that a handler makes up has no RequestURI of
// a server, or another method or URL; a clone has them all and is the request.
type identity struct {
	method, uri string
	url         url.URL
}

func identify(r *http.Request) identity { return identity{r.Method, r.RequestURI, *r.URL} }

// Value returns the mark that equals key, its caller for [keying.CallerFrom], or
// what the outer contexts know.
func (c *charged) Value(key any) any {
	switch k := key.(type) {
	case *charged:
		if k.limiter == c.limiter && k.caller.Principal == c.caller.Principal &&
			k.request == c.request {
			return c
		}
	case callerkey.Key:
		return &c.caller
	}
	return c.Context.Value(key)
}

// mark returns the request as it goes on once it is charged to the caller, and
// whether it has been charged already. Where a limiter is mounted only once no
// request can meet it again, and none is marked unless handlers want to know the
// caller: marking copies the request.
func (m *Middleware) mark(r *http.Request, caller *limiter.Caller) (*http.Request, bool) {
	if m.mounts.Load() < 2 && !m.cfg.Caller {
		return r, false
	}
	ctx := r.Context()
	c := &charged{ctx, m.limiter, *caller, identify(r)}
	if ctx.Value(c) != nil {
		return r, true
	}
	return r.WithContext(c), false
}

// mounts counts the handlers behind each limiter: weak.Pointer[limiter.Limiter]
// to *atomic.Int64. It keeps no limiter alive.
var mounts sync.Map

func mountsOf(l *limiter.Limiter) *atomic.Int64 {
	key := weak.Make(l)
	n, known := mounts.LoadOrStore(key, new(atomic.Int64))
	if !known {
		runtime.AddCleanup(l, func(key weak.Pointer[limiter.Limiter]) { mounts.Delete(key) }, key)
	}
	return n.(*atomic.Int64)
}
