package main

import (
	"context"
	"net/http"

	"github.com/didip/tollbooth/v8"
	tollboothlimiter "github.com/didip/tollbooth/v8/limiter"
	"github.com/go-chi/httprate"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sethvargo/go-limiter/httplimit"
	"github.com/throttled/throttled/v2"
	throttledstore "github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	"github.com/ulule/limiter/v3/drivers/store/memory"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/metrics"
	"github.com/ration-go/ration/middleware"
)

// wrapper is a middleware that is set up.
type wrapper = func(http.Handler) http.Handler

// measureMiddlewares compares whole middlewares around a handler that does
// nothing, with the caller in the context already. The peers write the headers
// that they write by default; this module is measured with and without.
func measureMiddlewares(title string, deny bool, goals map[string]bounds) func(options) section {
	subjects := []subject{
		{"httprate", peer, behind(httprateMiddleware)},
		{"go-limiter, httplimit", peer, behind(httplimitMiddleware)},
		{"throttled, HTTPRateLimiterCtx", peer, behind(throttledMiddleware)},
		{"ulule/limiter, stdlib", peer, behind(ululeMiddleware)},
		{"tollbooth, HTTPMiddleware", peer, behind(tollboothMiddleware)},
		{withHeaders, own, behind(rationMiddleware(middleware.Draft11))},
	}
	if !deny {
		subjects = append(subjects, subject{withoutHeaders, own, behind(rationMiddleware(middleware.Off))})
	}
	l := load{keys: 1 << 10, cores: 1, limit: allowing, heavy: 1}
	if deny {
		l.limit, l.deny = denying, true
	}
	return func(o options) section {
		all := compare(o, l, subjects)
		return judgeMiddlewares(title, all, goals)
	}
}

const (
	withHeaders    = "ration, RateLimit headers"
	withoutHeaders = "ration, headers off"
)

// judgeMiddlewares makes the table, and holds each of ours against its goals.
func judgeMiddlewares(title string, all []series, goals map[string]bounds) section {
	s := section{title: title, header: []string{"", "ns/op", "allocs/op", "to the fastest peer"}}
	best := fastest(all, peer).ns
	for _, x := range byMedian(all) {
		ratio := median(ratios(x.ns, best))
		s.row(x.name, tenths(median(x.ns)), hundredths(median(x.allocs)), hundredths(ratio)+" x")
		if x.kind == own {
			s.goal(title+", "+x.name, ratio, goals[x.name].peer, "x")
			s.goal(title+", "+x.name+", allocations", median(x.allocs), goals[x.name].allocs, "")
		}
	}
	return s
}

type callerKey struct{}

// requests are one of each caller. Peers find the key of its account in the
// context, and this module a principal.
func requests(l *load) []*http.Request {
	all := make([]*http.Request, len(l.visit))
	for i, name := range l.visit {
		ctx := context.WithValue(context.Background(), callerKey{}, name)
		ctx = keying.WithPrincipal(ctx, accountKey(name).Principal)
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/v1/exports/7", nil)
		check(err)
		r.Pattern, r.RemoteAddr = route, "192.0.2.1:1234"
		all[i] = r
	}
	return all
}

func keyOf(r *http.Request) string              { return r.Context().Value(callerKey{}).(string) }
func keyAndNil(r *http.Request) (string, error) { return keyOf(r), nil }

// keep is a ResponseWriter whose headers are written to one map for all answers.
type keep struct{ header http.Header }

func (k *keep) Header() http.Header         { return k.header }
func (k *keep) Write(p []byte) (int, error) { return len(p), nil }
func (k *keep) WriteHeader(int)             {}

// behind serves each caller once, so that it has an account, and then those who
// are visited.
func behind(wrap func(*load) wrapper) func(*load) run {
	return func(l *load) run {
		served := 0
		h := wrap(l)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
		w := &keep{http.Header{}}
		all := requests(l)
		for _, r := range all {
			h.ServeHTTP(w, r)
		}
		return func(from int, keys []string) int {
			served = 0
			for i := range keys {
				clear(w.header)
				h.ServeHTTP(w, all[(from+i)%len(all)])
			}
			return served
		}
	}
}

func rationMiddleware(headers middleware.Headers) func(*load) wrapper {
	return func(l *load) wrapper {
		observer := limiter.Must(metrics.New(prometheus.NewRegistry()))
		budgets := []limiter.Budget{{Name: budget, Limit: l.limit,
			Scope: limiter.ByPrincipal | limiter.ByRoute, OnError: limiter.Closed}}
		lim := limiter.Must(limiter.New(newStore(l.keys, nil, budget), budgets,
			limiter.Config{Observer: observer}))
		return limiter.Must(middleware.New(lim, keying.Authenticated(keying.Refuse("Bearer")),
			keying.Pattern, middleware.Config{Headers: headers})).Handler
	}
}

func httprateMiddleware(l *load) wrapper {
	tokens, window := l.window()
	return httprate.LimitBy(int(tokens), window, keyAndNil)
}

func httplimitMiddleware(l *load) wrapper {
	store := goLimiterStore(l)
	return limiter.Must(httplimit.NewMiddleware(store, keyAndNil)).Handle
}

func throttledMiddleware(l *load) wrapper {
	store, err := throttledstore.NewCtx(0)
	check(err)
	gcra, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
		MaxRate:  throttled.PerDuration(int(l.limit.Tokens), l.limit.Per),
		MaxBurst: int(l.limit.Burst) - 1,
	})
	check(err)
	return (&throttled.HTTPRateLimiterCtx{RateLimiter: gcra, VaryBy: vary(keyOf)}).RateLimit
}

// vary makes throttled's VaryBy of a function, without its deprecated field.
type vary func(*http.Request) string

func (v vary) Key(r *http.Request) string { return v(r) }

func ululeMiddleware(l *load) wrapper {
	store := memory.NewStoreWithOptions(ulule.StoreOptions{})
	tokens, window := l.window()
	lim := ulule.New(store, ulule.Rate{Period: window, Limit: tokens})
	return stdlib.NewMiddleware(lim, stdlib.WithKeyGetter(keyOf)).Handler
}

// tollboothMiddleware limits by address, which is less work for it than to look
// a caller up in the context.
func tollboothMiddleware(l *load) wrapper {
	lim := tollbooth.NewLimiter(float64(l.limit.Tokens)/l.limit.Per.Seconds(), nil).
		SetBurst(int(l.limit.Burst)).
		SetIPLookup(tollboothlimiter.IPLookup{Name: "RemoteAddr"})
	return tollbooth.HTTPMiddleware(lim)
}
