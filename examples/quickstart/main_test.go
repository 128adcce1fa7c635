package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ration-go/ration/examples/internal/service"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
)

// start serves the quickstart on a socket, with a clock that only move moves.
func start(t *testing.T) (get func(path, token string) *http.Response, move func(time.Duration)) {
	t.Helper()
	var elapsed atomic.Int64
	now := func() time.Time { return time.Unix(1_700_000_000, elapsed.Load()) }
	store := limiter.Must(memstore.New(memstore.Config{Now: now}))
	handler, err := service.New(store, store)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	get = func(path, token string) *http.Response {
		t.Helper()
		r, err := http.NewRequest(http.MethodGet, server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp
	}
	return get, func(d time.Duration) { elapsed.Add(int64(d)) }
}

func TestQuickstart_RefusesTheThirdExportAndAllowsItAfterRetryAfter(t *testing.T) {
	get, move := start(t)
	for i, want := range []int{200, 200, 429} {
		resp := get("/v1/exports/7", "alice-token")
		if resp.StatusCode != want {
			t.Fatalf("export %d: status %d, want %d", i+1, resp.StatusCode, want)
		}
		retry := map[int]string{200: "", 429: "1"}[want]
		if got := resp.Header.Get("Retry-After"); got != retry {
			t.Fatalf("export %d: Retry-After %q, want %q", i+1, got, retry)
		}
	}
	for _, other := range [][2]string{
		{"/v1/exports/7", "bob-token"}, {"/v1/summaries/7", "alice-token"},
	} {
		if resp := get(other[0], other[1]); resp.StatusCode != 200 {
			t.Errorf("%s by %s: status %d, want 200", other[0], other[1], resp.StatusCode)
		}
	}
	move(time.Second - 1)
	if resp := get("/v1/exports/8", "alice-token"); resp.StatusCode != 429 {
		t.Errorf("before Retry-After: status %d, want 429", resp.StatusCode)
	}
	move(1)
	if resp := get("/v1/exports/8", "alice-token"); resp.StatusCode != 200 {
		t.Errorf("after Retry-After: status %d, want 200", resp.StatusCode)
	}

	text, err := io.ReadAll(get("/metrics", "").Body)
	if err != nil {
		t.Fatal(err)
	}
	const series = `ration_requests_total{limiter="user",outcome="`
	for _, line := range []string{
		series + `allow",route="GET /v1/exports/{id}",transport="http"} 4`,
		series + `deny",route="GET /v1/exports/{id}",transport="http"} 2`,
		series + `allow",route="GET /v1/summaries/{id}",transport="http"} 1`,
		series + `deny",route="GET /v1/summaries/{id}",transport="http"} 0`,
	} {
		if !strings.Contains(string(text), line+"\n") {
			t.Errorf("/metrics lacks %s", line)
		}
	}
	if t.Failed() {
		t.Logf("/metrics:\n%s", text)
	}
}

func TestQuickstart_LimitsGuessedTokensByAddress(t *testing.T) {
	get, _ := start(t)
	for range 100 {
		resp := get("/v1/exports/7", "guess")
		if resp.StatusCode != 401 || resp.Header.Get("WWW-Authenticate") == "" {
			t.Fatalf("status %d, want 401 with a challenge", resp.StatusCode)
		}
	}
	if resp := get("/v1/exports/7", "guess"); resp.StatusCode != 429 {
		t.Errorf("guess 101: status %d, want 429", resp.StatusCode)
	}
	for range 200 {
		if resp := get("/healthz", ""); resp.StatusCode != 200 {
			t.Fatalf("/healthz: status %d, want 200", resp.StatusCode)
		}
	}
}
