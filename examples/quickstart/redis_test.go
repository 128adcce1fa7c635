package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ration-go/ration/examples/internal/service"
	"github.com/ration-go/ration/internal/lab/redistest"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
)

// What the quickstart prints about an outage of its Redis server, on a real one.
func TestQuickstart_WithoutItsRedisServer(t *testing.T) {
	redis := redistest.StartTCP(t)
	users, err := service.Shared(redis.Addr, 1)
	if err != nil {
		t.Fatal(err)
	}
	s, err := service.New(users, limiter.Must(memstore.New(memstore.Config{})))
	if err != nil {
		t.Fatal(err)
	}
	public := httptest.NewServer(s)
	t.Cleanup(public.Close)
	ask := func(path string) int {
		r, err := http.NewRequest(http.MethodGet, public.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer alice-token")
		resp, err := public.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		return resp.StatusCode
	}
	until := func(what, path string, want int) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); ask(path) != want; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: no status %d for %s", what, want, path)
			}
		}
	}
	until("with a server", "/v1/exports/7", http.StatusOK)

	redis.Kill()
	until("without a server", "/v1/exports/7", http.StatusServiceUnavailable)
	until("without a server", "/v1/summaries/7", http.StatusTooManyRequests)
	metrics := httptest.NewRecorder()
	s.Operators.ServeHTTP(metrics, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	body, _ := io.ReadAll(metrics.Body)
	for _, want := range []string{
		`ration_requests_total{limiter="user",outcome="error_local",route="GET /v1/summaries/{id}",transport="http"} `,
		`ration_local_decisions_total{limiter="user",store="redis"} `,
	} {
		_, value, found := strings.Cut(string(body), want)
		if !found || strings.HasPrefix(value, "0\n") {
			t.Errorf("%s is not counted", want)
		}
	}

	redis.Restart()
	until("with a server again", "/v1/exports/7", http.StatusOK)
}
