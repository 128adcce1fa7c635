package main

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/ration-go/ration/internal/lab/redistest"
)

// status returns the status of a request by alice, or 0 where nobody listens.
func status(t *testing.T, addr, path string) int {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, "http://"+addr+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer alice-token")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0
	}
	defer func() { _ = resp.Body.Close() }()
	return resp.StatusCode
}

func TestRedis_TwoProcessesShareABudget(t *testing.T) {
	server := redistest.Start(t)
	program := filepath.Join(t.TempDir(), "redis")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	first, second := redistest.FreeAddr(t), redistest.FreeAddr(t)
	cmd := exec.Command(program, "-redis", server.Addr, "-addr", first, "-second", second)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	})
	for _, addr := range []string{first, second} {
		for deadline := time.Now().Add(20 * time.Second); status(t, addr, "/healthz") != 200; {
			if time.Now().After(deadline) {
				t.Fatalf("%s does not answer", addr)
			}
		}
	}
	status(t, first, "/v1/summaries/7") // so that nothing is new to the server
	status(t, second, "/v1/summaries/7")

	allowed := 0
	for i := range 6 {
		addr := []string{first, second}[i%2]
		if status(t, addr, "/v1/exports/7") == 200 {
			allowed++
		}
	}
	if allowed < 2 || allowed > 3 { // 2 at once, and perhaps one of the next second
		t.Errorf("%d exports of 6 were allowed, want 2", allowed)
	}

	server.Kill()
	if got := status(t, second, "/v1/summaries/7"); got != 200 {
		t.Errorf("a summary without the server: status %d, want 200", got)
	}
	// Who was just denied is denied from memory, for up to a second.
	for deadline := time.Now().Add(20 * time.Second); status(t, second, "/v1/exports/7") != 503; {
		if time.Now().After(deadline) {
			t.Fatal("an export without the server: want 503")
		}
	}
}
