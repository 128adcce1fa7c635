package middleware_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/misuse"
	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
	"github.com/ration-go/ration/limiter/metrics"
	"github.com/ration-go/ration/middleware"
)

// from returns the status that a caller from the address gets.
func from(h http.Handler, remote, user string) int {
	r := get("/", user)()
	r.RemoteAddr = remote
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

// A subscriber owns 2^64 addresses, and they are one caller.
func TestMiddleware_AnIPv6NetworkIsOneCaller(t *testing.T) {
	f := newFixture(t, limiter.Budget{Name: "all", Scope: limiter.ByPrincipal,
		Limit: limiter.PerMinute(10)})
	h := f.middleware(t, byAddress, keying.Pattern, middleware.Config{})(http.HandlerFunc(noop))
	counts := map[int]int{}
	for i := range 1000 {
		counts[from(h, fmt.Sprintf("[2001:db8:1:2:%x::%x]:443", i, i), "")]++
	}
	assert.Equal(t, map[int]int{200: 10, 429: 990}, counts)
	assert.Equal(t, 200, from(h, "[2001:db8:1:3::1]:443", ""), "the next network")
}

// Behind a unix socket there is no address, whatever the system calls it.
func TestMiddleware_NoAddressFollowsTheChoice(t *testing.T) {
	for _, remote := range []string{"", "@", "@/run/x.sock"} {
		for _, tt := range []struct {
			unknown keying.Absent
			want    []int
		}{
			{keying.Absent{}, []int{403, 403, 403}},
			{keying.Refuse(challenge), []int{401, 401, 401}},
			{keying.OrShared(), []int{200, 200, 429}},
		} {
			f := newFixture(t, perHour(2))
			who := keying.ByAddress(keying.Addresses{Unknown: tt.unknown})
			h := f.middleware(t, who, keying.Pattern, middleware.Config{})(http.HandlerFunc(noop))
			var got []int
			for range 3 {
				got = append(got, from(h, remote, ""))
			}
			assert.Equal(t, tt.want, got, "%q", remote)
		}
	}
}

// In front of the authentication nobody has a principal: all are refused, or
// counted by address, as chosen, and never as one caller that nobody chose.
func TestMiddleware_InTheWrongOrderTheChoiceApplies(t *testing.T) {
	const one, two = "203.0.113.7:1", "203.0.113.8:1"
	for name, tt := range map[string]struct {
		absent keying.Absent
		want   []int
	}{
		"refuse":     {keying.Refuse(challenge), []int{401, 401, 401, 401, 401, 401}},
		"or-address": {keying.OrAddress(keying.Addresses{}), []int{200, 200, 429, 200, 200, 429}},
		"or-shared":  {keying.OrShared(), []int{200, 200, 429, 429, 429, 429}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, perHour(2))
			limit := f.middleware(t, keying.Authenticated(tt.absent), keying.Pattern, middleware.Config{})
			wrong, right := limit(authenticate(http.HandlerFunc(noop))), authenticate(limit(
				http.HandlerFunc(noop)))
			var got []int
			for _, remote := range []string{one, one, one, two, two, two} {
				got = append(got, from(wrong, remote, remote))
			}
			assert.Equal(t, tt.want, got)
			for range 2 {
				assert.Equal(t, 200, from(right, one, "alice"))
				assert.Equal(t, 200, from(right, one, "bob"))
			}
		})
	}
}

// Whom a limiter counts is nobody else's business: neither metrics, logs nor
// answers name a caller.
func TestMiddleware_NamesNoCallerAnywhere(t *testing.T) {
	const secret = "sk-live-12345"
	registry := prometheus.NewRegistry()
	var log bytes.Buffer
	l, err := limiter.New(limiter.Must(memstore.New(memstore.Config{})), []limiter.Budget{{
		Name: "user", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(2),
		LimitFor: func(context.Context, limiter.Caller) limiter.Limit {
			return limiter.Limit{Tokens: -1}
		},
	}}, limiter.Config{
		Observer: limiter.Must(metrics.New(registry)),
		Logger:   slog.New(slog.NewTextHandler(&log, nil)),
	})
	require.NoError(t, err)
	m := limiter.Must(middleware.New(l, byUser, keying.Pattern, middleware.Config{
		Workloads: keying.Workloads{Header: workload},
	}))
	h := authenticate(m.Handler(http.HandlerFunc(noop)))
	var answers strings.Builder
	for range 2 * misuse.Patience {
		r := get("/"+secret, secret)()
		r.Header.Set(workload, secret)
		r.RemoteAddr = "203.0.113.77:1"
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		_ = w.Result().Header.Write(&answers)
		answers.Write(w.Body.Bytes())
	}
	scrape := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(scrape, get("/metrics", "")())
	assert.Contains(t, scrape.Body.String(), "ration_requests_total")
	assert.Contains(t, log.String(), "code=limit-for-invalid")
	for _, text := range []string{scrape.Body.String(), log.String(), answers.String()} {
		assert.NotContains(t, text, secret)
		assert.NotContains(t, text, "203.0.113")
	}
}
