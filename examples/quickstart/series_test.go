package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/denylog"
	"github.com/ration-go/ration/limiter/memstore"
	"github.com/ration-go/ration/limiter/metrics"
	"github.com/ration-go/ration/limiter/topcallers"
)

// scrape returns the lines of /metrics that have samples of the limiters.
func scrape(t *testing.T, h http.Handler) []string {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("/metrics: %d\n%s", w.Code, w.Body)
	}
	var lines []string
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "ration_") {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	return lines
}

// Whoever calls, and whatever the path, there are as many series as before the first
// request.
func TestQuickstart_HasAsManySeriesWhoeverCalls(t *testing.T) {
	s := newService(t, nil)
	before := len(scrape(t, s.Operators))
	for i := range 10_000 {
		path := fmt.Sprintf([]string{"/v1/exports/%d", "/v1/summaries/%d", "/v1/none/%d"}[i%3], i%1000)
		send(s, fmt.Sprint("user-", i), path)
		send(s, "nobody", path)
	}
	if after := len(scrape(t, s.Operators)); after != before {
		t.Errorf("%d series after the requests, want the %d from before", after, before)
	}
}

// Nothing is lost or counted twice: the counters add up to the requests.
func TestQuickstart_CountsConcurrentRequestsExactly(t *testing.T) {
	s := newService(t, nil)
	var workers sync.WaitGroup
	for worker := range 10 {
		workers.Go(func() {
			for i := range 10_000 {
				send(s, fmt.Sprint("user-", (worker*i)%2000), "/v1/exports/7")
			}
		})
	}
	workers.Wait()
	sums := map[string]int{}
	for _, line := range scrape(t, s.Operators) {
		var n int
		name, value, _ := strings.Cut(line, "} ")
		if _, err := fmt.Sscan(value, &n); err != nil {
			t.Fatal(line, err)
		}
		switch {
		case strings.HasPrefix(name, `ration_requests_total{limiter="user"`):
			sums["requests"] += n
		case strings.HasPrefix(name, `ration_budget_decisions_total{budget="exports"`):
			sums["decisions"] += n
		}
	}
	if fmt.Sprint(sums) != "map[decisions:100000 requests:100000]" {
		t.Errorf("counted %v, want 100000 each", sums)
	}
	w := httptest.NewRecorder()
	s.Operators.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost/callers?budget=exports", nil))
	var budgets []topcallers.Budget
	if err := json.Unmarshal(w.Body.Bytes(), &budgets); err != nil || len(budgets) != 1 ||
		budgets[0].Requests.Total != 100_000 {
		t.Errorf("top callers: %v\n%s", err, w.Body)
	}
}

// Texts that are no UTF-8, or very long, come from callers, routers, adapters and
// stores. Nothing panics; the scrape, the log and the JSON are well formed.
func TestObservers_BearAnyText(t *testing.T) {
	for _, text := range []string{"\xff", "a\x00\xed\xa0\x80", "\n\"}{", strings.Repeat("\xc3", 1<<20), ""} {
		registry := prometheus.NewRegistry()
		var log bytes.Buffer
		top := limiter.Must(topcallers.New(topcallers.Config{}))
		o := limiter.Must(metrics.New(registry)).And(top.Observer()).And(
			limiter.Must(denylog.New(denylog.Config{Logger: slog.New(slog.NewJSONHandler(&log, nil)),
				Principals: denylog.Plain})))
		l := limiter.Must(limiter.New(limiter.Must(memstore.New(memstore.Config{})), []limiter.Budget{{
			Name: "all", Limit: limiter.PerHour(1), Scope: limiter.ByRoute,
		}}, limiter.Config{Observer: o, Logger: slog.New(slog.DiscardHandler)}))
		l.Adapter().Routes(text, text, "GET /")
		l.Adapter().Warn(t.Context(), text, "message")
		c := limiter.Caller{Principal: limiter.Principal{Kind: text, Tenant: text, ID: text},
			Route: text, Workload: text}
		for range 3 {
			_, _ = l.Adapter().Take(t.Context(), &limiter.Request{Transport: text, Caller: c, Cost: 1})
		}
		e := limiter.DecisionEvent{Limiter: text, Caller: c, Charges: []limiter.Charge{
			{Key: limiter.Key{Budget: text, Principal: c.Principal, Route: text, Workload: text},
				Shadow: true, Result: limiter.Result{Outcome: limiter.Deny}}},
			Decision: limiter.Decision{Outcome: limiter.Deny, Budget: text}}
		o.Decided(t.Context(), e)
		e.Err = &limiter.StoreError{Reason: text, Policy: limiter.Local}
		o.Decided(t.Context(), e)
		o.StoreCalled(text, text, 1, text)
		o.SettleLost(text, text)
		o.Configured(text, []limiter.Budget{{Name: text}}, nil, limiter.Capabilities{Name: text})

		if _, err := registry.Gather(); err != nil {
			t.Errorf("%.10q: %v", text, err)
		}
		for _, line := range scrape(t, promhttp.HandlerFor(registry, promhttp.HandlerOpts{})) {
			if !utf8.ValidString(line) {
				t.Errorf("%.10q: %.200q", text, line)
			}
		}
		w := httptest.NewRecorder()
		top.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/callers", nil))
		if !json.Valid(w.Body.Bytes()) || !utf8.Valid(w.Body.Bytes()) {
			t.Errorf("%.10q: %s", text, w.Body)
		}
		for lines := json.NewDecoder(&log); ; {
			var line map[string]any
			if err := lines.Decode(&line); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%.10q: %v", text, err)
			}
		}
	}
}
